// What is inside a group of operators: the patterns in it, then one card for each line of code, with how often it ran.

import type { Dataflow } from "./dataflow";
import { push } from "../base/multimap";
import { describeGroup, type OperatorGroup } from "./operator_groups";
import { findPatterns } from "./operator_names";
import { Rank } from "./operator_patterns";

const FEW = 8; // operators that are drawn one by one
const ALL = 60; // the same, of one line of code
const WHOLE = 0.8; // of a group: a pattern that is more of it is the group

const known = new WeakMap<OperatorGroup, OperatorGroup[]>();

/** In the order of time; those of one step are no groups any more. */
export function partsOf(flow: Dataflow, group: OperatorGroup): readonly OperatorGroup[] {
  let parts = known.get(group);
  if (!parts) known.set(group, (parts = findParts(flow, group)));
  return parts;
}

/** What tells a group from others, also from that in which it lies. */
export const groupKey = ({ steps }: Pick<OperatorGroup, "steps">): string => `${steps[0]}:${steps.length}`;

/** The steps of a group that are drawn when it is open: of a line that always does the same, those of its first run. */
export function visibleSteps({ steps, period }: OperatorGroup): readonly number[] {
  return period === undefined ? steps : steps.slice(0, period);
}

function findParts(flow: Dataflow, group: OperatorGroup): OperatorGroup[] {
  const steps = visibleSteps(group);
  const singles = () => steps.map(step => groupOf(flow, [step]));
  if (steps.length <= FEW || group.period !== undefined) return singles();
  if (group.line !== undefined) return steps.length <= ALL ? singles() : byKind(flow, group.line, steps);
  const patterns = findPatterns(flow, steps).filter(({ rank }) => rank === Rank.Pattern);
  const isWhole = patterns.some(one => one.steps.length >= WHOLE * steps.length);
  const taken = new Set(isWhole ? [] : patterns.flatMap(one => one.steps));
  const lines = byLine(
    flow,
    steps.filter(step => !taken.has(step))
  );
  if (taken.size === 0 && lines.length === 1) return findParts(flow, lines[0]);
  const found = isWhole ? [] : patterns.map(one => groupOf(flow, one.steps));
  return [...found, ...lines].sort((a, b) => a.steps[0] - b.steps[0]);
}

/** One group for each line of code, however often it ran. */
export function byLine(flow: Dataflow, steps: readonly number[]): OperatorGroup[] {
  const runs = new Map<string, number[][]>();
  let last: string | null = null;
  for (const step of steps) {
    const line = flow.source(step) ?? "";
    const of = runs.get(line);
    if (of && line === last) of[of.length - 1].push(step);
    else push(runs, line, [step]);
    last = line;
  }
  return [...runs].map(([line, each]) => lineGroup(flow, line, each));
}

/** Runs of one line that do other things each time, those that do the same together. */
function byKind(flow: Dataflow, line: string, steps: readonly number[]): OperatorGroup[] {
  const kinds = new Map<string, number[][]>();
  let [run, before]: [number[], number] = [[], -2];
  const end = () => run.length > 0 && push(kinds, names(flow, run), run);
  for (const step of steps) {
    if (step !== before + 1) {
      end();
      run = [];
    }
    run.push(step);
    before = step;
  }
  end();
  if (kinds.size === 1 && [...kinds.values()][0].length === 1) return steps.map(step => groupOf(flow, [step]));
  return [...kinds.values()].map(each => lineGroup(flow, line, each));
}

function lineGroup(flow: Dataflow, line: string, runs: readonly number[][]): OperatorGroup {
  const group = groupOf(flow, runs.flat());
  const period = periodOf(group.steps.map(step => flow.fullName(step)));
  const isRepeated = period < group.steps.length;
  return {
    ...group,
    line,
    times: isRepeated ? group.steps.length / period : runs.length,
    ...(isRepeated && { period })
  };
}

/** After how many names the same ones come again, up to the end. */
function periodOf(names: readonly string[]): number {
  const { length } = names;
  for (let period = 1; period <= length / 2; period++) {
    if (length % period === 0 && names.every((name, at) => name === names[at % period])) return period;
  }
  return length;
}

const names = (flow: Dataflow, steps: readonly number[]): string => steps.map(step => flow.fullName(step)).join(" ");

function groupOf(flow: Dataflow, steps: readonly number[]): OperatorGroup {
  return { steps: [...steps], ...describeGroup(flow, steps) };
}
