/** The listener package: verify, deduplicate, execute once, answer with a receipt. */
export { CONTENT_TYPE, parseEnvelope } from "./envelope.js";
export { Refuse, STATUS, renderProblem } from "./errors.js";
export { fixedKeys, jwksFile, jwksUrl } from "./keys.js";
export { Listener } from "./listener.js";
export { missingFrom, renderReceipt } from "./receipt.js";
export { TOLERANCE_SECONDS, VerificationKeys, verify } from "./signature.js";
export { ReceiptSigner, signReceipt } from "./signing.js";
