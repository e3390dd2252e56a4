import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import express from "express";
import fastify from "fastify";
import { jwksFile, jwksUrl } from "waybill-listener";
import { expressHandler, fastifyPlugin, fetchHandler, nodeHandler } from "waybill-listener/adapters";
import { deliver, envelope, jwks, signed, site } from "./support.js";

async function listening(server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${server.address().port}/`;
}

const HOSTS = {
  async "node:http"(listener) {
    const server = createServer(nodeHandler(listener));
    const url = await listening(server);
    return { send: (init) => fetch(url, init), close: () => server.close() };
  },
  async express(listener) {
    const app = express().post("/", expressHandler(listener));
    const server = createServer(app);
    const url = await listening(server);
    return { send: (init) => fetch(url, init), close: () => server.close() };
  },
  async "express behind express.raw"(listener) {
    const server = createServer(express().use(express.raw({ type: "*/*" })).post("/", expressHandler(listener)));
    const url = await listening(server);
    return { send: (init) => fetch(url, init), close: () => server.close() };
  },
  async fastify(listener) {
    const app = fastify().register(fastifyPlugin(listener), { path: "/" });
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    return { send: (init) => fetch(url, init), close: () => app.close() };
  },
  async fetch(listener) {
    const handler = fetchHandler(listener);
    return { send: (init) => handler(new Request("http://crm.example/", init)), close: () => {} };
  },
};

for (const [name, host] of Object.entries(HOSTS)) {
  test(`${name} hands over the raw bytes and gives back the answer`, async () => {
    const { listener, effects } = site({ maxBodyBytes: 10_000 });
    const { send, close } = await host(listener);
    try {
      const message = envelope({}, ' { "amount" : 1.10, "text": "\u2028 \u{1f600} <>&" }');
      const post = (body = message.body, headers = signed(message)) => send({ method: "POST", headers, body });
      const [first, again] = [await post(), await post()];
      assert.deepEqual([first.status, again.headers.get("waybill-repeat")], [200, "true"]);
      assert.equal(await again.text(), await first.text());
      assert.equal((await post(Buffer.alloc(10_001, "x"))).status, 413);
      const forged = await post(Buffer.from("{"));
      assert.deepEqual([forged.status, forged.headers.get("content-type")], [401, "application/problem+json"]);
      assert.equal(effects(), 1);
    } finally {
      await close();
    }
  });
}

test("behind a body parser the listener refuses loudly", async () => {
  const { listener, effects } = site();
  const app = express().use(express.json({ type: "*/*" })).post("/", expressHandler(listener));
  const server = createServer(app);
  const message = envelope();
  const answer = await fetch(await listening(server), { method: "POST", headers: signed(message), body: message.body });

  assert.deepEqual([answer.status, (await answer.json()).reason, effects()], [500, "body_parsed", 0]);
  server.close();
});

test("a key file that was replaced is followed, and a damaged one leaves the last good keys", async () => {
  const file = join(mkdtempSync(join(tmpdir(), "waybill-")), "jwks.json");
  const replace = (text) => {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  replace('{"keys":[]}');
  const { listener } = site({ keys: jwksFile(file) });
  assert.equal((await deliver(listener, envelope())).json.reason, "no_usable_key");
  replace(JSON.stringify(jwks));
  assert.equal((await deliver(listener, envelope())).status, 200);
  replace("damaged");
  assert.equal((await deliver(listener, envelope())).status, 200);
});

test("a key URL is asked again for an unknown key, not for every forgery", async () => {
  let [served, asked, at] = [{ keys: [] }, 0, 0];
  const get = async () => {
    asked += 1;
    return new Response(JSON.stringify(served));
  };
  const { listener } = site({ keys: jwksUrl("https://keys.example/", { fetch: get, now: () => at }) });
  for (let time = 0; time < 5; time += 1) await deliver(listener, envelope());
  assert.equal(asked, 1);
  served = jwks;
  at = 10_000;
  assert.equal((await deliver(listener, envelope())).status, 200);
  assert.equal(asked, 2);
});
