/**
 * May a body be believed? Standard Webhooks 1.0 over the raw bytes, before anything else looks at them: one entry of
 * `webhook-signature` must verify under a key we know, valid at the signed timestamp, and that timestamp must lie
 * within the tolerance on either side of our clock.
 */
import { createHmac, createPublicKey, timingSafeEqual, verify as verifyBytes } from "node:crypto";

/**
 * @typedef {{kid: string, start: number, end: number, key: import("node:crypto").KeyObject}} PublicKey
 * @typedef {"missing_header"|"malformed_header"|"timestamp_too_old"|"timestamp_too_new"|"no_usable_key"|"signature_mismatch"} RefuseReason
 * @typedef {{accepted: true, keyId: string} | {accepted: false, reason: RefuseReason}} Verdict
 * @typedef {{id: string|undefined, timestamp: string|undefined, signature: string|undefined}} SignatureHeaders
 */

export const TOLERANCE_SECONDS = 300;
/** More entries than any rotation needs are not looked at: each costs a verification. */
const MAX_ENTRIES = 16;
const MAX_HEADER = 4096;

/** What a listener checks with: the tenant's public keys, shared secrets, or both. */
export class VerificationKeys {
  /**
   * @param {readonly PublicKey[]} publicKeys
   * @param {readonly Buffer[]} secrets
   */
  constructor(publicKeys, secrets) {
    this.publicKeys = publicKeys;
    this.secrets = secrets;
  }

  /**
   * Read a JSON Web Key Set; keys of other kinds are ignored. Throws when it is none, or an Ed25519 key is damaged.
   * @param {unknown} document
   * @param {readonly string[]} [secrets] `whsec_…`, several while they rotate
   */
  static fromJwks(document, secrets = []) {
    const listed = /** @type {{keys?: unknown}} */ (document)?.keys;
    if (!Array.isArray(listed)) throw new TypeError("not a JSON Web Key Set: expected an object with a list `keys`");
    const ours = listed.filter((entry) => entry?.kty === "OKP" && entry.crv === "Ed25519");
    return new VerificationKeys(ours.map(publicKey), secrets.map(parseSecret));
  }

  /**
   * Take public keys written as `whpk_` and base64, valid at all times, and shared secrets.
   * @param {readonly string[]} texts
   */
  static fromText(...texts) {
    const keys = texts.filter((text) => text.startsWith("whpk_")).map((text) => {
      const x = canonicalBase64(text.slice(5))?.toString("base64url");
      if (x === undefined) throw new TypeError("a public key is not `whpk_` followed by base64");
      return publicKey({ x, kid: text.slice(5, 13) });
    });
    const secrets = texts.filter((text) => !text.startsWith("whpk_")).map(parseSecret);
    return new VerificationKeys(keys, secrets);
  }
}

/** @param {{x?: unknown, kid?: unknown, nbf?: unknown, exp?: unknown}} entry @returns {PublicKey} */
function publicKey({ x, kid, nbf = 0, exp = Infinity }) {
  if (typeof x !== "string" || typeof nbf !== "number" || typeof exp !== "number") {
    throw new TypeError("a key of the JSON Web Key Set is damaged");
  }
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  return { kid: String(kid ?? ""), start: nbf, end: exp, key };
}

/** @param {string} text @returns {Buffer} */
function parseSecret(text) {
  const secret = text.startsWith("whsec_") ? canonicalBase64(text.slice(6)) : undefined;
  if (secret === undefined || secret.length < 24 || secret.length > 64) {
    throw new TypeError("a shared secret is `whsec_` followed by base64 of 24 to 64 bytes");
  }
  return secret;
}

/**
 * Decide whether a body may be believed.
 * @param {SignatureHeaders} headers undefined when absent or there more than once
 * @param {Uint8Array} body the raw bytes, before anything read them
 * @param {VerificationKeys} keys
 * @param {{now: Date, toleranceSeconds?: number}} when
 * @returns {Verdict}
 */
export function verify(headers, body, keys, { now, toleranceSeconds = TOLERANCE_SECONDS }) {
  const { id, timestamp, signature } = headers;
  if (id === undefined || timestamp === undefined || signature === undefined) return no("missing_header");
  if (!/^[0-9]{1,12}$/.test(timestamp) || signature.length > MAX_HEADER || id === "") return no("malformed_header");
  const stamp = Number(timestamp);
  const age = now.getTime() / 1000 - stamp;
  if (age > toleranceSeconds) return no("timestamp_too_old");
  if (-age > toleranceSeconds) return no("timestamp_too_new");
  const entries = parseEntries(signature);
  if (entries === undefined) return no("malformed_header");
  return check(Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]), stamp, entries, keys);
}

/** @param {RefuseReason} reason @returns {Verdict} */
const no = (reason) => ({ accepted: false, reason });

/** @param {Buffer} content @param {number} stamp @param {[string, Buffer][]} entries @param {VerificationKeys} keys */
function check(content, stamp, entries, keys) {
  const valid = keys.publicKeys.filter((key) => key.start - 1 <= stamp && stamp < key.end);
  let tried = false;
  for (const [kind, signature] of entries) {
    for (const key of kind === "v1a" ? valid : []) {
      tried = true;
      if (verifyBytes(null, content, key.key, signature)) return { accepted: /** @type {const} */ (true), keyId: key.kid };
    }
    for (const secret of kind === "v1" ? keys.secrets : []) {
      tried = true;
      const mac = createHmac("sha256", secret).update(content).digest();
      if (mac.length === signature.length && timingSafeEqual(mac, signature)) {
        return { accepted: /** @type {const} */ (true), keyId: "" };
      }
    }
  }
  return no(tried ? "signature_mismatch" : "no_usable_key");
}

/**
 * Read the list; entries of unknown kinds are skipped, a damaged one of a known kind spoils the header.
 * @param {string} header
 * @returns {[string, Buffer][] | undefined}
 */
function parseEntries(header) {
  /** @type {[string, Buffer][]} */
  const found = [];
  for (const part of header.split(" ").slice(0, MAX_ENTRIES)) {
    const comma = part.indexOf(",");
    const kind = comma < 0 ? part : part.slice(0, comma);
    if (kind !== "v1" && kind !== "v1a") continue;
    const signature = comma < 0 ? undefined : canonicalBase64(part.slice(comma + 1));
    if (signature === undefined) return undefined;
    found.push([kind, signature]);
  }
  return found;
}

/** No second spelling of the same bytes passes. @param {string} text @returns {Buffer | undefined} */
function canonicalBase64(text) {
  const bytes = Buffer.from(text, "base64");
  return bytes.toString("base64") === text ? bytes : undefined;
}
