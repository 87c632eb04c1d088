// The golden model files of tests/files, as sources for readers.

import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { MemorySource } from "./sources";

export const GOLDEN = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/files/golden");

const bytesOf = (path: string) => new Uint8Array(readFileSync(path));

/** A file with all that lies in its folder. */
export function sourceOf(path: string): MemorySource {
  const files = readdirSync(dirname(path), { withFileTypes: true }).filter(entry => entry.isFile());
  const folder = new Map(files.map(({ name }) => [name, bytesOf(join(dirname(path), name))]));
  return new MemorySource(basename(path), bytesOf(path), folder);
}
