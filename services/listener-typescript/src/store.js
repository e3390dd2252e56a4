/**
 * What a store keeps, and the decision what a known delivery gets.
 *
 * The record is inserted first, in the transaction in which the handler runs, and completed with the receipt before
 * it commits: record and business change are there together or not at all. The insert is also the lock between
 * concurrent duplicates.
 */
import { Refuse } from "./errors.js";
import { underAnotherId } from "./receipt.js";

/**
 * @typedef {object} Claim what is recorded of a delivery when its execution begins
 * @property {string} tenant
 * @property {string} destination
 * @property {string} deliveryId
 * @property {string} operationId
 * @property {string} aggregate
 * @property {string} bodyDigest SHA-256 of the body, hex
 * @property {string} operationDigest SHA-256 of what is to be done, hex
 * @property {Date} receivedAt
 * @property {Date | undefined} expiresAt
 *
 * @typedef {{deliveryId: string, bodyDigest: string, operationDigest: string, receipt: string}} Stored
 * @typedef {{deliveryId: string, resolution: string}} Told
 */

/**
 * @template Tx what handlers get
 * @typedef {object} Store
 * @property {() => Promise<void>} open make the tables; does nothing when they are there
 * @property {<T>(work: (tx: Tx) => Promise<T>) => Promise<T>} transaction commit at the end, roll back on an error
 * @property {(tx: Tx, claim: Claim) => Promise<Stored | undefined>} claim undefined: it is ours to execute
 * @property {(tx: Tx, claim: Claim, receipt: string) => Promise<void>} complete
 * @property {(claim: Claim) => Promise<Stored | "in_progress" | undefined>} look what was executed, or is being
 * @property {(tx: Tx, claim: Claim) => Promise<{last: number, told: Map<number, Told>}>} lane locked until the end
 * @property {(tx: Tx, claim: Claim, sequence: number, told: Told) => Promise<void>} tell
 * @property {(tx: Tx, claim: Claim, last: number, done: number | undefined) => Promise<void>} reach
 * @property {(before: Date, now: Date) => Promise<number>} purge drop records received before, whose commands expired
 */

/**
 * Return the receipt that a delivery gets whose id or operation is recorded; throws `Refuse` when it asks for
 * something else.
 * @param {Stored} stored
 * @param {Claim} incoming
 * @returns {string}
 */
export function decideRepeat(stored, incoming) {
  if (stored.deliveryId === incoming.deliveryId) {
    if (stored.bodyDigest === incoming.bodyDigest) return stored.receipt;
    throw new Refuse("VERSION_CONFLICT", "body_differs", { detail: "this delivery id was executed with another body" });
  }
  if (stored.operationDigest === incoming.operationDigest) return underAnotherId(stored.receipt, incoming.deliveryId);
  throw new Refuse("VERSION_CONFLICT", "operation_differs", { detail: "this operation id was executed for something else" });
}

/**
 * Refuse a delivery that is not known yet and whose turn it is not.
 * @param {{sequence: number, deliveryId: string}} delivery
 * @param {number} last everything up to here has passed
 * @param {ReadonlyMap<number, Told>} told what gap resolutions said
 */
export function checkTurn({ sequence, deliveryId }, last, told) {
  if (sequence === last + 1) return;
  if (sequence > last + 1) {
    throw new Refuse("SOURCE_UNAVAILABLE", "gap", { status: 425, expectedSequence: last + 1 });
  }
  const found = told.get(sequence);
  if (found?.deliveryId === deliveryId && found.resolution === "deferred") return;
  const detail = "a later one of this aggregate was taken, and nobody said that this one may come after it";
  throw new Refuse("VERSION_CONFLICT", "older_sequence", { detail });
}

/** Return up to where everything has passed. @param {number} last @param {ReadonlyMap<number, Told>} told */
export function advance(last, told) {
  while (told.has(last + 1)) last += 1;
  return last;
}
