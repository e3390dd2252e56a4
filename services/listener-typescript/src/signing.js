/**
 * A receipt that proves by itself who stated it: signed by the listener's own key, verified by anybody, offline.
 *
 * The signature is the last member of the receipt. Signed are, as Standard Webhooks does it, the delivery id, the second
 * of `executed_at` and the bytes of the receipt without that member; so a key is judged at the time of the execution,
 * also years after it was retired.
 */
import { createPrivateKey, sign as signBytes } from "node:crypto";
import { readFileSync, statSync } from "node:fs";

/** @typedef {{start: number, end: number, key: import("node:crypto").KeyObject}} PrivateKey the window in Unix seconds */

const MARK = ',"signature":"';
/** How an Ed25519 key in PKCS #8 begins (RFC 8410); its 32 bytes follow. */
const PKCS8 = Buffer.from("302e020100300506032b657004220420", "hex");
/** How long a file that was replaced may go unnoticed, in seconds; any overlap is longer. */
const LOOK_EVERY_S = 5;

/** Signs with every key that is valid at the time, so with two while they rotate. */
export class ReceiptSigner {
  /** @param {readonly PrivateKey[]} keys @param {() => readonly PrivateKey[] | undefined} [renewed] newer ones, if there are any */
  constructor(keys, renewed = () => undefined) {
    this.keys = keys;
    this.renewed = renewed;
    this.lookedAt = 0;
  }

  /**
   * Take private keys written as `whsk_` and base64, valid at all times. Throws when one is none; does not show it.
   * @param {readonly string[]} texts
   */
  static fromText(...texts) {
    return new ReceiptSigner(texts.map((text) => ({ start: -Infinity, end: Infinity, key: privateKey(text) })));
  }

  /**
   * Take a private key as a JSON Web Key, valid at all times. Throws when it is no Ed25519 key; does not show it.
   * @param {import("node:crypto").JsonWebKey} jwk
   */
  static fromJwk(jwk) {
    if (jwk.kty !== "OKP" || jwk.crv !== "Ed25519" || jwk.d === undefined) throw new TypeError("not a private Ed25519 key as a JSON Web Key");
    return new ReceiptSigner([{ start: -Infinity, end: Infinity, key: createPrivateKey({ key: jwk, format: "jwk" }) }]);
  }

  /**
   * Read the `signing.json` that `waybill keys new` wrote, and follow it while it is rotated; one that cannot be read
   * later leaves the keys as they are. Throws when there is none, or others may read it.
   * @param {string} path
   */
  static fromFile(path) {
    let seen = markOf(path);
    return new ReceiptSigner(readKeys(path), () => {
      try {
        const mark = markOf(path);
        if (mark === seen) return undefined;
        const keys = readKeys(path);
        seen = mark;
        return keys;
      } catch {
        return undefined;
      }
    });
  }

  /**
   * Return the value of `webhook-signature`. Throws when no key is valid at the timestamp.
   * @param {string} id
   * @param {number} timestamp Unix seconds
   * @param {Uint8Array} body
   */
  sign(id, timestamp, body) {
    const since = timestamp - this.lookedAt;
    if (since < 0 || since >= LOOK_EVERY_S) {
      this.lookedAt = timestamp;
      this.keys = this.renewed() ?? this.keys;
    }
    const content = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
    // The timestamp is a whole second, the window is not.
    const valid = this.keys.filter(({ start, end }) => start <= timestamp + 1 && timestamp < end);
    if (valid.length === 0) throw new RangeError("no key to sign with is valid at this time: `waybill keys rotate` makes one");
    return valid.map(({ key }) => `v1a,${signBytes(null, content, key).toString("base64")}`).join(" ");
  }
}

/**
 * Return a rendered receipt with its signature; one that has no delivery or no time is returned as it is.
 * @param {Uint8Array} rendered as `renderReceipt` returns it
 * @param {ReceiptSigner} signer
 * @returns {Buffer}
 */
export function signReceipt(rendered, signer) {
  const text = Buffer.from(rendered);
  const { delivery_id: id, executed_at: executedAt } = JSON.parse(text.toString());
  if (id === undefined || executedAt === undefined) return text;
  const signature = signer.sign(id, Math.floor(Date.parse(executedAt) / 1000), text);
  return Buffer.concat([text.subarray(0, -1), Buffer.from(`${MARK}${signature}"}`)]);
}

/** @param {string} text @returns {import("node:crypto").KeyObject} */
function privateKey(text) {
  const raw = text.startsWith("whsk_") ? Buffer.from(text.slice(5), "base64") : Buffer.alloc(0);
  // Other tools append the public half to the seed.
  if (raw.toString("base64") !== text.slice(5) || (raw.length !== 32 && raw.length !== 64)) {
    throw new TypeError("a private key is `whsk_` followed by base64 of 32 bytes");
  }
  return createPrivateKey({ key: Buffer.concat([PKCS8, raw.subarray(0, 32)]), format: "der", type: "pkcs8" });
}

/** @param {string} path @returns {PrivateKey[]} */
function readKeys(path) {
  if ((statSync(path).mode & 0o077) !== 0) throw new Error(`${path} is open to other users: chmod 600 ${path}`);
  const document = parsed(path);
  if (document?.format !== 1 || !Array.isArray(document.keys)) throw new TypeError(`${path} is not a key file of format 1`);
  /** @type {any[]} */
  const entries = document.keys;
  return entries.filter((entry) => entry.algorithm === "ed25519").map((entry) => ({
    start: Date.parse(entry.not_before) / 1000,
    end: entry.not_after ? Date.parse(entry.not_after) / 1000 : Infinity,
    key: privateKey(String(entry.secret)),
  }));
}

/** What a parser says of a file may quote it, so it is not passed on. @param {string} path @returns {any} */
function parsed(path) {
  const text = readFileSync(path, "utf8");
  try {
    return JSON.parse(text);
  } catch {
    throw new TypeError(`${path} is not a key file`);
  }
}

/** @param {string} path */
function markOf(path) {
  const { mtimeMs, size, ino } = statSync(path);
  return `${mtimeMs}/${size}/${ino}`;
}
