/**
 * From one signed body to one answer, whatever server brought it.
 *
 * The order is fixed: size, signature, media type, envelope, tenant and destination, expiry, handler and capability,
 * delivery record, sequence, handler. Nothing of a body is believed before its signature. Claim, handler, receipt and
 * commit are one transaction of the caller's database; what a handler does outside of it is not made once by this.
 */
import { createHash } from "node:crypto";

import { CONTENT_TYPE, operationDigest, parseEnvelope } from "./envelope.js";
import { Refuse, renderProblem } from "./errors.js";
import { fixedKeys } from "./keys.js";
import { factsOf, missingFrom, renderReceipt } from "./receipt.js";
import { VerificationKeys, verify } from "./signature.js";
import { signReceipt } from "./signing.js";
import { advance, checkTurn, decideRepeat } from "./store.js";

/**
 * @typedef {import("./envelope.js").Command} Command
 * @typedef {import("./envelope.js").GapResolution} GapResolution
 * @typedef {import("./envelope.js").StatusQuery} StatusQuery
 * @typedef {import("./store.js").Claim} Claim
 * @typedef {{sourceVersion: string, evidence: string, count?: number, digest?: string, status?: "done" | "partial" | "absent", occurredAt?: Date}} Done
 * @typedef {{status: number, headers: Record<string, string>, body: Buffer}} Answer
 * @typedef {{method: string, header: (name: string) => string | undefined, body: Uint8Array}} Incoming `header` has no value when it came twice
 * @typedef {{capability?: string, versions?: readonly [number, number]}} Declared
 */
/**
 * @template Tx
 * @typedef {(command: Command, transaction: Tx) => Promise<Done> | Done} Handler
 */
/**
 * @template Tx
 * @typedef {object} Options
 * @property {string} tenant whose commands; others are refused with AUTHZ
 * @property {string} destination the name under which the fabric delivers here
 * @property {VerificationKeys | import("./keys.js").KeySource} keys
 * @property {import("./store.js").Store<Tx>} store
 * @property {boolean} [inOrder] only the next number of each aggregate; to be set before the first delivery
 * @property {number} [toleranceSeconds]
 * @property {number} [maxBodyBytes]
 * @property {import("./signing.js").ReceiptSigner} [signer] signs each receipt; without it they are not signed
 * @property {() => Date} [now]
 * @property {(event: string, about: Record<string, string>) => void} [log] ids and reasons only
 */

/** @template Tx */
export class Listener {
  /** @param {Options<Tx>} options */
  constructor(options) {
    const { tenant, destination, keys, store, inOrder = false, toleranceSeconds = 300, maxBodyBytes = 1_048_576 } = options;
    if (!(toleranceSeconds > 0 && toleranceSeconds <= 86_400)) throw new RangeError("toleranceSeconds: above 0, at most a day");
    this.tenant = tenant;
    this.destination = destination;
    this.keys = keys instanceof VerificationKeys ? fixedKeys(keys) : keys;
    this.store = store;
    this.inOrder = inOrder;
    this.toleranceSeconds = toleranceSeconds;
    this.maxBodyBytes = maxBodyBytes;
    this.now = options.now ?? (() => new Date());
    this.signer = options.signer;
    // A listener that could sign nothing does not start.
    this.signer?.sign("receipt", Math.floor(this.now().getTime() / 1000), Buffer.alloc(0));
    this.log = options.log ?? (() => undefined);
    /** @type {Map<string, {handler: Handler<Tx>, declared: Declared}>} */
    this.handlers = new Map();
  }

  /**
   * Register the handler of a command type; `*` serves every type without one of its own.
   * @param {string} type
   * @param {Handler<Tx>} handler writes through the transaction it is given, and does not commit
   * @param {Declared} [declared] the capability and versions it serves; any without
   * @returns {this}
   */
  on(type, handler, declared = {}) {
    if (this.handlers.has(type)) throw new Error(`command type ${type} has a handler already`);
    this.handlers.set(type, { handler, declared });
    return this;
  }

  /** Drop delivery records behind the retention whose commands have expired. @param {number} days @returns {Promise<number>} */
  purge(days) {
    return this.store.purge(new Date(this.now().getTime() - days * 86_400_000), this.now());
  }

  /** Take one request and answer; never throws for what a request or a handler does. @param {Incoming} incoming @returns {Promise<Answer>} */
  async answer(incoming) {
    try {
      return await this.#take(incoming);
    } catch (error) {
      const refusal = error instanceof Refuse ? error : new Refuse("SOURCE_UNAVAILABLE", "store_unavailable", { retryAfterSeconds: 2 });
      // The name of an unexpected error, not its text: a database may quote data in it.
      const cause = error instanceof Refuse ? "" : nameOf(error);
      this.log("delivery.refused", { deliveryId: incoming.header("webhook-id") ?? "", reason: refusal.reason, error: cause });
      return problemAnswer(refusal);
    }
  }

  /** @param {Incoming} incoming @returns {Promise<Answer>} */
  async #take(incoming) {
    const { method, header, body } = incoming;
    if (method !== "POST") throw new Refuse("VALIDATION", "method", { status: 405, detail: "deliveries are POSTed" });
    if (body.length > this.maxBodyBytes) throw new Refuse("VALIDATION", "too_large", { status: 413 });
    const receivedAt = this.now();
    await this.#believe(incoming);
    const type = (header("content-type") ?? "").split(";")[0]?.trim().toLowerCase();
    if (type !== CONTENT_TYPE) throw new Refuse("VALIDATION", "content_type", { status: 415, detail: `expected ${CONTENT_TYPE}` });
    const message = parseEnvelope(body);
    const id = message.kind === "query" ? message.queryId : message.deliveryId;
    if (header("webhook-id") !== id) throw new Refuse("VALIDATION", "id_mismatch", { detail: "webhook-id is not the body's id" });
    if (message.tenant !== this.tenant) throw new Refuse("AUTHZ", "tenant", { detail: "signed for another tenant" });
    if (message.destination !== this.destination) throw new Refuse("AUTHZ", "destination", { detail: "signed for another destination" });
    const digest = createHash("sha256").update(body).digest("hex");
    await this.store.open();
    if (message.kind === "query") return jsonAnswer(await this.#status(message, receivedAt));
    if (message.kind === "gap") return this.#note(message, digest, receivedAt);
    return this.#command(message, digest, receivedAt);
  }

  /** @param {Incoming} incoming */
  async #believe({ header, body }) {
    const headers = { id: header("webhook-id"), timestamp: header("webhook-timestamp"), signature: header("webhook-signature") };
    const when = { now: this.now(), toleranceSeconds: this.toleranceSeconds };
    let verdict = verify(headers, body, await this.keys.current(), when);
    if (!verdict.accepted && (verdict.reason === "no_usable_key" || verdict.reason === "signature_mismatch")) {
      const newer = await this.keys.renewed();
      if (newer !== undefined) verdict = verify(headers, body, newer, when);
    }
    if (!verdict.accepted) throw new Refuse("AUTH", verdict.reason);
  }

  /** @param {Command} command @param {string} bodyDigest @param {Date} receivedAt */
  async #command(command, bodyDigest, receivedAt) {
    const claim = { ...command, bodyDigest, operationDigest: operationDigest(command), receivedAt };
    const refusal = this.#executable(command);
    if (refusal !== undefined) {
      // What was executed in time is reported, whatever the clock or the handlers say now.
      const known = await this.store.look(claim);
      if (known === undefined) throw refusal;
      // It is being executed in time by another copy: nobody may say yet that it was refused.
      if (known === "in_progress") throw new Refuse("SOURCE_UNAVAILABLE", "store_unavailable", { retryAfterSeconds: 2 });
      return this.#again(known, claim);
    }
    return this.#once(claim, async (tx) => {
      if (this.inOrder) {
        const { last, told } = await this.store.lane(tx, claim);
        checkTurn(command, last, told);
        await this.store.reach(tx, claim, advance(Math.max(last, command.sequence), told), command.sequence);
      }
      const done = await this.#handle(command, tx);
      const { deliveryId, operationId } = command;
      return { status: "done", ...done, deliveryId, operationId, receivedAt, executedAt: this.now() };
    });
  }

  /** @param {Command} command @returns {Refuse | undefined} */
  #executable(command) {
    if (command.expiresAt <= this.now()) return new Refuse("POLICY_BLOCK", "expired", { detail: "the command's time is over" });
    const found = this.handlers.get(command.type) ?? this.handlers.get("*");
    if (found === undefined) return new Refuse("PERMANENT_UNSUPPORTED", "command_type", { detail: "no handler for this command type" });
    const { capability = command.capability, versions: [low, high] = [0, Infinity] } = found.declared;
    const serves = capability === command.capability && low <= command.capabilityVersion && command.capabilityVersion <= high;
    return serves ? undefined : new Refuse("PERMANENT_UNSUPPORTED", "capability");
  }

  /** @param {Command} command @param {Tx} tx @returns {Promise<Done>} */
  async #handle(command, tx) {
    const found = this.handlers.get(command.type) ?? this.handlers.get("*");
    try {
      const done = await /** @type {{handler: Handler<Tx>}} */ (found).handler(command, tx);
      const { sourceVersion, evidence, count, digest } = done;
      const lacks = missingFrom({ status: "done", source_version: sourceVersion, evidence, count, digest });
      if (lacks.length > 0) throw new TypeError(`the handler's result lacks ${lacks.join(", ")}`);
      if (done.status === "absent" && count) throw new TypeError("what was absent was not counted: count is 0 or left out");
      return done;
    } catch (error) {
      if (error instanceof Refuse) throw error;
      // Nothing was done, so the sender may try again. What a handler raises may hold data: only its kind is told.
      this.log("handler.failed", { deliveryId: command.deliveryId, error: nameOf(error) });
      throw new Refuse("SOURCE_UNAVAILABLE", "handler_failed", { status: 500 });
    }
  }

  /** @param {GapResolution} gap @param {string} digest @param {Date} receivedAt */
  #note(gap, digest, receivedAt) {
    const claim = {
      ...gap, operationId: gap.deliveryId, bodyDigest: digest, operationDigest: digest, receivedAt, expiresAt: undefined,
    };
    return this.#once(claim, async (tx) => {
      if (this.inOrder) {
        await this.store.lane(tx, claim);
        for (const { sequence, ...told } of gap.entries) await this.store.tell(tx, claim, sequence, told);
        const { last, told } = await this.store.lane(tx, claim);
        await this.store.reach(tx, claim, advance(last, told), undefined);
      }
      return {
        status: "done",
        deliveryId: gap.deliveryId,
        operationId: gap.deliveryId,
        sourceVersion: String(gap.entries.at(-1)?.sequence),
        count: gap.entries.length,
        evidence: `urn:waybill:gap-resolution:${gap.deliveryId}`,
        receivedAt,
        executedAt: this.now(),
      };
    });
  }

  /** @param {Claim} claim @param {(tx: Tx) => Promise<import("./receipt.js").Receipt>} run @returns {Promise<Answer>} */
  async #once(claim, run) {
    return this.store.transaction(async (tx) => {
      const stored = await this.store.claim(tx, claim);
      if (stored !== undefined) return this.#again(stored, claim);
      const receipt = this.#signed(renderReceipt(await run(tx)));
      await this.store.complete(tx, claim, receipt);
      return receiptAnswer(receipt, false);
    });
  }

  /** @param {import("./store.js").Stored} stored @param {Claim} claim @returns {Answer} */
  #again(stored, claim) {
    const receipt = decideRepeat(stored, claim);
    return receiptAnswer(stored.deliveryId === claim.deliveryId ? receipt : this.#signed(Buffer.from(receipt)), true);
  }

  /** Where a listener signs, a receipt that cannot be signed is not given. @param {Buffer} receipt @returns {string} */
  #signed(receipt) {
    if (this.signer === undefined) return receipt.toString();
    try {
      return signReceipt(receipt, this.signer).toString();
    } catch (error) {
      this.log("receipt.unsigned", { error: nameOf(error) });
      throw new Refuse("SOURCE_UNAVAILABLE", "handler_unavailable", { retryAfterSeconds: 2 });
    }
  }

  /** @param {StatusQuery} query @param {Date} receivedAt */
  async #status(query, receivedAt) {
    const { deliveryId, bodySha256 } = query;
    const claim = { ...query, bodyDigest: bodySha256, operationDigest: bodySha256, receivedAt, expiresAt: undefined };
    const stored = await this.store.look(claim);
    const said = { query_id: query.queryId, delivery_id: deliveryId };
    if (stored === "in_progress") return { ...said, status: "in_progress" };
    if (stored?.deliveryId !== deliveryId) return { ...said, status: "not_done" };
    return { ...said, status: "done", receipt: factsOf(decideRepeat(stored, claim)) };
  }
}

/** @param {unknown} document @returns {Answer} */
function jsonAnswer(document) {
  return { status: 200, headers: headers("application/json"), body: Buffer.from(JSON.stringify(document)) };
}

/** @param {string} receipt @param {boolean} isRepeat @returns {Answer} */
function receiptAnswer(receipt, isRepeat) {
  const marks = headers("application/json");
  if (isRepeat) marks["waybill-repeat"] = "true";
  return { status: 200, headers: marks, body: Buffer.from(receipt) };
}

/** Return a refusal as an answer. @param {Refuse} refusal @returns {Answer} */
export function problemAnswer(refusal) {
  const { status, retryAfterSeconds } = refusal;
  const marks = headers("application/problem+json");
  if (retryAfterSeconds !== undefined) marks["retry-after"] = String(Math.max(1, Math.ceil(retryAfterSeconds)));
  if (status === 405) marks["allow"] = "POST";
  return { status, headers: marks, body: renderProblem(refusal) };
}

/** @param {string} type @returns {Record<string, string>} */
const headers = (type) => ({ "content-type": type, "cache-control": "no-store" });

/** @param {unknown} error */
const nameOf = (error) => (error instanceof Error ? error.name : typeof error);
