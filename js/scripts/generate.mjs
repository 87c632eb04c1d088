// Writes src/generated/ (the version, the layout worker and the standalone page as strings) and the page script for Python.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "./bundle.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const generated = join(root, "src", "generated");
const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

function write(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  if (!existsSync(file) || readFileSync(file, "utf8") !== text) {
    writeFileSync(file, text); // unchanged files keep their time, so watchers stay quiet
  }
}

const constant = (key, value) => `export const ${key} = ${JSON.stringify(value)};\n`;

write(join(generated, "version.ts"), constant("MODULE", name) + constant("VERSION", version));
write(
  join(generated, "layout_worker_source.ts"),
  constant("LAYOUT_WORKER", await bundle(join(root, "src", "core", "layout_worker.ts")))
);
const page = await bundle(join(root, "src", "standalone.ts"));
write(join(generated, "standalone_source.ts"), constant("STANDALONE_JS", page));
write(join(root, "..", "modulekg_widgets", "static", "standalone.js"), page);
