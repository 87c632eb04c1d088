// Writes src/generated/ (the version, the layout worker and the script of saved pages as strings) and that script for Python.
import { join } from "node:path";
import { bundle, bundlePage } from "./bundle.mjs";
import { name, packageFolder, source, version, write } from "./files.mjs";

const generated = join(source, "generated");
const constant = (key, value) => `export const ${key} = ${JSON.stringify(value)};\n`;

write(join(generated, "version.ts"), constant("MODULE", name) + constant("VERSION", version));
write(
  join(generated, "layout_worker_source.ts"),
  constant("LAYOUT_WORKER", await bundle(join(source, "core", "graph", "layout_worker.ts")))
);
const page = await bundlePage(source);
write(join(generated, "standalone_source.ts"), constant("STANDALONE_JS", page));
write(join(packageFolder, "static", "standalone.js"), page);
