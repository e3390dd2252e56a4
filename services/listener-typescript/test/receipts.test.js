import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, mkdtempSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { ReceiptSigner, VerificationKeys, renderReceipt, signReceipt, verify } from "waybill-listener";
import { deliver, envelope, notice, site, vectors } from "./support.js";

const CASES = vectors("signed_receipts");
const [{ ed25519_keys: [KEY] }] = CASES;
const NAMES = {
  delivery_id: "deliveryId", operation_id: "operationId", source_version: "sourceVersion",
  occurred_at: "occurredAt", received_at: "receivedAt", executed_at: "executedAt",
};

const receiptOf = (facts) => Object.fromEntries(Object.entries(facts).map(([name, value]) =>
  [NAMES[name] ?? name, name.endsWith("_at") ? new Date(value) : value]));

function keyFile(entries) {
  const path = join(mkdtempSync(join(tmpdir(), "waybill-keys-")), "signing.json");
  replace(path, entries);
  return path;
}

function replace(path, entries) {
  const keys = entries.map(({ kid, private: secret, not_before, not_after }) => ({ kid, algorithm: "ed25519", secret, not_before, not_after }));
  writeFileSync(`${path}.new`, JSON.stringify({ format: 1, keys }), { mode: 0o600 });
  renameSync(`${path}.new`, path);
}

/** Whether a receipt's signature is true under a key; as an auditor finds it. */
function isProven(text, key = KEY) {
  const at = text.lastIndexOf(',"signature":"');
  const { delivery_id: id, executed_at: executedAt } = JSON.parse(text);
  const timestamp = String(Math.floor(Date.parse(executedAt) / 1000));
  const headers = { id, timestamp, signature: text.slice(at + 14, -2) };
  return at > 0 && verify(headers, Buffer.from(`${text.slice(0, at)}}`), VerificationKeys.fromText(key.public), { now: new Date(executedAt) }).accepted;
}

for (const { name, receipt, ed25519_keys: keys, body, signed } of CASES) {
  test(`signed receipt: ${name}`, () => {
    const rendered = renderReceipt(receiptOf(receipt));

    assert.equal(rendered.toString(), body);
    assert.equal(signReceipt(rendered, ReceiptSigner.fromFile(keyFile(keys))).toString(), signed);
  });
}

test("a JSON Web Key signs the same, and a public one does not", () => {
  const raw = (text) => Buffer.from(text.slice(5), "base64").toString("base64url");
  const jwk = { kty: "OKP", crv: "Ed25519", d: raw(KEY.private), x: raw(KEY.public) };
  const [{ receipt, signed: expected }] = CASES;

  assert.equal(signReceipt(renderReceipt(receiptOf(receipt)), ReceiptSigner.fromJwk(jwk)).toString(), expected);
  assert.throws(() => ReceiptSigner.fromJwk({ ...jwk, d: undefined }), /private Ed25519/);
});

test("each receipt is signed, and a repeat is the same bytes", async () => {
  const { listener } = site({ signer: ReceiptSigner.fromText(KEY.private) });
  const message = envelope();
  const first = await deliver(listener, message);
  const again = await deliver(listener, message);

  assert.ok(isProven(first.text));
  assert.deepEqual([again.repeat, again.text], [true, first.text]);
});

test("a repeat of an operation under another delivery is signed anew", async () => {
  const { listener } = site({ signer: ReceiptSigner.fromText(KEY.private) });
  const one = envelope({ operationid: "op-1", subject: "subject/a" });
  const two = envelope({ operationid: "op-1", subject: "subject/a", aggregatesequence: 2 });
  await deliver(listener, one);
  const reported = await deliver(listener, two);

  assert.equal(reported.json.delivery_id, two.id);
  assert.ok(isProven(reported.text));
});

test("the answer to a status query holds the facts, not the signature", async () => {
  const { listener } = site({ signer: ReceiptSigner.fromText(KEY.private) });
  const message = envelope();
  const { json } = await deliver(listener, message);
  const asked = { delivery_id: message.id, operation_id: message.id, body_sha256: createHash("sha256").update(message.body).digest("hex") };
  const answer = await deliver(listener, notice("waybill.status-query", asked, `subject/${message.id}`));
  const { signature: _signature, ...facts } = json;

  assert.deepEqual(answer.json.receipt, facts);
});

test("a receipt that cannot be signed is not given, and nothing stays done", async () => {
  const path = keyFile([KEY]);
  const said = [];
  const { listener, effects } = site({ signer: ReceiptSigner.fromFile(path), log: (event, about) => said.push([event, about.error]) });
  replace(path, [{ ...KEY, not_after: KEY.not_before }]);
  listener.signer.lookedAt = 0; // as seconds later
  const refused = await deliver(listener, envelope());

  assert.deepEqual([refused.status, refused.json.reason, effects()], [503, "handler_unavailable", 0]);
  assert.deepEqual(said[0], ["receipt.unsigned", "RangeError"]);
});

test("a rotated file is followed, and a damaged one leaves the keys as they are", () => {
  const [, , , , , { ed25519_keys: [old, fresh] }] = CASES;
  const path = keyFile([old]);
  const signer = ReceiptSigner.fromFile(path);
  const signatures = (second) => signer.sign("id", second, Buffer.alloc(0)).split(" ").length;
  const at = Date.parse("2026-11-30T00:00:00Z") / 1000;

  assert.equal(signatures(at), 1);
  replace(path, [old, fresh]);
  assert.equal(signatures(at + 4), 1);
  assert.equal(signatures(at + 5), 2);
  writeFileSync(path, "{");
  assert.equal(signatures(at + 10), 2);
});

test("a listener that could sign nothing does not start", () => {
  const signer = ReceiptSigner.fromFile(keyFile([{ ...KEY, not_after: KEY.not_before }]));

  assert.throws(() => site({ signer }), /no key to sign with/);
});

test("what is no key is refused, and not shown", () => {
  const open = keyFile([KEY]);
  chmodSync(open, 0o644);
  const damaged = keyFile([KEY]);
  writeFileSync(damaged, KEY.private);

  assert.throws(() => ReceiptSigner.fromFile(open), /chmod 600/);
  for (const attempt of [() => ReceiptSigner.fromText(KEY.private.slice(0, -4)), () => ReceiptSigner.fromFile(damaged)]) {
    assert.throws(attempt, (error) => !error.message.includes(KEY.private.slice(5, 20)));
  }
});
