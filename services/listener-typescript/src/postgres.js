/**
 * Delivery records in the destination's own PostgreSQL, over a client the caller brings: a pool with the shape of
 * node-postgres. Handlers get the very client whose transaction also holds the record.
 */

/**
 * @typedef {{query: (text: string, values?: any[]) => Promise<{rows: any[], rowCount: number | null}>, release: (destroy?: any) => void}} PgClient
 * @typedef {{connect: () => Promise<PgClient>}} PgPool
 * @typedef {import("./store.js").Claim} Claim
 */

/** How long a look waits for a delivery that may be under way. */
const LOOK_MS = 200;
const LOCK_NOT_AVAILABLE = "55P03";

/** @param {Claim} claim */
const key = (claim) => [claim.tenant, claim.destination, claim.deliveryId];
/** @param {Claim} claim */
const laneOf = (claim) => [claim.tenant, claim.destination, claim.aggregate];

/**
 * @param {PgPool} pool
 * @param {{schema?: string, lockTimeoutMs?: number}} [options] the schema of the records; how long a duplicate waits
 * @returns {import("./store.js").Store<PgClient>}
 */
export function postgresStore(pool, { schema = "waybill_node", lockTimeoutMs = 10_000 } = {}) {
  if (!/^[a-z_][a-z0-9_]{0,62}$/.test(schema)) throw new TypeError("schema: lower case letters, digits and _");
  const sql = statements(schema);
  /** @type {Promise<void> | undefined} */
  let opening;

  async function migrate() {
    const client = await pool.connect();
    try {
      await client.query(sql.create);
      client.release();
    } catch (error) {
      client.release(error);
      opening = undefined;
      throw error;
    }
  }

  /** @template T @param {(client: PgClient) => Promise<T>} work @returns {Promise<T>} */
  async function transaction(work) {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      const result = await work(client);
      await client.query("COMMIT");
      client.release();
      return result;
    } catch (error) {
      await client.query("ROLLBACK").then(() => client.release(), (broken) => client.release(broken));
      throw error;
    }
  }

  /** @param {PgClient} client @param {Claim} claim @param {number} waitMs */
  async function insert(client, claim, waitMs) {
    await client.query("SELECT set_config('lock_timeout', $1, true)", [String(waitMs)]);
    const { operationId, aggregate, bodyDigest, operationDigest, receivedAt, expiresAt = null } = claim;
    const values = [...key(claim), operationId, aggregate, bodyDigest, operationDigest, receivedAt, expiresAt];
    return (await client.query(sql.claim, values)).rowCount === 1;
  }

  /** @param {PgClient} client @param {Claim} claim */
  async function find(client, claim) {
    const row = (await client.query(sql.find, [...key(claim), claim.operationId])).rows[0];
    if (row === undefined) return undefined;
    return { deliveryId: row.delivery_id, bodyDigest: row.body, operationDigest: row.operation, receipt: row.receipt };
  }

  return {
    open: () => (opening ??= migrate()),
    transaction,
    async claim(client, claim) {
      if (await insert(client, claim, lockTimeoutMs)) return undefined;
      const stored = await find(client, claim);
      if (stored === undefined) throw new Error("the record of this delivery went away meanwhile");
      return stored;
    },
    async complete(client, claim, receipt) {
      await client.query(sql.complete, [...key(claim), receipt]);
    },
    async look(claim) {
      const client = await pool.connect();
      try {
        await client.query("BEGIN");
        return (await insert(client, claim, LOOK_MS)) ? undefined : await find(client, claim);
      } catch (error) {
        if (/** @type {any} */ (error)?.code === LOCK_NOT_AVAILABLE) return "in_progress";
        throw error;
      } finally {
        await client.query("ROLLBACK").then(() => client.release(), (broken) => client.release(broken));
      }
    },
    async lane(client, claim) {
      const last = (await client.query(sql.lane, laneOf(claim))).rows[0].last_sequence;
      const { rows } = await client.query(sql.told, laneOf(claim));
      const told = new Map(rows.map((row) => [row.sequence, { deliveryId: row.delivery_id, resolution: row.resolution }]));
      return { last, told };
    },
    async tell(client, claim, sequence, told) {
      await client.query(sql.tell, [...laneOf(claim), sequence, told.deliveryId, told.resolution]);
    },
    async reach(client, claim, last, done) {
      await client.query(sql.reach, [...laneOf(claim), last]);
      await client.query(sql.forget, [...laneOf(claim), last, done ?? null]);
    },
    async purge(before, now) {
      return transaction(async (client) => (await client.query(sql.purge, [before, now])).rowCount ?? 0);
    },
  };
}

/** @param {string} schema already checked to be an identifier */
function statements(schema) {
  const lane = "tenant = $1 AND destination = $2 AND aggregate = $3";
  return {
    // One at a time, since two CREATE … IF NOT EXISTS at one moment may both try.
    create: `
      BEGIN;
      SELECT pg_advisory_xact_lock(hashtext('${schema}'));
      CREATE SCHEMA IF NOT EXISTS ${schema};
      CREATE TABLE IF NOT EXISTS ${schema}.delivery (
        tenant text NOT NULL, destination text NOT NULL, delivery_id uuid NOT NULL, operation_id text NOT NULL,
        aggregate text NOT NULL, body_digest text NOT NULL, operation_digest text NOT NULL,
        received_at timestamptz NOT NULL, expires_at timestamptz, receipt text,
        PRIMARY KEY (tenant, destination, delivery_id), UNIQUE (tenant, destination, operation_id));
      CREATE INDEX IF NOT EXISTS delivery_received_at ON ${schema}.delivery (received_at);
      CREATE TABLE IF NOT EXISTS ${schema}.lane (
        tenant text NOT NULL, destination text NOT NULL, aggregate text NOT NULL,
        last_sequence integer NOT NULL, PRIMARY KEY (tenant, destination, aggregate));
      CREATE TABLE IF NOT EXISTS ${schema}.gap (
        tenant text NOT NULL, destination text NOT NULL, aggregate text NOT NULL, sequence integer NOT NULL,
        delivery_id uuid NOT NULL, resolution text NOT NULL,
        PRIMARY KEY (tenant, destination, aggregate, sequence));
      COMMIT`,
    claim: `
      INSERT INTO ${schema}.delivery (tenant, destination, delivery_id, operation_id, aggregate, body_digest,
                                      operation_digest, received_at, expires_at)
      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING`,
    // The row of the delivery itself before one of the same operation.
    find: `
      SELECT delivery_id, body_digest AS body, operation_digest AS operation, receipt FROM ${schema}.delivery
       WHERE tenant = $1 AND destination = $2 AND (delivery_id = $3 OR operation_id = $4)
       ORDER BY delivery_id = $3 DESC LIMIT 1`,
    complete: `
      UPDATE ${schema}.delivery SET receipt = $4 WHERE tenant = $1 AND destination = $2 AND delivery_id = $3`,
    lane: `
      INSERT INTO ${schema}.lane AS l VALUES ($1, $2, $3, 0)
      ON CONFLICT (tenant, destination, aggregate) DO UPDATE SET last_sequence = l.last_sequence
      RETURNING last_sequence`,
    told: `SELECT sequence, delivery_id, resolution FROM ${schema}.gap WHERE ${lane}`,
    // What was told final stays final.
    tell: `
      INSERT INTO ${schema}.gap AS g VALUES ($1, $2, $3, $4, $5, $6)
      ON CONFLICT (tenant, destination, aggregate, sequence) DO UPDATE SET resolution = EXCLUDED.resolution
       WHERE g.resolution = 'deferred' AND g.delivery_id = EXCLUDED.delivery_id`,
    reach: `UPDATE ${schema}.lane SET last_sequence = $4 WHERE ${lane}`,
    // Passed for good: never coming, or executed just now.
    forget: `
      DELETE FROM ${schema}.gap WHERE ${lane} AND sequence <= $4 AND (resolution = 'final' OR sequence = $5::integer)`,
    purge: `DELETE FROM ${schema}.delivery WHERE received_at < $1 AND (expires_at IS NULL OR expires_at < $2)`,
  };
}
