/** Write types/ anew from the JSDoc of src/, or with --check say what is out of date. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const types = join(root, "types");
const check = process.argv.includes("--check");
const target = check ? mkdtempSync(join(tmpdir(), "waybill-types-")) : types;
if (!check) rmSync(types, { recursive: true, force: true });
execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", root, "--outDir", target], { stdio: "inherit" });
if (check) {
  const names = new Set([...readdirSync(target), ...readdirSync(types)]);
  const read = (folder, name) => (readdirSync(folder).includes(name) ? readFileSync(join(folder, name), "utf8") : "");
  const stale = [...names].filter((name) => read(target, name) !== read(types, name));
  rmSync(target, { recursive: true });
  if (stale.length > 0) {
    console.error(`out of date: ${stale.join(", ")}: run \`npm run types\``);
    process.exit(1);
  }
}
