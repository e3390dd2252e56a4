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
export function renderReceipt(receipt) {
  return Buffer.from(
    JSON.stringify({
      status: receipt.status,
      delivery_id: receipt.deliveryId,
      operation_id: receipt.operationId,
      source_version: receipt.sourceVersion,
      count: receipt.count,
      digest: receipt.digest,
      evidence: receipt.evidence,
      occurred_at: receipt.occurredAt,
      received_at: receipt.receivedAt,
      executed_at: receipt.executedAt,
    }),
  );
}

/**
 * Name what a receipt document lacks to close a delivery; `count` stands for "count or digest".
 * @param {any} document parsed
 * @returns {string[]}
 */
export function missingFrom(document) {
  const missing = ["status", "source_version", "evidence"].filter((name) => !document?.[name]);
  return document?.count === undefined && !document?.digest ? [...missing, "count"] : missing;
}

/**
 * Return what a stored receipt states, without the signature over it.
 * @param {string} receipt
 * @returns {any}
 */
export function factsOf(receipt) {
  const { signature: _signature, ...facts } = JSON.parse(receipt);
  return facts;
}

/**
 * Return the same result under another delivery's id, for a second delivery of one operation; nobody signed it yet.
 * @param {string} receipt
 * @param {string} deliveryId
 * @returns {string}
 */
export function underAnotherId(receipt, deliveryId) {
  const { status, delivery_id: _former, ...others } = factsOf(receipt);
  return JSON.stringify({ status, delivery_id: deliveryId, ...others });
}
