/** Return a refusal as an answer. @param {Refuse} refusal @returns {Answer} */
export function problemAnswer(refusal: Refuse): Answer;
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
export class Listener<Tx> {
    /** @param {Options<Tx>} options */
    constructor(options: Options<Tx>);
    tenant: string;
    destination: string;
    keys: import("./keys.js").KeySource;
    store: import("./store.js").Store<Tx>;
    inOrder: boolean;
    toleranceSeconds: number;
    maxBodyBytes: number;
    now: () => Date;
    signer: import("./signing.js").ReceiptSigner | undefined;
    log: (event: string, about: Record<string, string>) => void;
    /** @type {Map<string, {handler: Handler<Tx>, declared: Declared}>} */
    handlers: Map<string, {
        handler: Handler<Tx>;
        declared: Declared;
    }>;
    /**
     * Register the handler of a command type; `*` serves every type without one of its own.
     * @param {string} type
     * @param {Handler<Tx>} handler writes through the transaction it is given, and does not commit
     * @param {Declared} [declared] the capability and versions it serves; any without
     * @returns {this}
     */
    on(type: string, handler: Handler<Tx>, declared?: Declared): this;
    /** Drop delivery records behind the retention whose commands have expired. @param {number} days @returns {Promise<number>} */
    purge(days: number): Promise<number>;
    /** Take one request and answer; never throws for what a request or a handler does. @param {Incoming} incoming @returns {Promise<Answer>} */
    answer(incoming: Incoming): Promise<Answer>;
    #private;
}
export type Command = import("./envelope.js").Command;
export type GapResolution = import("./envelope.js").GapResolution;
export type StatusQuery = import("./envelope.js").StatusQuery;
export type Claim = import("./store.js").Claim;
export type Done = {
    sourceVersion: string;
    evidence: string;
    count?: number;
    digest?: string;
    status?: "done" | "partial" | "absent";
    occurredAt?: Date;
};
export type Answer = {
    status: number;
    headers: Record<string, string>;
    body: Buffer;
};
/**
 * `header` has no value when it came twice
 */
export type Incoming = {
    method: string;
    header: (name: string) => string | undefined;
    body: Uint8Array;
};
export type Declared = {
    capability?: string;
    versions?: readonly [number, number];
};
export type Handler<Tx> = (command: Command, transaction: Tx) => Promise<Done> | Done;
export type Options<Tx> = {
    /**
     * whose commands; others are refused with AUTHZ
     */
    tenant: string;
    /**
     * the name under which the fabric delivers here
     */
    destination: string;
    keys: VerificationKeys | import("./keys.js").KeySource;
    store: import("./store.js").Store<Tx>;
    /**
     * only the next number of each aggregate; to be set before the first delivery
     */
    inOrder?: boolean | undefined;
    toleranceSeconds?: number | undefined;
    maxBodyBytes?: number | undefined;
    /**
     * signs each receipt; without it they are not signed
     */
    signer?: import("./signing.js").ReceiptSigner | undefined;
    now?: (() => Date) | undefined;
    /**
     * ids and reasons only
     */
    log?: ((event: string, about: Record<string, string>) => void) | undefined;
};
import { Refuse } from "./errors.js";
import { VerificationKeys } from "./signature.js";
