/**
 * A listener to start from: node:http, and a journal in a file. The variables are those that `waybill conformance`
 * gives a program it starts; in production WAYBILL_JWKS is the file or the https URL of the fabric's public keys.
 */
import { createServer } from "node:http";
import { readFileSync } from "node:fs";

import { nodeHandler } from "../waybill-listener/src/adapters.js";
import { Listener, jwksFile, jwksUrl } from "../waybill-listener/src/index.js";
import { journalStore } from "./journal.mjs";

const kit = JSON.parse(readFileSync(new URL("../kit.json", import.meta.url), "utf8"));
const { PORT = "8000", WAYBILL_JWKS, WAYBILL_SECRET, JOURNAL = "journal.jsonl" } = process.env;
if (!WAYBILL_JWKS) throw new Error("set WAYBILL_JWKS to the file or the https URL of the public keys");

const secrets = WAYBILL_SECRET ? [WAYBILL_SECRET] : [];
const store = journalStore(JOURNAL);
const listener = new Listener({
  tenant: kit.tenant,
  destination: kit.destination,
  keys: /^https?:/.test(WAYBILL_JWKS) ? jwksUrl(WAYBILL_JWKS, { secrets }) : jwksFile(WAYBILL_JWKS, { secrets }),
  store,
});

for (const type of kit.command_types) {
  listener.on(type, (command, journal) => {
    // Yours: what does the command mean here? Write it through the journal, and say what proves it.
    journal.write({ type, aggregate: command.aggregate });
    return { sourceVersion: "1", evidence: `journal:${command.deliveryId}`, count: 1 };
  });
}

const deliveries = nodeHandler(listener);
createServer((request, response) => {
  if (request.url !== "/effects") return deliveries(request, response);
  // How much was applied so far; for the checks only, leave it out in production.
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ count: store.written().length }));
}).listen(Number(PORT), "127.0.0.1");
