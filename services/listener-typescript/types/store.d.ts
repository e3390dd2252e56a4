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
export function decideRepeat(stored: Stored, incoming: Claim): string;
/**
 * Refuse a delivery that is not known yet and whose turn it is not.
 * @param {{sequence: number, deliveryId: string}} delivery
 * @param {number} last everything up to here has passed
 * @param {ReadonlyMap<number, Told>} told what gap resolutions said
 */
export function checkTurn({ sequence, deliveryId }: {
    sequence: number;
    deliveryId: string;
}, last: number, told: ReadonlyMap<number, Told>): void;
/** Return up to where everything has passed. @param {number} last @param {ReadonlyMap<number, Told>} told */
export function advance(last: number, told: ReadonlyMap<number, Told>): number;
/**
 * what is recorded of a delivery when its execution begins
 */
export type Claim = {
    tenant: string;
    destination: string;
    deliveryId: string;
    operationId: string;
    aggregate: string;
    /**
     * SHA-256 of the body, hex
     */
    bodyDigest: string;
    /**
     * SHA-256 of what is to be done, hex
     */
    operationDigest: string;
    receivedAt: Date;
    expiresAt: Date | undefined;
};
export type Stored = {
    deliveryId: string;
    bodyDigest: string;
    operationDigest: string;
    receipt: string;
};
export type Told = {
    deliveryId: string;
    resolution: string;
};
export type Store<Tx> = {
    /**
     * make the tables; does nothing when they are there
     */
    open: () => Promise<void>;
    /**
     * commit at the end, roll back on an error
     */
    transaction: <T>(work: (tx: Tx) => Promise<T>) => Promise<T>;
    /**
     * undefined: it is ours to execute
     */
    claim: (tx: Tx, claim: Claim) => Promise<Stored | undefined>;
    complete: (tx: Tx, claim: Claim, receipt: string) => Promise<void>;
    /**
     * what was executed, or is being
     */
    look: (claim: Claim) => Promise<Stored | "in_progress" | undefined>;
    /**
     * locked until the end
     */
    lane: (tx: Tx, claim: Claim) => Promise<{
        last: number;
        told: Map<number, Told>;
    }>;
    tell: (tx: Tx, claim: Claim, sequence: number, told: Told) => Promise<void>;
    reach: (tx: Tx, claim: Claim, last: number, done: number | undefined) => Promise<void>;
    /**
     * drop records received before, whose commands expired
     */
    purge: (before: Date, now: Date) => Promise<number>;
};
