/**
 * Where verification keys come from, and how a rotation is followed: a file, looked at again when it was replaced, or
 * a URL, fetched again after `maxAgeSeconds` and, when a signature finds no key, at once but not oftener than
 * `minIntervalSeconds`, so that a flood of forgeries is no flood of fetches. A source that cannot be read leaves the
 * last good keys: their own windows end them.
 */
import { readFile, stat } from "node:fs/promises";

import { VerificationKeys } from "./signature.js";

/**
 * @typedef {object} KeySource
 * @property {() => Promise<VerificationKeys>} current throws when there were never any
 * @property {() => Promise<VerificationKeys | undefined>} renewed look again; undefined when there is nothing newer
 */

const MAX_BYTES = 262_144;
const FETCH_TIMEOUT_MS = 5_000;

/** @param {VerificationKeys} keys @returns {KeySource} */
export function fixedKeys(keys) {
  return { current: async () => keys, renewed: async () => undefined };
}

/**
 * @param {string} path
 * @param {{secrets?: readonly string[]}} [options]
 * @returns {KeySource}
 */
export function jwksFile(path, { secrets = [] } = {}) {
  /** @type {VerificationKeys | undefined} */
  let keys;
  let seen = "";
  return {
    async current() {
      try {
        const { mtimeMs, size, ino } = await stat(path);
        const mark = `${mtimeMs}/${size}/${ino}`;
        if (mark !== seen) {
          keys = VerificationKeys.fromJwks(JSON.parse(await readFile(path, "utf8")), secrets);
          seen = mark;
        }
      } catch (error) {
        if (keys === undefined) throw new Error(`${path} is not a readable JSON Web Key Set`, { cause: error });
      }
      return /** @type {VerificationKeys} */ (keys);
    },
    renewed: async () => undefined, // `current` has already looked
  };
}

/**
 * @param {string} url
 * @param {{secrets?: readonly string[], maxAgeSeconds?: number, minIntervalSeconds?: number, fetch?: typeof fetch, now?: () => number}} [options]
 * @returns {KeySource}
 */
export function jwksUrl(url, options = {}) {
  const { secrets = [], maxAgeSeconds = 300, minIntervalSeconds = 10 } = options;
  const get = options.fetch ?? fetch;
  const now = options.now ?? (() => performance.now());
  /** @type {VerificationKeys | undefined} */
  let keys;
  let triedAt = -Infinity;
  /** @type {Promise<void>} */
  let fetching = Promise.resolve();

  async function read() {
    if (now() - triedAt < minIntervalSeconds * 1000) return;
    triedAt = now();
    try {
      const signal = AbortSignal.timeout(FETCH_TIMEOUT_MS);
      const answer = await get(url, { headers: { accept: "application/json" }, redirect: "error", signal });
      const text = await answer.text();
      if (!answer.ok || text.length > MAX_BYTES) return;
      keys = VerificationKeys.fromJwks(JSON.parse(text), secrets);
    } catch {
      return; // the last good keys stay
    }
  }
  const refresh = () => (fetching = fetching.then(read));
  return {
    async current() {
      if (keys === undefined || now() - triedAt >= maxAgeSeconds * 1000) await refresh();
      if (keys === undefined) throw new Error(`no verification keys: ${url} does not answer with a JSON Web Key Set`);
      return keys;
    },
    async renewed() {
      const before = keys;
      await refresh();
      return keys === before ? undefined : keys;
    },
  };
}
