/** A sender that signs, a listener on SQLite, and the golden vectors. */
import { createHmac, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { readFileSync } from "node:fs";

import sqlite from "node-sqlite3-wasm";
import { Listener, VerificationKeys } from "waybill-listener";
import { sqliteStore } from "waybill-listener/sqlite";

export const vectors = (name) =>
  JSON.parse(readFileSync(new URL(`../../../tests/vectors/${name}.json`, import.meta.url), "utf8")).cases;

const { privateKey, publicKey } = generateKeyPairSync("ed25519");
export const jwks = { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "k1" }] };
export const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;

/** The shape of node:sqlite over a SQLite that also runs where node:sqlite is not there yet. */
export function openSqlite(file = ":memory:") {
  const database = new sqlite.Database(file);
  return {
    exec: (sql) => database.exec(sql),
    prepare: (sql) => ({
      run: (...values) => database.run(sql, values),
      get: (...values) => database.get(sql, values) ?? undefined,
      all: (...values) => database.all(sql, values),
    }),
  };
}

export function envelope(changes = {}, data = '{"subject":"8f14e45f"}') {
  const id = changes.id ?? randomUUID();
  const members = {
    specversion: "1.0", id, source: "urn:test", type: "subject.erase", subject: `subject/${id}`,
    time: "2026-01-01T00:00:00.000Z", datacontenttype: "application/json", tenant: "acme", destination: "crm",
    commandid: randomUUID(), operationid: id, aggregatesequence: 1, required: true,
    expiresat: "2999-01-01T00:00:00.000Z", instructionversion: 1, configversion: 1, capability: "subject.erase",
    capabilityversion: 1, envelopeversion: 1, dataform: "clear", ...changes,
  };
  return { id, body: Buffer.from(`${JSON.stringify(members).slice(0, -1)},"data":${data}}`) };
}

export function notice(type, data, subject) {
  const id = randomUUID();
  const members = {
    specversion: "1.0", id, source: "urn:test", type, subject, time: "2026-01-01T00:00:00.000Z",
    datacontenttype: "application/json", tenant: "acme", destination: "crm", configversion: 1, envelopeversion: 1,
    dataform: "clear", data,
  };
  return { id, body: Buffer.from(JSON.stringify(members)) };
}

export function signed({ id, body }, { stamp = Math.floor(Date.now() / 1000), kind = "v1a" } = {}) {
  const content = Buffer.concat([Buffer.from(`${id}.${stamp}.`), body]);
  const made = kind === "v1a" ? sign(null, content, privateKey) : createHmac("sha256", Buffer.alloc(32, 7)).update(content).digest();
  return {
    "content-type": "application/cloudevents+json",
    "webhook-id": id,
    "webhook-timestamp": String(stamp),
    "webhook-signature": `${kind},${made.toString("base64")}`,
  };
}

export async function deliver(listener, message, headers = signed(message)) {
  const answer = await listener.answer({ method: "POST", header: (name) => headers[name], body: message.body });
  return { status: answer.status, repeat: answer.headers["waybill-repeat"] === "true", text: answer.body.toString(), json: JSON.parse(answer.body) };
}

/** A listener that notes each effect in the delivery's own transaction. */
export function site(options = {}) {
  const database = openSqlite();
  database.exec("CREATE TABLE effect (what TEXT)");
  const keys = VerificationKeys.fromJwks(jwks, [SECRET]);
  const listener = new Listener({ tenant: "acme", destination: "crm", keys, store: sqliteStore(database), ...options });
  listener.on("subject.erase", (command, transaction) => {
    transaction.prepare("INSERT INTO effect VALUES (?)").run(command.deliveryId);
    return { sourceVersion: "contacts-1", evidence: `erasure/${command.deliveryId}`, count: 1 };
  });
  const effects = () => database.prepare("SELECT count(*) AS count FROM effect").get().count;
  return { listener, effects, database };
}
