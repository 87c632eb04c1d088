// Writes src/generated/ (the version, the colors, tables of file formats, the frame of saved pages, the layout worker and
// the script of saved pages as strings), and for Python that script and the code of mk.marimo.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bundleAnywidget, bundlePage, bundleWorker } from "./bundle.mjs";
import { name, packageFolder, source, version, write } from "./files.mjs";

const generated = join(source, "generated");
const constant = (key, value) => `export const ${key} = ${JSON.stringify(value)};\n`;

write(join(generated, "version.ts"), constant("MODULE", name) + constant("VERSION", version));
const palette = readFileSync(join(packageFolder, "engine", "palette.json"), "utf8").trim();
write(
  join(generated, "palette.ts"),
  `// From modulekg_widgets/engine/palette.json.\nexport const PALETTE = ${palette} as const;\n`
);
const tables = readFileSync(join(packageFolder, "engine", "file_formats", "format_tables.json"), "utf8").trim();
write(
  join(generated, "format_tables.ts"),
  `// From modulekg_widgets/engine/file_formats/format_tables.json.\nexport const FORMAT_TABLES = ${tables} as const;\n`
);
const template = readFileSync(join(packageFolder, "widgets", "pages", "page.html"), "utf8");
write(join(generated, "page_template.ts"), constant("PAGE_TEMPLATE", template));
write(join(generated, "layout_worker_source.ts"), constant("LAYOUT_WORKER", await bundleWorker(source)));
const page = await bundlePage(source);
write(join(generated, "standalone_source.ts"), constant("STANDALONE_JS", page));
write(join(packageFolder, "static", "standalone.js"), page);
write(join(packageFolder, "static", "marimo.js"), await bundleAnywidget(source));
