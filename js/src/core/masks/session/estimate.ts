// Estimated cost of a draft: the sum of what each removed index costs alone, and the remaining FLOPs.

import { Counters } from "../draft/counters";
import type { PlanData } from "../draft/plan_data";
import { removedByRatio, type Scope, type Scores } from "../draft/scores";
import type { RatioCounts } from "./session";

export interface Point {
  readonly ratio: number;
  readonly flopsLeft: number; // share of the FLOPs
  readonly increase: number; // of the loss
}

interface AxisCost {
  readonly removed: number; // indices that go
  readonly increase: number; // of the loss without them
  readonly mean: number; // of all its indices, of one alone
}

const MEASURED = [0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8]; // ratios
const STEPS = 90; // up to a ratio of 0.9: what little is left beyond costs so much that the rest would be flat

/** What goes from an axis costs; null where it is not known. */
export function axisCost(data: PlanData, axis: number): AxisCost | null {
  const { increases, draft, axes } = data;
  if (!increases || !data.isFree(axis) || data.isAway(axis)) return null;
  const own = increases.of(axis);
  if (!own.every(Number.isFinite)) return null;
  const [size, removed] = [axes.size[axis], draft.dropped(axis)];
  let increase = 0;
  if (removed) for (let index = 0; index < size; index += 1) if (draft.isRemoved(axis, index)) increase += own[index];
  return { removed, increase, mean: own.reduce((sum, value) => sum + value, 0) / size };
}

/** Where the draft stands: the FLOPs left, and what all that goes costs. */
export function currentCost(data: PlanData): Omit<Point, "ratio"> {
  const { flops } = data.counters.totals();
  return {
    flopsLeft: flops.before ? flops.after / flops.before : 1,
    increase: increasesOf(data, [...data.axes.size.keys()])
  };
}

function increasesOf(data: PlanData, axes: readonly number[]): number {
  return axes.reduce((sum, axis) => sum + (axisCost(data, axis)?.increase ?? 0), 0);
}

/** Of each ratio on `axes` what is left and what it costs; what goes from the other axes goes on all of it. */
export function curveOf(data: PlanData, scores: Scores, axes: readonly number[], scope: Scope): Point[] {
  const { size, least } = data.axes;
  const counters = new Counters(data.payload);
  counters.remove(data.blocks.gone);
  const others = [...size.keys()].filter(axis => !axes.includes(axis));
  const base = increasesOf(data, others);
  counters.update(others.map(axis => [axis, data.draft.remaining(axis)] as const));
  const sums = axes.map(axis => runningSums(data, scores, axis));
  return Array.from({ length: STEPS + 1 }, (_, step) => {
    const ratio = step / 100;
    const counts = removedByRatio(axes, size, ratio, scope, scores, least);
    counters.update(axes.map((axis, at) => [axis, size[axis] - counts[at]] as const));
    const { before, after } = counters.totals().flops;
    const increase = counts.reduce((sum, count, at) => sum + sums[at][count], base);
    return { ratio, flopsLeft: before ? after / before : 1, increase };
  });
}

/** What is measured of a curve, and a name for all that it depends on. */
export function toMeasure(
  { axes: { size, least }, draft, payload }: PlanData,
  scores: Scores,
  axes: readonly number[],
  scope: Scope,
  importance: string
): { key: string; points: RatioCounts[] } {
  const points = MEASURED.map((ratio): RatioCounts => {
    const counts = removedByRatio(axes, size, ratio, scope, scores, least);
    return [ratio, axes.map((axis, at) => [axis, counts[at]] as const)];
  });
  const others = [...size.keys()].filter(axis => !axes.includes(axis)).map(axis => [axis, draft.dropped(axis)]);
  return { key: shortHash(JSON.stringify([importance, payload.generation, points, others])), points };
}

/** Of any text a short one, which hardly another one has. */
function shortHash(text: string): string {
  let [low, high] = [5381, 52711];
  for (let at = 0; at < text.length; at += 1) {
    low = (Math.imul(low, 33) ^ text.charCodeAt(at)) >>> 0;
    high = (Math.imul(high, 31) ^ text.charCodeAt(at)) >>> 0;
  }
  return `${low.toString(36)}-${high.toString(36)}`;
}

/** The rise at a share of the FLOPs, along a line through points from the whole model on; null without points. */
export function lossIncreaseAt(dots: readonly Point[], flopsLeft: number): number | null {
  let before: Omit<Point, "ratio"> = { flopsLeft: 1, increase: 0 };
  for (const dot of dots) {
    const share =
      before.flopsLeft > dot.flopsLeft ? (before.flopsLeft - flopsLeft) / (before.flopsLeft - dot.flopsLeft) : 1;
    if (flopsLeft >= dot.flopsLeft) return before.increase + Math.max(0, share) * (dot.increase - before.increase);
    before = dot;
  }
  return dots.length ? before.increase : null;
}

/** What the first so many indices of an axis cost, in the order in which they go. */
function runningSums({ increases }: PlanData, scores: Scores, axis: number): Float64Array {
  const own = increases?.of(axis);
  const order = scores.order(axis);
  const sums = new Float64Array(order.length + 1);
  order.forEach((index, at) => {
    const increase = own?.[index] ?? 0;
    sums[at + 1] = sums[at] + (Number.isFinite(increase) ? increase : 0);
  });
  return sums;
}
