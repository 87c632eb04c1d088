// The part of the payload that a forward pass adds: calls, steps, the values between them, and axes.

import {
  below,
  type Check,
  column,
  type Fields,
  isArrayOf,
  isCount,
  isInteger,
  isObject,
  isString,
  isStrings,
  isValue,
  need,
  tuple
} from "./payload_checks";
import type { Value } from "./payload";

/** All lists of one table are of one length; numbers are places in other lists, -1 stands for none. */
export interface FlowPayload {
  on: string; // the tensors that were traced on: "meta", "fake" or "real"
  calls: { node: number[]; parent: number[]; inputs: number[][]; outputs: number[][] }; // depth first; values
  steps: {
    name: number[]; // -1: a module in whose call no operator ran
    call: number[];
    inputs: number[][]; // values
    tensors: number[][]; // parameters and buffers that were read
    source: number[];
    flops: Value[]; // null: no formula is known
    view: number[]; // steps that only look at their input otherwise
  };
  values: { step: number[]; shape: number[]; dtype: number[]; axes: number[][] };
  tensors: { node: number[]; name: number[]; attributes: string[]; tied: [number, number][] };
  names: string[];
  shapes: number[][];
  dtypes: string[];
  sources: string[];
  inputs: [string, number][]; // of the model: name, value
  outputs: number[];
}

export interface AxesPayload {
  name: string[];
  label: string[]; // short, for expressions
  size: number[];
  role: (string | null)[];
  frozen: number[]; // -1: free
  reasons: string[];
  dims: number[][]; // of each tensor: what each dimension is made of
  written: string[]; // "({3} {4})": axes by number
}

const isPlaces =
  (end: number): Check =>
  value =>
    isArrayOf(value, below(end));

const orNone =
  (check: Check): Check =>
  value =>
    value === -1 || check(value);

/** The number of tensors; 0 where nothing was traced. */
export function checkFlow(flow: unknown, size: number): number {
  if (flow === null) {
    return 0;
  }
  need(isObject(flow) && isString(flow.on), "flow");
  const { calls, steps, values, tensors } = flow;
  need(isObject(calls) && isObject(steps) && isObject(values) && isObject(tensors), "flow");
  const counts = { calls: lengthOf(calls.node), steps: lengthOf(steps.call), values: lengthOf(values.step) };
  const count = lengthOf(tensors.node);
  checkNames(flow);
  checkCalls(calls, counts.calls, size, counts.values);
  checkSteps(steps, counts, count, flow);
  checkValues(values, counts, flow);
  column(tensors, "node", count, below(size));
  need(isStrings(tensors.attributes), "tensors");
  column(tensors, "name", count, below(lengthOf(tensors.attributes)));
  need(isArrayOf(tensors.tied, tuple(below(count), below(count))), "tied");
  need(isArrayOf(flow.inputs, tuple(isString, below(counts.values))), "inputs");
  need(isArrayOf(flow.outputs, below(counts.values)), "outputs");
  return count;
}

interface Counts {
  calls: number;
  steps: number;
  values: number;
}

function lengthOf(list: unknown): number {
  need(Array.isArray(list), "flow");
  return list.length;
}

function checkNames(flow: Fields): void {
  need(isStrings(flow.names) && isStrings(flow.dtypes) && isStrings(flow.sources), "flow");
  need(
    isArrayOf(flow.shapes, shape => isArrayOf(shape, isCount)),
    "shapes"
  );
}

/** Depth first: the parent of a call began before it. */
function checkCalls(calls: Fields, count: number, size: number, values: number): void {
  column(calls, "node", count, below(size));
  column(calls, "parent", count, isInteger);
  need(
    (calls.parent as number[]).every((parent, at) => parent >= (at === 0 ? -1 : 0) && parent < at),
    "calls"
  );
  column(calls, "inputs", count, isPlaces(values));
  column(calls, "outputs", count, isPlaces(values));
}

function checkSteps(steps: Fields, { calls, steps: count, values }: Counts, tensors: number, flow: Fields): void {
  column(steps, "name", count, orNone(below(lengthOf(flow.names))));
  column(steps, "call", count, below(calls));
  column(steps, "inputs", count, isPlaces(values));
  column(steps, "tensors", count, isPlaces(tensors));
  column(steps, "source", count, orNone(below(lengthOf(flow.sources))));
  column(steps, "flops", count, isValue);
  need(isPlaces(count)(steps.view), "view");
}

function checkValues(values: Fields, { steps, values: count }: Counts, flow: Fields): void {
  column(values, "step", count, orNone(below(steps)));
  column(values, "shape", count, below(lengthOf(flow.shapes)));
  column(values, "dtype", count, below(lengthOf(flow.dtypes)));
  column(values, "axes", count, axes => isArrayOf(axes, isCount));
}

export function checkAxes(axes: unknown, tensors: number): void {
  if (axes === null) {
    return;
  }
  need(isObject(axes) && Array.isArray(axes.name), "axes");
  const count = axes.name.length;
  need(isStrings(axes.reasons) && isStrings(axes.written), "axes");
  column(axes, "name", count, isString);
  column(axes, "label", count, isString);
  column(axes, "size", count, isCount);
  column(axes, "role", count, role => role === null || isString(role));
  column(axes, "frozen", count, orNone(below(lengthOf(axes.reasons))));
  column(axes, "dims", tensors, isPlaces(lengthOf(axes.written)));
}
