/**
 * Refusals: the fourteen codes, the problem document, and what a handler throws to refuse.
 * A code outside the set is nobody's; `reason` is a word programs may branch on; `detail` is for people.
 */

/** @typedef {keyof typeof STATUS} Code */

/** The status a listener answers with when nothing more exact fits. */
export const STATUS = /** @type {const} */ ({
  AUTH: 401,
  AUTHZ: 403,
  RATE_LIMIT: 429,
  TRANSIENT_NETWORK: 503,
  SOURCE_UNAVAILABLE: 503,
  SCHEMA_CHANGED: 422,
  NOT_FOUND: 404,
  MULTIPLE_MATCH: 422,
  VERSION_CONFLICT: 409,
  POLICY_BLOCK: 422,
  VALIDATION: 400,
  PARTIAL_SOURCE: 422,
  AMBIGUOUS_RESULT: 500,
  PERMANENT_UNSUPPORTED: 422,
});

const REASON = /^[a-z][a-z0-9_]{0,63}$/;

/**
 * Throw it in a handler to refuse: everything is rolled back and nothing of the delivery is recorded.
 * The same class carries the listener's own refusals.
 */
export class Refuse extends Error {
  /**
   * @param {Code} code
   * @param {string} reason lower case letters, digits and underscores
   * @param {{detail?: string, status?: number, expectedSequence?: number, retryAfterSeconds?: number}} [more]
   */
  constructor(code, reason, more = {}) {
    super(`${code}: ${reason}`);
    if (!(code in STATUS)) throw new TypeError(`${code} is none of the fourteen codes`);
    if (!REASON.test(reason)) throw new TypeError("a reason is a word of lower case letters, digits and underscores");
    this.name = "Refuse";
    this.code = code;
    this.reason = reason;
    this.detail = more.detail ?? "";
    this.status = more.status ?? STATUS[code];
    this.expectedSequence = more.expectedSequence;
    this.retryAfterSeconds = more.retryAfterSeconds;
  }
}

/**
 * Return the problem document (RFC 9457), the same bytes for the same refusal.
 * @param {Refuse} refusal
 * @returns {Buffer}
 */
export function renderProblem(refusal) {
  return Buffer.from(
    JSON.stringify({
      type: `urn:waybill:error:${refusal.code}`,
      title: refusal.code.replaceAll("_", " ").toLowerCase(),
      status: refusal.status,
      reason: refusal.reason,
      ...(refusal.detail ? { detail: refusal.detail } : {}),
      ...(refusal.expectedSequence === undefined ? {} : { expected_sequence: refusal.expectedSequence }),
    }),
  );
}
