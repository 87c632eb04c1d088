// Saved plans and graphs for tests.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Fields } from "../core/shared/base/schema";

/** A plan as plan.save writes it. */
export function savedPlan() {
  return {
    format: "modulekg-plan",
    version: 1,
    params: [1000, 750],
    flops: [2000000, 1500000],
    macs: [1000000, 750000],
    axes: [
      {
        name: "conv1.weight[0]",
        size: 8,
        dropped: [0, 1, 2, 5],
        members: ["conv1.weight[0]", "bn1.weight[0]", "fc.weight[1]", "bn1.bias[0]"]
      },
      { name: "fc.weight[0]", size: 10, dropped: [] as number[], members: ["fc.weight[0]"] }
    ],
    changes: [{ kind: "argument", what: "view(-1, 8) → view(-1, 4)", source: "model.py:12" }],
    attributes: { "conv1.out_channels": [8, 4], "norm.normalized_shape": [{ tuple: [8] }, { tuple: [4] }] },
    tensors: [{ names: ["conv1.weight"], shape: [8, 3, 3, 3], kept: { "0": 0 }, produced: [0] }],
    positions: [[3, 4, 6, 7]]
  };
}

const BEFORE = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/files_of_before");
const STATE = "application/vnd.jupyter.widget-state+json";

interface SavedNotebook {
  metadata: { widgets: Record<string, { state: Record<string, { model_name: string; state: Fields }> }> };
}

/** The graphs that earlier versions wrote, by the files that hold them: exports, and the state of a notebook's widget. */
export function graphsOfBefore(): [file: string, payload: unknown][] {
  const read = (file: string) => JSON.parse(readFileSync(join(BEFORE, file), "utf8")) as unknown;
  const exports = readdirSync(BEFORE).filter(file => file.endsWith(".modulekg.json") || file === "model.json");
  const { metadata } = read("saved_notebook.json") as SavedNotebook;
  const graphs = Object.values(metadata.widgets[STATE].state).filter(one => one.model_name === "ModelGraphModel");
  return [
    ...exports.map((file): [string, unknown] => [file, read(file)]),
    ...graphs.map(({ state }): [string, unknown] => ["saved_notebook.json", state.payload])
  ];
}
