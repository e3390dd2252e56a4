/** Verify each sample with the sandbox's public keys, as of the second it was signed in. */
import { readFileSync, readdirSync } from "node:fs";

import { VerificationKeys, parseEnvelope, verify } from "./waybill-listener/src/index.js";

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const kit = read("kit.json");
const keys = VerificationKeys.fromJwks(read(`sandbox/${kit.tenant}/jwks.json`), []);

for (const name of readdirSync(new URL("samples/", import.meta.url)).sort()) {
  const { headers, body } = read(`samples/${name}`);
  const signed = { id: headers["webhook-id"], timestamp: headers["webhook-timestamp"], signature: headers["webhook-signature"] };
  const verdict = verify(signed, Buffer.from(body), keys, { now: new Date(Number(signed.timestamp) * 1000) });
  const message = verdict.accepted ? parseEnvelope(Buffer.from(body)) : undefined;
  const good = message?.kind === "command" && message.tenant === kit.tenant && message.destination === kit.destination;
  console.log(`${name}: ${good ? `good, ${message.type} for ${message.aggregate}` : `not good: ${verdict.reason ?? "not for you"}`}`);
  if (!good) process.exitCode = 1;
}
