/**
 * Return a rendered receipt with its signature; one that has no delivery or no time is returned as it is.
 * @param {Uint8Array} rendered as `renderReceipt` returns it
 * @param {ReceiptSigner} signer
 * @returns {Buffer}
 */
export function signReceipt(rendered: Uint8Array, signer: ReceiptSigner): Buffer;
/** Signs with every key that is valid at the time, so with two while they rotate. */
export class ReceiptSigner {
    /**
     * Take private keys written as `whsk_` and base64, valid at all times. Throws when one is none; does not show it.
     * @param {readonly string[]} texts
     */
    static fromText(...texts: readonly string[]): ReceiptSigner;
    /**
     * Take a private key as a JSON Web Key, valid at all times. Throws when it is no Ed25519 key; does not show it.
     * @param {import("node:crypto").JsonWebKey} jwk
     */
    static fromJwk(jwk: import("node:crypto").JsonWebKey): ReceiptSigner;
    /**
     * Read the `signing.json` that `waybill keys new` wrote, and follow it while it is rotated; one that cannot be read
     * later leaves the keys as they are. Throws when there is none, or others may read it.
     * @param {string} path
     */
    static fromFile(path: string): ReceiptSigner;
    /** @param {readonly PrivateKey[]} keys @param {() => readonly PrivateKey[] | undefined} [renewed] newer ones, if there are any */
    constructor(keys: readonly PrivateKey[], renewed?: () => readonly PrivateKey[] | undefined);
    keys: readonly PrivateKey[];
    renewed: () => readonly PrivateKey[] | undefined;
    lookedAt: number;
    /**
     * Return the value of `webhook-signature`. Throws when no key is valid at the timestamp.
     * @param {string} id
     * @param {number} timestamp Unix seconds
     * @param {Uint8Array} body
     */
    sign(id: string, timestamp: number, body: Uint8Array): string;
}
/**
 * the window in Unix seconds
 */
export type PrivateKey = {
    start: number;
    end: number;
    key: import("node:crypto").KeyObject;
};
