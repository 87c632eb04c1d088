// What the readers of the kernel tell of files of every format, the readers of the page tell, too.

import { readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { MemorySource } from "../../testing/sources";
import type { FileContents } from "./records";
import { readModelFile } from "./registry";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "../../../../tests/files/golden");
const EXPECTED = ".expected.json";
const FILES = (readdirSync(FOLDER, { recursive: true }) as string[])
  .filter(name => name.endsWith(EXPECTED))
  .map(name => name.slice(0, -EXPECTED.length))
  .sort();

const bytesOf = (path: string) => new Uint8Array(readFileSync(path));

/** A file with all that lies in its folder. */
function sourceOf(path: string): MemorySource {
  const files = readdirSync(dirname(path), { withFileTypes: true }).filter(entry => entry.isFile());
  const folder = new Map(files.map(({ name }) => [name, bytesOf(join(dirname(path), name))]));
  return new MemorySource(basename(path), bytesOf(path), folder);
}

/** In the names of Python. */
function asPython({ modules, graph, ...others }: FileContents): unknown {
  return JSON.parse(
    JSON.stringify({
      ...others,
      modules: modules.map(({ className, ...module }) => ({ ...module, class_name: className })),
      graph: graph && { ...graph, values: Object.fromEntries(graph.values) }
    })
  );
}

describe("a golden file", () => {
  it.each(FILES)("is read as the kernel reads it: %s", async name => {
    const path = join(FOLDER, name);
    const expected: unknown = JSON.parse(readFileSync(path + EXPECTED, "utf-8"));
    expect(asPython(await readModelFile(sourceOf(path)))).toEqual(expected);
  });

  it("is of every format", () => {
    const endings = [".safetensors", ".index.json", ".gguf", ".onnx", ".pt", ".pth", ".pt2"];
    expect(endings.filter(ending => !FILES.some(name => name.endsWith(ending)))).toEqual([]);
  });
});
