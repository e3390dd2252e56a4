/** A listener for the conformance run, on SQLite. */
import { rmSync } from "node:fs";
import { createServer } from "node:http";

import { Listener, Refuse, jwksFile } from "waybill-listener";
import { nodeHandler } from "waybill-listener/adapters";
import { sqliteStore } from "waybill-listener/sqlite";
import { openSqlite } from "./support.js";

const { PORT, WAYBILL_TENANT, WAYBILL_DESTINATION, WAYBILL_JWKS, WAYBILL_COMMAND_TYPE } = process.env;
const file = process.argv[2];
rmSync(`${file}.lock`, { recursive: true, force: true }); // this SQLite's own lock outlives a kill; node:sqlite's does not
const database = openSqlite(file);
database.exec("CREATE TABLE IF NOT EXISTS effect (what TEXT)");

const listener = new Listener({
  tenant: WAYBILL_TENANT, destination: WAYBILL_DESTINATION, keys: jwksFile(WAYBILL_JWKS), store: sqliteStore(database), inOrder: true,
});
listener.on(WAYBILL_COMMAND_TYPE, (command, transaction) => {
  if (command.json().hold) throw new Refuse("POLICY_BLOCK", "legal_hold");
  transaction.prepare("INSERT INTO effect VALUES (?)").run(command.deliveryId);
  return { sourceVersion: "1", evidence: command.deliveryId, count: 1 };
});

const deliveries = nodeHandler(listener);
createServer((request, response) => {
  if (request.url !== "/effects") return deliveries(request, response);
  response.end(JSON.stringify(database.prepare("SELECT count(*) AS count FROM effect").get()));
}).listen(Number(PORT), "127.0.0.1");
