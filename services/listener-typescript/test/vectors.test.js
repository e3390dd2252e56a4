import assert from "node:assert/strict";
import { test } from "node:test";

import { Refuse, VerificationKeys, missingFrom, parseEnvelope, renderProblem, verify } from "waybill-listener";
import { vectors } from "./support.js";

for (const [at, vector] of vectors("signatures").entries()) {
  test(`signature ${at}: ${vector.name}`, () => {
    const windows = vector.ed25519_keys.map((key) => ({
      kty: "OKP", crv: "Ed25519", kid: key.kid,
      x: Buffer.from(key.public.slice(5), "base64").toString("base64url"),
      nbf: Date.parse(key.not_before) / 1000,
      ...(key.not_after ? { exp: Date.parse(key.not_after) / 1000 } : {}),
    }));
    const keys = VerificationKeys.fromJwks({ keys: windows }, vector.hmac_secrets);
    const headers = { id: vector.webhook_id, timestamp: String(vector.webhook_timestamp), signature: vector.webhook_signature };
    const when = { now: new Date(vector.webhook_timestamp * 1000) };

    assert.equal(verify(headers, Buffer.from(vector.body), keys, when).accepted, true);
    assert.deepEqual(verify(headers, Buffer.from(`${vector.body} `), keys, when), { accepted: false, reason: "signature_mismatch" });
    for (const [shift, reason] of [[301, "timestamp_too_old"], [-301, "timestamp_too_new"]]) {
      const now = new Date((vector.webhook_timestamp + shift) * 1000);
      assert.deepEqual(verify(headers, Buffer.from(vector.body), keys, { now }), { accepted: false, reason });
    }
  });
}

for (const vector of vectors("envelope_v1")) {
  test(`envelope: ${vector.name}`, () => {
    const read = parseEnvelope(Buffer.from(vector.body));
    const { command } = vector;

    assert.equal(read.deliveryId, vector.delivery_id);
    assert.equal(read.commandId, command.command_id);
    assert.equal(read.aggregate, command.aggregate);
    assert.equal(read.sequence, command.sequences[vector.destination]);
    assert.equal(read.required, !command.optional_destinations.includes(vector.destination));
    assert.equal(read.operationId, command.operation_id ?? vector.delivery_id);
    assert.equal(read.expiresAt.getTime(), Date.parse(command.expires_at));
    assert.equal(read.dataForm, command.data_form);
    assert.equal(read.data.toString("base64"), command.data_base64);
  });
}

for (const vector of vectors("gap_resolution_v1")) {
  test(`gap resolution: ${vector.name}`, () => {
    const { entries } = parseEnvelope(Buffer.from(vector.body));
    const expected = vector.gap_resolution.entries;
    assert.deepEqual(entries.map((entry) => [entry.sequence, entry.deliveryId, entry.resolution]),
      expected.map((entry) => [entry.sequence, entry.delivery_id, entry.resolution]));
  });
}

for (const { code, reason, detail, status, expected_sequence, body } of vectors("problems")) {
  test(`problem: ${code} ${reason}`, () => {
    const refusal = new Refuse(code, reason, { detail, status, expectedSequence: expected_sequence ?? undefined });
    assert.equal(renderProblem(refusal).toString(), body);
  });
}

for (const { name, body, missing } of vectors("receipts")) {
  test(`receipt: ${name}`, () => assert.deepEqual(missingFrom(JSON.parse(body)), missing));
}

const right = vectors("envelope_v1")[0].body;
for (const [name, body] of Object.entries({
  "a repeated member": right.replace('"required":true', '"required":true,"required":true'),
  "a member nobody knows": right.replace('"required":true', '"required":true,"more":1'),
  "another version": right.replace('"envelopeversion":1', '"envelopeversion":2'),
  "something behind the data": right.replace(/\}$/, ',"late":1}'),
  "a fraction": right.replace('"aggregatesequence":7', '"aggregatesequence":7.0'),
  "a null": right.replace('"required":true', '"required":null'),
  "no object": "[]",
  "nothing": "",
})) {
  test(`an envelope with ${name} is refused`, () => {
    assert.throws(() => parseEnvelope(Buffer.from(body)), { code: "VALIDATION", reason: "envelope" });
  });
}

test("two spellings of one signature do not pass", () => {
  const { hmac_secrets: secrets, webhook_id: id, webhook_timestamp: stamp, webhook_signature: right, body } = vectors("signatures")[0];
  const keys = VerificationKeys.fromText(...secrets);
  const signature = right.replace(/.=$/, (end) => `${String.fromCharCode(end.charCodeAt(0) + 1)}=`);
  const verdict = verify({ id, timestamp: String(stamp), signature }, Buffer.from(body), keys, { now: new Date(stamp * 1000) });
  assert.deepEqual(verdict, { accepted: false, reason: "malformed_header" });
});
