/**
 * Decide whether a body may be believed.
 * @param {SignatureHeaders} headers undefined when absent or there more than once
 * @param {Uint8Array} body the raw bytes, before anything read them
 * @param {VerificationKeys} keys
 * @param {{now: Date, toleranceSeconds?: number}} when
 * @returns {Verdict}
 */
export function verify(headers: SignatureHeaders, body: Uint8Array, keys: VerificationKeys, { now, toleranceSeconds }: {
    now: Date;
    toleranceSeconds?: number;
}): Verdict;
/**
 * @typedef {{kid: string, start: number, end: number, key: import("node:crypto").KeyObject}} PublicKey
 * @typedef {"missing_header"|"malformed_header"|"timestamp_too_old"|"timestamp_too_new"|"no_usable_key"|"signature_mismatch"} RefuseReason
 * @typedef {{accepted: true, keyId: string} | {accepted: false, reason: RefuseReason}} Verdict
 * @typedef {{id: string|undefined, timestamp: string|undefined, signature: string|undefined}} SignatureHeaders
 */
export const TOLERANCE_SECONDS: 300;
/** What a listener checks with: the tenant's public keys, shared secrets, or both. */
export class VerificationKeys {
    /**
     * Read a JSON Web Key Set; keys of other kinds are ignored. Throws when it is none, or an Ed25519 key is damaged.
     * @param {unknown} document
     * @param {readonly string[]} [secrets] `whsec_…`, several while they rotate
     */
    static fromJwks(document: unknown, secrets?: readonly string[]): VerificationKeys;
    /**
     * Take public keys written as `whpk_` and base64, valid at all times, and shared secrets.
     * @param {readonly string[]} texts
     */
    static fromText(...texts: readonly string[]): VerificationKeys;
    /**
     * @param {readonly PublicKey[]} publicKeys
     * @param {readonly Buffer[]} secrets
     */
    constructor(publicKeys: readonly PublicKey[], secrets: readonly Buffer[]);
    publicKeys: readonly PublicKey[];
    secrets: readonly Buffer<ArrayBufferLike>[];
}
export type PublicKey = {
    kid: string;
    start: number;
    end: number;
    key: import("node:crypto").KeyObject;
};
export type RefuseReason = "missing_header" | "malformed_header" | "timestamp_too_old" | "timestamp_too_new" | "no_usable_key" | "signature_mismatch";
export type Verdict = {
    accepted: true;
    keyId: string;
} | {
    accepted: false;
    reason: RefuseReason;
};
export type SignatureHeaders = {
    id: string | undefined;
    timestamp: string | undefined;
    signature: string | undefined;
};
