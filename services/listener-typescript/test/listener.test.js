import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { Refuse } from "waybill-listener";
import { deliver, envelope, notice, signed, site } from "./support.js";

test("a repeat gets the stored receipt and has no effect", async () => {
  const { listener, effects } = site();
  const message = envelope();
  const first = await deliver(listener, message);
  const again = await deliver(listener, message, signed(message, { kind: "v1" }));

  assert.deepEqual([first.status, first.repeat, again.status, again.repeat], [200, false, 200, true]);
  assert.equal(again.text, first.text);
  assert.equal(effects(), 1);
});

test("fifty duplicates at one moment are one effect", async () => {
  const { listener, effects } = site();
  const message = envelope();
  const answers = await Promise.all(Array.from({ length: 50 }, () => deliver(listener, message)));

  assert.equal(new Set(answers.map((answer) => answer.text)).size, 1);
  assert.equal(effects(), 1);
});

test("another body under a known id is a conflict", async () => {
  const { listener, effects } = site();
  const message = envelope();
  await deliver(listener, message);
  const other = { id: message.id, body: Buffer.from(message.body.toString().replace("8f14e45f", "00000000")) };
  const answer = await deliver(listener, other);

  assert.deepEqual([answer.status, answer.json.reason, effects()], [409, "body_differs", 1]);
});

test("one operation is executed once, under every delivery of it", async () => {
  const { listener, effects } = site();
  const one = envelope({ operationid: "op-1", subject: "subject/a" });
  const two = envelope({ operationid: "op-1", subject: "subject/a", aggregatesequence: 2 });
  const else_ = envelope({ operationid: "op-1", subject: "subject/a", aggregatesequence: 3 }, '{"other":1}');
  await deliver(listener, one);
  const reported = await deliver(listener, two);

  assert.deepEqual([reported.repeat, reported.json.delivery_id], [true, two.id]);
  assert.equal((await deliver(listener, else_)).json.reason, "operation_differs");
  assert.equal(effects(), 1);
});

test("the checks are answered in their order", async () => {
  const { listener, effects } = site();
  const cases = [
    [{}, { "webhook-signature": undefined }, 401, "missing_header"],
    [{}, { "webhook-timestamp": "1" }, 401, "timestamp_too_old"],
    [{}, { "webhook-id": "other" }, 401, "signature_mismatch"],
    [{}, { "content-type": "application/json" }, 415, "content_type"],
    [{ tenant: "other" }, {}, 403, "tenant"],
    [{ destination: "other" }, {}, 403, "destination"],
    [{ expiresat: "2026-01-01T00:00:00.000Z" }, {}, 422, "expired"],
    [{ type: "nobody" }, {}, 422, "command_type"],
  ];
  for (const [changes, headers, status, reason] of cases) {
    const message = envelope(changes);
    const answer = await deliver(listener, message, { ...signed(message), ...headers });
    assert.deepEqual([answer.status, answer.json.reason], [status, reason]);
  }
  assert.equal(effects(), 0);
});

test("a handler that refuses or breaks leaves nothing behind", async () => {
  const { listener, effects, database } = site();
  let how = () => { throw new Refuse("RATE_LIMIT", "busy", { retryAfterSeconds: 7 }); };
  listener.on("moody", (command, transaction) => {
    transaction.prepare("INSERT INTO effect VALUES (?)").run(command.deliveryId);
    return how();
  });
  const message = envelope({ type: "moody" });
  assert.deepEqual(await deliver(listener, message).then(({ status, json }) => [status, json.reason]), [429, "busy"]);
  how = () => { throw new Error("broken"); };
  assert.equal((await deliver(listener, message)).json.reason, "handler_failed");
  how = () => ({ sourceVersion: "1", evidence: "e" }); // neither count nor digest
  assert.equal((await deliver(listener, message)).json.reason, "handler_failed");
  how = () => ({ sourceVersion: "1", evidence: "e", count: 3, status: "absent" }); // what was not there was not counted
  assert.equal((await deliver(listener, message)).json.reason, "handler_failed");
  assert.equal(effects(), 0);
  how = () => ({ sourceVersion: "1", evidence: "e", count: 0 });
  assert.equal((await deliver(listener, message)).status, 200);
  assert.equal(database.prepare("SELECT count(*) AS count FROM waybill_delivery").get().count, 1);
});

test("what was executed in time is reported after its expiry", async () => {
  let now = new Date("2026-01-01T00:00:00Z");
  const { listener } = site({ now: () => now });
  const message = envelope({ expiresat: "2026-01-01T00:01:00.000Z" });
  const at = () => signed(message, { stamp: now.getTime() / 1000 });
  await deliver(listener, message, at());
  now = new Date("2026-01-01T01:00:00Z");

  assert.deepEqual(await deliver(listener, message, at()).then(({ status, repeat }) => [status, repeat]), [200, true]);
});

test("a copy that comes too late while the first is being executed is asked back, not refused", async () => {
  let now = new Date("2026-01-01T00:00:00Z");
  const { listener } = site({ now: () => now });
  let [began, release] = [() => {}, () => {}];
  const started = new Promise((resolve) => (began = resolve));
  const held = new Promise((resolve) => (release = resolve));
  listener.on("slow", async () => {
    began();
    await held;
    return { sourceVersion: "1", evidence: "e", count: 1 };
  });
  const message = envelope({ type: "slow", expiresat: "2026-01-01T00:01:00.000Z" });
  const at = () => signed(message, { stamp: now.getTime() / 1000 });
  const first = deliver(listener, message, at());
  await started;
  now = new Date("2026-01-01T00:02:00Z");
  assert.equal((await deliver(listener, message, at())).status, 503);
  release();
  assert.equal((await first).status, 200);
  assert.equal((await deliver(listener, message, at())).repeat, true);
});

test("numbers come in their turn, and gap resolutions are passed over", async () => {
  const { listener, effects } = site({ inOrder: true });
  const lane = (number) => envelope({ subject: "subject/a", aggregatesequence: number });
  const [one, two, three, four, five] = [1, 2, 3, 4, 5].map(lane);
  await deliver(listener, one);
  const early = await deliver(listener, three);
  assert.deepEqual([early.status, early.json.reason, early.json.expected_sequence], [425, "gap", 2]);

  const resolve = (entries) => deliver(listener, notice("waybill.gap-resolution", { resolved: entries }, "subject/a"));
  const resolved = await resolve([{ sequence: 2, delivery_id: two.id, resolution: "final" }, { sequence: 4, delivery_id: four.id, resolution: "deferred" }]);
  assert.equal(resolved.json.count, 2);
  for (const message of [three, five, four]) assert.equal((await deliver(listener, message)).status, 200);
  assert.equal((await deliver(listener, two)).json.reason, "older_sequence");
  assert.equal((await deliver(listener, lane(4))).json.reason, "older_sequence");
  assert.equal(effects(), 4);
});

test("a status query is answered from the records, and records nothing", async () => {
  const { listener } = site();
  let release = () => {};
  let began = () => {};
  const held = new Promise((resolve) => (release = resolve));
  const started = new Promise((resolve) => (began = resolve));
  listener.on("slow", async () => {
    began();
    await held;
    return { sourceVersion: "1", evidence: "e", count: 1 };
  });
  const message = envelope({ type: "slow" });
  const ask = ({ id, body }) =>
    deliver(listener, notice("waybill.status-query", { delivery_id: id, operation_id: id, body_sha256: createHash("sha256").update(body).digest("hex") }, "subject/a"));

  assert.equal((await ask(message)).json.status, "not_done");
  const running = deliver(listener, message);
  await started;
  assert.equal((await ask(message)).json.status, "in_progress");
  release();
  const receipt = (await running).json;
  const said = (await ask(message)).json;
  assert.deepEqual([said.status, said.receipt], ["done", receipt]);
  assert.equal((await ask({ ...message, body: Buffer.from("other") })).json.reason, "body_differs");
});

test("records behind the retention go, once their command has expired", async () => {
  let now = new Date("2026-01-01T00:00:00Z");
  const { listener } = site({ now: () => now });
  for (const expiresat of ["2026-01-02T00:00:00.000Z", "2027-01-01T00:00:00.000Z"]) {
    const message = envelope({ expiresat });
    await deliver(listener, message, signed(message, { stamp: now.getTime() / 1000 }));
  }
  now = new Date("2026-03-01T00:00:00Z");

  assert.equal(await listener.purge(30), 1);
});
