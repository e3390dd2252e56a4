/**
 * Return the problem document (RFC 9457), the same bytes for the same refusal.
 * @param {Refuse} refusal
 * @returns {Buffer}
 */
export function renderProblem(refusal: Refuse): Buffer;
export namespace STATUS {
    let AUTH: 401;
    let AUTHZ: 403;
    let RATE_LIMIT: 429;
    let TRANSIENT_NETWORK: 503;
    let SOURCE_UNAVAILABLE: 503;
    let SCHEMA_CHANGED: 422;
    let NOT_FOUND: 404;
    let MULTIPLE_MATCH: 422;
    let VERSION_CONFLICT: 409;
    let POLICY_BLOCK: 422;
    let VALIDATION: 400;
    let PARTIAL_SOURCE: 422;
    let AMBIGUOUS_RESULT: 500;
    let PERMANENT_UNSUPPORTED: 422;
}
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
    constructor(code: Code, reason: string, more?: {
        detail?: string;
        status?: number;
        expectedSequence?: number;
        retryAfterSeconds?: number;
    });
    code: "AUTH" | "AUTHZ" | "RATE_LIMIT" | "TRANSIENT_NETWORK" | "SOURCE_UNAVAILABLE" | "SCHEMA_CHANGED" | "NOT_FOUND" | "MULTIPLE_MATCH" | "VERSION_CONFLICT" | "POLICY_BLOCK" | "VALIDATION" | "PARTIAL_SOURCE" | "AMBIGUOUS_RESULT" | "PERMANENT_UNSUPPORTED";
    reason: string;
    detail: string;
    status: number;
    expectedSequence: number | undefined;
    retryAfterSeconds: number | undefined;
}
export type Code = keyof typeof STATUS;
