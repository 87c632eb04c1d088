// What the readers of the kernel tell of files of every format, the readers of the page tell, too.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { GOLDEN, sourceOf } from "../../testing/golden_files";
import type { FileContents } from "./bytes/records";
import { readModelFile } from "./registry";

const EXPECTED = ".expected.json";
const FILES = (readdirSync(GOLDEN, { recursive: true }) as string[])
  .filter(name => name.endsWith(EXPECTED))
  .map(name => name.slice(0, -EXPECTED.length))
  .sort();

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
    const path = join(GOLDEN, name);
    const expected: unknown = JSON.parse(readFileSync(path + EXPECTED, "utf-8"));
    expect(asPython(await readModelFile(sourceOf(path)))).toEqual(expected);
  });

  it("is of every format", () => {
    const endings = [".safetensors", ".index.json", ".gguf", ".onnx", ".pt", ".pth", ".pt2"];
    expect(endings.filter(ending => !FILES.some(name => name.endsWith(ending)))).toEqual([]);
  });
});
