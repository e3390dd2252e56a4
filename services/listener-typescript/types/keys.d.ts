/** @param {VerificationKeys} keys @returns {KeySource} */
export function fixedKeys(keys: VerificationKeys): KeySource;
/**
 * @param {string} path
 * @param {{secrets?: readonly string[]}} [options]
 * @returns {KeySource}
 */
export function jwksFile(path: string, { secrets }?: {
    secrets?: readonly string[];
}): KeySource;
/**
 * @param {string} url
 * @param {{secrets?: readonly string[], maxAgeSeconds?: number, minIntervalSeconds?: number, fetch?: typeof fetch, now?: () => number}} [options]
 * @returns {KeySource}
 */
export function jwksUrl(url: string, options?: {
    secrets?: readonly string[];
    maxAgeSeconds?: number;
    minIntervalSeconds?: number;
    fetch?: typeof fetch;
    now?: () => number;
}): KeySource;
export type KeySource = {
    /**
     * throws when there were never any
     */
    current: () => Promise<VerificationKeys>;
    /**
     * look again; undefined when there is nothing newer
     */
    renewed: () => Promise<VerificationKeys | undefined>;
};
import { VerificationKeys } from "./signature.js";
