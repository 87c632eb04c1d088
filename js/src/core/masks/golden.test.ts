// What Python chooses and counts for a ratio, the page must choose and count alike.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { readCapabilities, readTrial } from "./session/kernel_answers";
import { type PlanData, readPlan } from "./draft/plan_data";
import { removedByRatio, type Scope } from "./draft/scores";

interface Case {
  readonly scope: Scope;
  readonly ratio: number;
  readonly dropped: Readonly<Record<string, readonly number[]>>;
  readonly packed: readonly number[];
  readonly params: readonly number[];
  readonly flops: readonly number[];
  readonly bytes: readonly number[];
}

type Removal = Omit<Case, "scope" | "ratio"> & { readonly removed: readonly string[] };

interface Golden {
  readonly payload: unknown;
  readonly scores: readonly number[];
  readonly cases: readonly Case[];
  readonly removals: readonly Removal[];
  readonly costs: { readonly offers: unknown; readonly trial: unknown };
}

const folder = join(dirname(fileURLToPath(import.meta.url)), "../../../../tests/widgets/golden_masks");
const files = readdirSync(folder).filter(file => file.endsWith(".json"));
const view = (bytes: readonly number[]) => new DataView(Uint8Array.from(bytes).buffer);

function droppedBy(data: PlanData, { scope, ratio }: Case): void {
  const { scores, draft, axes } = data;
  if (!scores) throw new Error("no scores");
  const able = axes.by_ratio.flatMap((is, axis) => (is ? [axis] : []));
  removedByRatio(able, axes.size, ratio, scope, scores, axes.least).forEach((count, at) =>
    draft.dropFirst(able[at], scores.order(able[at]), count)
  );
}

function chosen(data: PlanData): Record<string, number[]> {
  const found: Record<string, number[]> = {};
  data.axes.name.forEach((name, axis) => {
    const indices = Array.from({ length: data.axes.size[axis] }, (_, i) => i).filter(i =>
      data.draft.isRemoved(axis, i)
    );
    if (indices.length > 0) found[name] = indices;
  });
  return found;
}

it("has golden masks", () => {
  expect(files.length).toBeGreaterThan(0);
});

describe.each(files)("%s", file => {
  const golden = JSON.parse(readFileSync(join(folder, file), "utf8")) as Golden;

  it.each(golden.cases)("$scope $ratio", wanted => {
    const data = readPlan(golden.payload, new DataView(new ArrayBuffer(0)), view(golden.scores));
    droppedBy(data, wanted);
    expect(chosen(data)).toEqual(wanted.dropped);
    expect([...data.draft.bits]).toEqual(wanted.packed);
    const totals = data.counters.totals();
    for (const unit of ["params", "flops", "bytes"] as const) {
      expect([totals[unit].before, totals[unit].after]).toEqual(wanted[unit]);
    }
  });

  it("counts what is left without blocks", () => {
    for (const wanted of golden.removals) {
      const data = readPlan(golden.payload, view(wanted.packed), view(golden.scores));
      const { blocks, counters, byName, isApproximate } = data;
      expect(blocks.removed.map(block => blocks.table.path[block])).toEqual(wanted.removed);
      const left = Object.entries(chosen(data)).filter(([name]) => !data.isAway(byName.get(name) ?? -1));
      expect(Object.fromEntries(left)).toEqual(wanted.dropped);
      const totals = counters.totals();
      for (const unit of ["params", "bytes", ...(isApproximate ? [] : (["flops"] as const))] as const)
        expect([totals[unit].before, totals[unit].after]).toEqual(wanted[unit]);
    }
  });

  it("reads what data of the user say", () => {
    const { offers, trial } = golden.costs;
    expect(readCapabilities(offers)).toMatchObject({
      sensitivity: true,
      recalibrate: true,
      evaluate: true,
      batches: 2
    });
    const { recalibrated, evaluations } = readTrial(trial);
    expect(recalibrated).toBe(true);
    expect(evaluations.map(({ state, values, error }) => [state, Object.fromEntries(values), error])).toEqual([
      ["uncut", { right: 0.75, lost: Infinity }, ""],
      ["cut", {}, "evaluate stopped: ValueError: no data"],
      ["recalibrated", { evaluate: 0.5 }, ""]
    ]);
  });

  it("reads the bits that Python packed", () => {
    for (const { packed, dropped } of golden.cases) {
      expect(chosen(readPlan(golden.payload, view(packed), view(golden.scores)))).toEqual(dropped);
    }
  });
});
