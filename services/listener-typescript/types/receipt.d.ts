/**
 * Receipts: what a listener states it did. Complete are status, source version, evidence, and a count or a digest;
 * anything less closes no delivery.
 */
/**
 * @typedef {object} Receipt
 * @property {"done" | "partial" | "absent"} [status]
 * @property {string} [deliveryId]
 * @property {string} [operationId]
 * @property {string} [sourceVersion] version of the destination's own data afterwards
 * @property {number} [count] how many things were affected; 0 is an answer
 * @property {string} [digest] digest over what was affected
 * @property {string} [evidence] where the proof lies; a reference, never the content
 * @property {Date} [occurredAt]
 * @property {Date} [receivedAt]
 * @property {Date} [executedAt]
 */
/**
 * Return the document, absent fields left out, always in the same order.
 * @param {Receipt} receipt
 * @returns {Buffer}
 */
export function renderReceipt(receipt: Receipt): Buffer;
/**
 * Name what a receipt document lacks to close a delivery; `count` stands for "count or digest".
 * @param {any} document parsed
 * @returns {string[]}
 */
export function missingFrom(document: any): string[];
/**
 * Return what a stored receipt states, without the signature over it.
 * @param {string} receipt
 * @returns {any}
 */
export function factsOf(receipt: string): any;
/**
 * Return the same result under another delivery's id, for a second delivery of one operation; nobody signed it yet.
 * @param {string} receipt
 * @param {string} deliveryId
 * @returns {string}
 */
export function underAnotherId(receipt: string, deliveryId: string): string;
export type Receipt = {
    status?: "done" | "partial" | "absent" | undefined;
    deliveryId?: string | undefined;
    operationId?: string | undefined;
    /**
     * version of the destination's own data afterwards
     */
    sourceVersion?: string | undefined;
    /**
     * how many things were affected; 0 is an answer
     */
    count?: number | undefined;
    /**
     * digest over what was affected
     */
    digest?: string | undefined;
    /**
     * where the proof lies; a reference, never the content
     */
    evidence?: string | undefined;
    occurredAt?: Date | undefined;
    receivedAt?: Date | undefined;
    executedAt?: Date | undefined;
};
