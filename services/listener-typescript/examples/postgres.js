/**
 * A listener for `waybill conformance`: node:http, PostgreSQL, and its own count of effects.
 *
 *   waybill conformance --run 'node examples/postgres.js' --effects /effects --level L3 --blocked '{"hold": true}'
 *
 * `DSN` names the PostgreSQL database of the business table; `pg` is the client.
 */
import { createServer } from "node:http";

import pg from "pg";
import { Listener, Refuse, jwksFile } from "waybill-listener";
import { nodeHandler } from "waybill-listener/adapters";
import { postgresStore } from "waybill-listener/postgres";

const { DSN, PORT, WAYBILL_TENANT, WAYBILL_DESTINATION, WAYBILL_JWKS, WAYBILL_COMMAND_TYPE } = process.env;
const pool = new pg.Pool({ connectionString: DSN, max: 10 });
await pool.query("CREATE TABLE IF NOT EXISTS effect (delivery text NOT NULL)");

const listener = new Listener({
  tenant: WAYBILL_TENANT,
  destination: WAYBILL_DESTINATION,
  keys: jwksFile(WAYBILL_JWKS),
  store: postgresStore(pool),
  inOrder: true,
});

listener.on(WAYBILL_COMMAND_TYPE, async (command, client) => {
  if (command.json().hold) throw new Refuse("POLICY_BLOCK", "legal_hold");
  await client.query("INSERT INTO effect (delivery) VALUES ($1)", [command.deliveryId]);
  return { sourceVersion: "effects-1", evidence: `effect/${command.deliveryId}`, count: 1 };
});

const deliveries = nodeHandler(listener);
createServer(async (request, response) => {
  if (request.url !== "/effects") return deliveries(request, response);
  const { rows } = await pool.query("SELECT count(*)::integer AS count FROM effect");
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(rows[0]));
}).listen(Number(PORT), "127.0.0.1");
