// What the page shows of a file that it reads is what it shows of one that the kernel has read.

import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { describe, expect, it } from "vitest";
import { GOLDEN, sourceOf } from "../../testing/golden_files";
import type { ModelPayload } from "../shared/payload/payload";
import { filePayload } from "./tree/payload";
import { readModelFile } from "./registry";

const SHOWN = ".shown.json";
const FILES = (readdirSync(GOLDEN, { recursive: true }) as string[])
  .filter(name => name.endsWith(SHOWN))
  .map(name => name.slice(0, -SHOWN.length))
  .sort();

/** As tests/files/golden_files.py has it: without what each side words or numbers as it likes. */
function asShown({
  title,
  nodes,
  entities,
  classes,
  columns,
  folds,
  tied,
  flow,
  value_names,
  file
}: ModelPayload): unknown {
  const shown = {
    title,
    name: nodes.name,
    parent: nodes.parent,
    entity: nodes.entity.map(value => nodes.entity.indexOf(value)),
    class: nodes.entity.map(entity => classes.name[entities.class[entity]]),
    tensors: nodes.entity.map(entity => entities.tensors[entity].map(each => JSON.stringify(each)).sort()),
    columns,
    folds: folds.map(([first, count, kind]) => `${first} ${count} ${kind}`).sort(),
    tied: tied.map(each => JSON.stringify(each)).sort(),
    flow,
    results: value_names?.results ?? [],
    file: { ...file, operators: file?.operators ?? [] }
  };
  return JSON.parse(JSON.stringify(shown));
}

interface Expected {
  tensors: unknown[][];
  folds: unknown[][];
  tied: unknown[];
}

describe("a golden file", () => {
  it.each(FILES)("is shown as the kernel's: %s", async name => {
    const path = join(GOLDEN, name);
    const expected = JSON.parse(readFileSync(path + SHOWN, "utf-8")) as Expected;
    const found = filePayload(await readModelFile(sourceOf(path)), basename(path));
    expect(asShown(found)).toEqual({
      ...expected,
      tensors: expected.tensors.map(own => own.map(each => JSON.stringify(each)).sort()),
      folds: expected.folds.map(fold => fold.join(" ")).sort(),
      tied: expected.tied.map(each => JSON.stringify(each)).sort()
    });
  });
});
