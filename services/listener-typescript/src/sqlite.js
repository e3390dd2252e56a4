/**
 * Delivery records in the destination's own SQLite file, over a connection the caller brings: `DatabaseSync` of
 * node:sqlite, or anything of its shape. One connection has one transaction, so deliveries run one after the other;
 * other processes wait for the file. Let the caller set `PRAGMA busy_timeout`; `synchronous` must not be OFF.
 */

/**
 * @typedef {{run: (...values: any[]) => unknown, get: (...values: any[]) => any, all: (...values: any[]) => any[]}} SqliteStatement
 * @typedef {{exec: (sql: string) => unknown, prepare: (sql: string) => SqliteStatement}} SqliteDatabase
 * @typedef {import("./store.js").Claim} Claim
 */

const CREATE = `
  CREATE TABLE IF NOT EXISTS waybill_delivery (
    tenant TEXT NOT NULL, destination TEXT NOT NULL, delivery_id TEXT NOT NULL, operation_id TEXT NOT NULL,
    aggregate TEXT NOT NULL, body_digest TEXT NOT NULL, operation_digest TEXT NOT NULL,
    received_at INTEGER NOT NULL, expires_at INTEGER, receipt TEXT,
    PRIMARY KEY (tenant, destination, delivery_id), UNIQUE (tenant, destination, operation_id));
  CREATE TABLE IF NOT EXISTS waybill_lane (
    tenant TEXT NOT NULL, destination TEXT NOT NULL, aggregate TEXT NOT NULL, last_sequence INTEGER NOT NULL,
    PRIMARY KEY (tenant, destination, aggregate));
  CREATE TABLE IF NOT EXISTS waybill_gap (
    tenant TEXT NOT NULL, destination TEXT NOT NULL, aggregate TEXT NOT NULL, sequence INTEGER NOT NULL,
    delivery_id TEXT NOT NULL, resolution TEXT NOT NULL, PRIMARY KEY (tenant, destination, aggregate, sequence));
`;
const CLAIM = "INSERT INTO waybill_delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)";
const FIND = `
  SELECT delivery_id, body_digest, operation_digest, receipt FROM waybill_delivery
   WHERE tenant = ? AND destination = ? AND (delivery_id = ? OR operation_id = ?)
   ORDER BY delivery_id = ? DESC LIMIT 1`;
const COMPLETE = "UPDATE waybill_delivery SET receipt = ? WHERE tenant = ? AND destination = ? AND delivery_id = ?";
const LANE = "SELECT last_sequence FROM waybill_lane WHERE tenant = ? AND destination = ? AND aggregate = ?";
const TOLD = "SELECT sequence, delivery_id, resolution FROM waybill_gap WHERE tenant = ? AND destination = ? AND aggregate = ?";
// What was told final stays final.
const TELL = `
  INSERT INTO waybill_gap VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT DO UPDATE SET resolution = excluded.resolution
   WHERE waybill_gap.resolution = 'deferred' AND waybill_gap.delivery_id = excluded.delivery_id`;
const REACH = "INSERT INTO waybill_lane VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET last_sequence = excluded.last_sequence";
// Passed for good: never coming, or executed just now.
const FORGET = `
  DELETE FROM waybill_gap WHERE tenant = ? AND destination = ? AND aggregate = ?
     AND sequence <= ? AND (resolution = 'final' OR sequence = ?)`;
const PURGE = "DELETE FROM waybill_delivery WHERE received_at < ? AND (expires_at IS NULL OR expires_at < ?) RETURNING 1";

/** @param {Claim} claim */
const laneOf = (claim) => [claim.tenant, claim.destination, claim.aggregate];

/**
 * @template {SqliteDatabase} Db
 * @param {Db} database
 * @returns {import("./store.js").Store<Db>}
 */
export function sqliteStore(database) {
  /** @type {Promise<unknown>} */
  let last = Promise.resolve();
  /** @type {string | undefined} */
  let running;

  /** One after the other. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  function alone(work) {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  }

  /** @template T @param {(database: Db) => Promise<T>} work @returns {Promise<T>} */
  function transaction(work) {
    return alone(async () => {
      database.exec("BEGIN IMMEDIATE");
      try {
        const result = await work(database);
        database.exec("COMMIT");
        return result;
      } catch (error) {
        database.exec("ROLLBACK");
        throw error;
      } finally {
        running = undefined;
      }
    });
  }

  /** @param {Claim} claim */
  function find(claim) {
    const { tenant, destination, deliveryId, operationId } = claim;
    const row = database.prepare(FIND).get(tenant, destination, deliveryId, operationId, deliveryId);
    if (!row) return undefined;
    return {
      deliveryId: row.delivery_id,
      bodyDigest: row.body_digest,
      operationDigest: row.operation_digest,
      receipt: row.receipt,
    };
  }

  return {
    open: async () => void database.exec(CREATE),
    transaction,
    async claim(_, claim) {
      const stored = find(claim);
      if (stored !== undefined) return stored;
      running = claim.deliveryId;
      const { tenant, destination, deliveryId, operationId, aggregate, bodyDigest, operationDigest } = claim;
      const times = [claim.receivedAt.getTime(), claim.expiresAt?.getTime() ?? null];
      database.prepare(CLAIM).run(
        tenant, destination, deliveryId, operationId, aggregate, bodyDigest, operationDigest, ...times,
      );
      return undefined;
    },
    async complete(_, claim, receipt) {
      database.prepare(COMPLETE).run(receipt, claim.tenant, claim.destination, claim.deliveryId);
    },
    async look(claim) {
      if (running === claim.deliveryId) return "in_progress";
      return alone(async () => {
        try {
          database.exec("BEGIN IMMEDIATE"); // whoever executes it in another process holds the file
        } catch {
          return "in_progress";
        }
        try {
          return find(claim);
        } finally {
          database.exec("ROLLBACK");
        }
      });
    },
    async lane(_, claim) {
      const told = new Map();
      for (const row of database.prepare(TOLD).all(...laneOf(claim))) {
        told.set(row.sequence, { deliveryId: row.delivery_id, resolution: row.resolution });
      }
      return { last: database.prepare(LANE).get(...laneOf(claim))?.last_sequence ?? 0, told };
    },
    async tell(_, claim, sequence, told) {
      database.prepare(TELL).run(...laneOf(claim), sequence, told.deliveryId, told.resolution);
    },
    async reach(_, claim, reached, done) {
      database.prepare(REACH).run(...laneOf(claim), reached);
      database.prepare(FORGET).run(...laneOf(claim), reached, done ?? null);
    },
    async purge(before, now) {
      return transaction(async () => database.prepare(PURGE).all(before.getTime(), now.getTime()).length);
    },
  };
}
