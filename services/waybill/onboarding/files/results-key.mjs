/** Make the key that signs your receipts and results; what is there stays. */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";

const here = (name) => new URL(name, import.meta.url);
if (existsSync(here("results-private.jwk"))) {
  console.log("results-private.jwk is there already and stays");
} else {
  const { privateKey } = generateKeyPairSync("ed25519");
  const { d, ...open } = privateKey.export({ format: "jwk" });
  const about = { ...open, kid: `results-${randomBytes(4).toString("hex")}`, use: "sig", alg: "EdDSA", nbf: Math.floor(Date.now() / 1000) };
  writeFileSync(here("results-private.jwk"), `${JSON.stringify({ ...about, d }, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  writeFileSync(here("results-jwks.json"), `${JSON.stringify({ keys: [about] }, null, 2)}\n`);
  console.log("made results-private.jwk, which stays with you, and results-jwks.json, which you send back");
}
