// Index of a traced forward pass: calls of each module, shapes as text, operators without a FLOPs formula.

import { push } from "../base/multimap";
import { type FlowPayload, toNumber, type ValueNames } from "../payload/payload";
import type { Hierarchy } from "./hierarchy";

// What an operator is called where people read it: "_log_softmax" is how torch does a log_softmax.

/** Parts of names that say how torch does it, and not what. */
const HOW = new Set(
  (
    "unsafe|safe|native|fused|flash|efficient|cudnn|miopen|mkldnn|mkl|mps|overrideable|legit|functional|impl|helper|" +
    "interface"
  ).split("|")
);
/** Ends that say for what, or what else comes back. */
const END = /_(?:for_\w+|with_indices|no_training|no_update|with_update)$/;
/** Of those that nothing in their names leads to. */
const OTHERS: ReadonlyMap<string, string> = new Map([
  ["local_scalar_dense", "item"],
  ["constant_pad_nd", "pad"]
]);

/** "aten::_unsafe_view" as "view"; what writes in place keeps the underscore at its end. */
export function operatorWord(name: string): string {
  let word = spoken.get(name);
  if (word === undefined) spoken.set(name, (word = spokenName(name)));
  return word;
}

const spoken = new Map<string, string>(); // the words of all names met: torch has some thousand

function spokenName(name: string): string {
  const own = name.slice(name.lastIndexOf(":") + 1);
  const isInner = own.startsWith("_");
  const inPlace = /[^_]_$/.test(own) ? "_" : "";
  const plain = own.replace(/^_+|_+$/g, "");
  const known = OTHERS.get(plain);
  if (known !== undefined) return known;
  const what = plain
    .split("_")
    .filter(part => !HOW.has(part))
    .join("_")
    .replace(END, "");
  return ((isInner ? what.replace(/_copy$/, "") : what) || plain || own) + inPlace;
}

export const OF_FILE = "file"; // in place of the kind of tensors that a model was traced on
const COPIES = new Set(["to", "clone", "contiguous", "copy", "cast"]); // they change where or as what values stand
const TURNS = new Set(["transpose", "permute", "t", "movedim", "swapaxes"]); // looks in which dimensions change places
const PASS = -1; // a step without an operator: a module hands on what it got

/** What reads or makes a value that an axis runs through. */
interface AxisPath {
  readonly axis: number;
  readonly steps: ReadonlySet<number>;
  readonly modules: readonly number[]; // whose own steps are among them, in tree order
  readonly leaves: readonly number[]; // those that call no other
  hasCall(call: number): boolean; // whether one of the steps is in it or below
}

const sortedNodes = (nodes: readonly number[]) => [...new Set(nodes)].sort((a, b) => a - b);

export class Dataflow {
  readonly size: number; // steps
  private readonly ofNode = new Map<number, number[]>();
  private readonly ends: Int32Array; // of each call's subtree
  private readonly views: ReadonlySet<number>;
  private readonly produced: number[][]; // of each step: its values
  private readonly read: Uint8Array; // of each value: whether anything reads it
  private withoutFormula?: readonly number[]; // steps
  private readonly firstSteps: Int32Array; // of each call: the first step at or after its beginning
  private chosen?: AxisPath; // of the axis that was asked about last

  constructor(
    readonly payload: FlowPayload,
    private readonly valueNames?: ValueNames | null
  ) {
    const { calls, steps, values } = payload;
    this.size = steps.call.length;
    this.views = new Set(steps.view);
    calls.node.forEach((node, call) => push(this.ofNode, node, call));
    this.ends = Int32Array.from(calls.node, (_, call) => call + 1);
    for (let call = calls.node.length - 1; call > 0; call--) {
      const parent = calls.parent[call];
      this.ends[parent] = Math.max(this.ends[parent], this.ends[call]);
    }
    this.produced = steps.call.map(() => []);
    values.step.forEach((step, value) => step >= 0 && this.produced[step].push(value));
    this.read = new Uint8Array(values.step.length);
    steps.inputs.forEach(inputs => inputs.forEach(value => (this.read[value] = 1)));
    payload.outputs.forEach(value => (this.read[value] = 1));
    this.firstSteps = this.findFirstSteps();
  }

  /** Whether operators were counted, as far as there are formulas. */
  get isCounted(): boolean {
    return this.payload.on !== OF_FILE;
  }

  /** The calls of a module, in order. */
  callsOf(node: number): readonly number[] {
    return this.ofNode.get(node) ?? [];
  }

  /** The end of a call's subtree: it and what ran in it are call … end − 1. */
  end(call: number): number {
    return this.ends[call];
  }

  /** "input_ids": of one tensor in a list the list; "" where it has no name. */
  inputName(at: number): string {
    const names = this.payload.inputs.map(([name]) => name);
    const whole = names[at].replace(/\[0\]$/, "");
    return names.some((name, other) => other !== at && name.startsWith(`${whole}[`)) ? names[at] : whole;
  }

  /** Of an output of the model its key or field, "" where it has none. */
  resultName(at: number): string {
    return givenName(this.valueNames?.results[at]);
  }

  /** Names of what a call took, or gave, as its forward has them; "" for what has none. */
  namesOf(call: number, kind: "inputs" | "outputs"): readonly string[] {
    const names = this.valueNames;
    return this.payload.calls[kind][call].map((_, at) => givenName(names?.labels[names[kind][call]]?.[at]));
  }

  isLeaf(call: number): boolean {
    return this.ends[call] === call + 1;
  }

  /** Where none ran in it, and behind the last call, the number of all steps. */
  firstStep(call: number): number {
    return this.firstSteps[call] ?? this.size;
  }

  values(step: number): readonly number[] {
    return this.produced[step];
  }

  isView(step: number): boolean {
    return this.views.has(step);
  }

  /** Whether a step has no part in the flow: counters, scratch memory, looks at a parameter alone. */
  isAside(step: number): boolean {
    const { inputs } = this.payload.steps;
    const isUsed = this.produced[step].some(value => this.read[value]);
    return inputs[step].length === 0 && (this.isView(step) || !isUsed);
  }

  /** Whether a step gives other values than it got, or in another order: no copy, and no look that only regroups them. */
  computes(step: number): boolean {
    const name = operatorWord(this.fullName(step)).toLowerCase();
    return this.isView(step) ? TURNS.has(name) : !COPIES.has(name);
  }

  isRead(value: number): boolean {
    return this.read[value] === 1;
  }

  /** "aten::convolution"; "" for a step without an operator. */
  fullName(step: number): string {
    const name = this.payload.steps.name[step];
    return name === PASS ? "" : this.payload.names[name];
  }

  /** In the words of the field: "log_softmax" for "aten::_log_softmax", "to(float16)" for "aten::_to_copy". */
  name(step: number): string {
    const word = operatorWord(this.fullName(step));
    const [from, to] = [this.payload.steps.inputs[step], this.produced[step]].map(values =>
      values.map(v => this.dtype(v))
    );
    return word === "to" && to.length > 0 && from[0] !== to[0] ? `to(${to[0]})` : word;
  }

  source(step: number): string | null {
    const source = this.payload.steps.source[step];
    return source < 0 ? null : this.payload.sources[source];
  }

  flops(step: number): number | null {
    return toNumber(this.payload.steps.flops[step]);
  }

  /** "1×64×56×56" */
  shape(value: number): string {
    return shapeText(this.payload.shapes[this.payload.values.shape[value]]);
  }

  dtype(value: number): string {
    return this.payload.dtypes[this.payload.values.dtype[value]];
  }

  axes(value: number): readonly number[] {
    return this.payload.values.axes[value];
  }

  /** Where an axis runs: also through what has no parameters, as a ReLU, a pooling layer, an addition. */
  pathOf(axis: number): AxisPath {
    if (this.chosen?.axis !== axis) this.chosen = this.findPath(axis);
    return this.chosen;
  }

  /** The parameters and buffers that a step reads, also by way of looks at them alone. */
  tensors(step: number): number[] {
    const { steps, values } = this.payload;
    const found = new Set(steps.tensors[step]);
    for (const value of steps.inputs[step]) {
      const maker = values.step[value];
      if (maker >= 0 && this.isAside(maker)) {
        this.tensors(maker).forEach(tensor => found.add(tensor));
      }
    }
    return [...found].sort((a, b) => a - b);
  }

  tensorNames(step: number): string[] {
    const { name, attributes } = this.payload.tensors;
    return this.tensors(step).map(tensor => attributes[name[tensor]]);
  }

  /** How many operators ran in a call and below. */
  operators(call: number): number {
    const { call: calls, name } = this.payload.steps;
    return calls.filter((at, step) => name[step] !== PASS && at >= call && at < this.ends[call]).length;
  }

  /** Operators in a module and below that have no formula for their FLOPs, with how often they ran. */
  uncounted(node: number): Map<string, number> {
    const found = new Map<string, number>();
    const { call, flops } = this.payload.steps;
    const within = (step: number) => this.callsOf(node).some(at => call[step] >= at && call[step] < this.ends[at]);
    this.withoutFormula ??= flops.flatMap((value, step) => (value === null ? [step] : []));
    for (const step of this.withoutFormula.filter(within)) {
      found.set(this.fullName(step), (found.get(this.fullName(step)) ?? 0) + 1);
    }
    return found;
  }

  private findPath(axis: number): AxisPath {
    const { calls, steps, values } = this.payload;
    const carries = (value: number) => values.axes[value].includes(axis);
    const found = new Set<number>();
    const before = new Int32Array(this.ends.length + 1); // of each call: how many steps in the calls before it
    steps.inputs.forEach((inputs, step) => {
      if (!inputs.some(carries) && !this.produced[step].some(carries)) return;
      found.add(step);
      before[steps.call[step] + 1] += 1;
    });
    const isOn = (call: number, end: number) => before[end] > before[call];
    const own = calls.node.flatMap((_, call) => (before[call + 1] > 0 ? [call] : []));
    for (let call = 0; call < this.ends.length; call++) before[call + 1] += before[call];
    return {
      axis,
      steps: found,
      modules: sortedNodes(own.map(call => calls.node[call])),
      leaves: sortedNodes(own.filter(call => this.isLeaf(call)).map(call => calls.node[call])),
      hasCall: call => isOn(call, this.ends[call])
    };
  }

  /** Steps come in the order of time, and calls in that of their beginnings. */
  private findFirstSteps(): Int32Array {
    const { call } = this.payload.steps;
    const first = new Int32Array(this.ends.length).fill(this.size);
    for (let step = this.size - 1; step >= 0; step--) {
      first[call[step]] = step;
    }
    for (let at = first.length - 1; at > 0; at--) {
      const parent = this.payload.calls.parent[at];
      first[parent] = Math.min(first[parent], first[at]);
    }
    return first;
  }
}

/** A place in a tuple is no name. */
const givenName = (name = ""): string => (/^\[\d+\]$/.test(name) ? "" : name);

const known = new WeakMap<Hierarchy, Dataflow>();

/** The data flow of a traced model, made once. */
export function dataflowOf(h: Hierarchy): Dataflow | null {
  const { flow } = h.payload;
  if (!flow) {
    return null;
  }
  let dataflow = known.get(h);
  if (!dataflow) {
    dataflow = new Dataflow(flow, h.payload.value_names);
    known.set(h, dataflow);
  }
  return dataflow;
}

export function shapeText(shape: readonly (number | string)[]): string {
  return shape.length > 0 ? shape.join("×") : "scalar";
}
