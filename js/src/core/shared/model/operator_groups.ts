// Stretches of operators: what a module's own code does between two calls of others, drawn as one small card.

import { type Dataflow, operatorWord } from "./dataflow";
import { isPick } from "./operator_names";
import { push } from "../base/multimap";
import { OUTSIDE, type Units } from "./flow_units";

export interface OperatorGroup {
  steps: readonly number[]; // in the order of time
  isVisible: boolean; // it joins or computes values, changes a shape or reads a parameter
  isConstant: boolean; // it reads nothing but numbers in the code
  change: string; // "1×768×14×14 → 1×196×768"
  line?: string; // of code that all of them come from
  times?: number; // how often that ran
  period?: number; // where it did the same each time: the steps of one run
}

/** The stretches of one unit, by their first steps. */
export function operatorGroups(flow: Dataflow, units: Units, unit: number): OperatorGroup[] {
  const depths = depthsIn(flow, units, unit);
  const own = units.list[unit].steps.filter(step => depths.has(step));
  const groups = new Groups();
  const lookedAt = new Map<string, number>(); // at the same value in the same way: one of its steps
  for (const step of own) {
    groups.add(step);
    const inputs = flow.payload.steps.inputs[step];
    for (const value of inputs) {
      const maker = flow.payload.values.step[value];
      if (depths.get(maker) === depths.get(step)) groups.join(maker, step);
    }
    if (flow.isView(step) && inputs.length === 1) {
      const key = `${inputs[0]} ${flow.fullName(step)}`;
      const other = lookedAt.get(key);
      if (other === undefined) lookedAt.set(key, step);
      else groups.join(other, step);
    }
  }
  joinConstants(flow, own, groups);
  const parts = groups.all().flatMap(steps => splitByCall(flow, units, unit, steps));
  return parts.sort((a, b) => a[0] - b[0]).map(steps => ({ steps, ...describeGroup(flow, steps) }));
}

/**
 * What a group makes of one call alone before it meets the values of others stands by itself, if it picks or weighs: the
 * softmax and top-k behind a router. No way leads back into such a part.
 */
function splitByCall(flow: Dataflow, units: Units, unit: number, steps: number[]): number[][] {
  if (steps.length > MAX_SPLIT) return [steps];
  const { inputs } = flow.payload.steps;
  const isOfCode = codeNumbers(flow);
  const read = new Map<number, ReadonlySet<number>>(); // step -> the calls that it depends on, OUTSIDE for other values
  for (const step of steps) {
    const sources = inputs[step].flatMap(value => {
      const maker = flow.payload.values.step[value];
      const inner = read.get(maker);
      if (inner) return [...inner];
      if (isOfCode(value)) return [];
      return [maker < 0 ? OUTSIDE : units.calleeOf(unit, units.ofStep(maker))];
    });
    read.set(step, new Set(sources));
  }
  const sourceOf = (step: number) => {
    const [first = OUTSIDE, ...others] = read.get(step) ?? [];
    return others.length > 0 ? OUTSIDE : first;
  };
  const isOne = steps.every(step => (read.get(step)?.size ?? 0) < 2);
  const isChosen = (step: number) => sourceOf(step) > unit && isPick(operatorWord(flow.fullName(step)));
  const chosen = isOne ? [] : steps.filter(isChosen);
  const taken = new Map<number, number>(); // step -> the call by which it stands
  for (const step of [...chosen].reverse()) {
    const waiting = [step];
    for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
      if (taken.has(at)) continue;
      taken.set(at, sourceOf(step));
      waiting.push(...inputs[at].map(value => flow.payload.values.step[value]).filter(maker => read.has(maker)));
    }
  }
  const parts = new Map<number, number[]>();
  steps.forEach(step => push(parts, taken.get(step) ?? OUTSIDE, step));
  return [...parts.values()];
}

const MAX_SPLIT = 128; // operators of a group: a larger one does more than its parts tell

/** What reads nothing but numbers in the code goes with what alone reads it: no way leads into it. */
function joinConstants(flow: Dataflow, own: readonly number[], groups: Groups): void {
  const { inputs } = flow.payload.steps;
  const { step: maker } = flow.payload.values;
  const isOwn = new Set(own);
  const readers = new Map<number, number[]>(); // of the values of each step
  inputs.forEach((values, step) =>
    values.forEach(value => {
      if (isOwn.has(maker[value])) push(readers, maker[value], step);
    })
  );
  const isOfCode = codeNumbers(flow);
  const isOneWith = (value: number, step: number) => isOwn.has(maker[value]) && groups.isOne(maker[value], step);
  const isConstant = (steps: readonly number[]) =>
    steps.every(step => inputs[step].every(value => isOfCode(value) || isOneWith(value, step)));
  for (const steps of groups.all().reverse()) {
    const outside = steps.flatMap(step => readers.get(step) ?? []).filter(step => !groups.isOne(step, steps[0]));
    const isRead = outside.length > 0 && outside.every(step => isOwn.has(step) && groups.isOne(step, outside[0]));
    if (isRead && isConstant(steps)) groups.join(steps[0], outside[0]);
  }
}

/** Which values are numbers in the code, as tensors. */
function codeNumbers(flow: Dataflow): (value: number) => boolean {
  const given = new Set(flow.payload.inputs.map(([, value]) => value));
  return value => flow.payload.values.step[value] < 0 && !given.has(value);
}

/**
 * For each step of a unit's own code the most calls of modules that lie before it on one way. Steps of one depth can be
 * one card: no way between them leads through a module.
 */
function depthsIn(flow: Dataflow, units: Units, unit: number): Map<number, number> {
  const { inputs } = flow.payload.steps;
  const found = new Map<number, number>();
  const ofValue = new Map<number, number>();
  const ofChild = new Map<number, number>();
  const isOwn = new Set(units.list[unit].steps);
  const deepest = (step: number) => Math.max(0, ...inputs[step].map(value => ofValue.get(value) ?? 0));
  const [start, end] = units.span(unit);
  for (let step = start; step < end; step++) {
    const child = units.calleeOf(unit, units.ofStep(step));
    if (child === OUTSIDE) continue;
    let depth = deepest(step);
    if (!isOwn.has(step)) {
      if (!ofChild.has(child)) ofChild.set(child, childDepth(flow, units, unit, child, step, deepest));
      depth = Math.max(depth, ofChild.get(child) ?? 0) + (depth > (ofChild.get(child) ?? 0) ? 1 : 0);
      ofChild.set(child, depth);
    } else if (flow.fullName(step) !== "" && !flow.isAside(step)) {
      found.set(step, depth);
    }
    flow.values(step).forEach(value => ofValue.set(value, depth));
  }
  return found;
}

/** One more than that of all that the call reads, which is there when its first step runs. */
function childDepth(
  flow: Dataflow,
  units: Units,
  unit: number,
  child: number,
  first: number,
  deepest: (step: number) => number
): number {
  let depth = 0;
  for (let step = first; step < flow.size && units.calleeOf(unit, units.ofStep(step)) === child; step++) {
    depth = Math.max(depth, deepest(step));
  }
  return depth + 1;
}

export function describeGroup(flow: Dataflow, steps: readonly number[]): Omit<OperatorGroup, "steps"> {
  const { inputs } = flow.payload.steps;
  const inside = new Set(steps);
  const isInner = (value: number) => inside.has(flow.payload.values.step[value]);
  const isAside = (value: number) => {
    const maker = flow.payload.values.step[value];
    return maker >= 0 && flow.isAside(maker);
  };
  const read = new Set(steps.flatMap(step => inputs[step]).filter(value => !isInner(value) && !isAside(value)));
  const inner = new Set(steps.flatMap(step => inputs[step]).filter(isInner));
  const given = steps.flatMap(step => flow.values(step)).filter(value => !inner.has(value) && flow.isRead(value));
  const from = [...new Set([...read].map(value => flow.shape(value)))];
  const to = [...new Set(given.map(value => flow.shape(value)))];
  const isChange = to.some(shape => !from.includes(shape));
  const hasTensors = steps.some(step => flow.tensors(step).length > 0);
  const isComputed = given.length > 0 && steps.some(step => flow.computes(step));
  return {
    isVisible: read.size > 1 || ((isChange || isComputed) && read.size > 0) || hasTensors,
    isConstant: !hasTensors && [...read].every(codeNumbers(flow)),
    change: isChange && from.length === 1 && to.length === 1 ? `${from[0]} → ${to[0]}` : ""
  };
}

/** Which belong together (union–find). */
class Groups {
  private readonly above = new Map<number, number>();

  add(step: number): void {
    if (!this.above.has(step)) this.above.set(step, step);
  }

  join(a: number, b: number): void {
    this.add(a);
    const [first, second] = [this.root(a), this.root(b)].sort((x, y) => x - y);
    this.above.set(second, first);
  }

  all(): number[][] {
    const groups = new Map<number, number[]>();
    for (const step of [...this.above.keys()].sort((a, b) => a - b)) {
      const root = this.root(step);
      push(groups, root, step);
    }
    return [...groups.values()];
  }

  isOne(a: number, b: number): boolean {
    return this.root(a) === this.root(b);
  }

  private root(step: number): number {
    let at = step;
    for (let next = this.above.get(at) ?? at; next !== at; next = this.above.get(at) ?? at) at = next;
    return at;
  }
}
