// The payload of a forward pass: its schema, and lookups of steps, modules and values.

import * as v from "valibot";
import { shapeText } from "../shared/model/dataflow";
import * as words from "../words/forward";
import {
  arrayOf,
  checked,
  count,
  type Guarded,
  is,
  isCount,
  isCounts,
  isInteger,
  isString,
  isValue,
  isWithin,
  list,
  oneOf,
  orNull,
  parts,
  relations,
  table,
  text,
  tuple,
  type Value
} from "../shared/base/schema";

const FORWARD_VERSION = 1;

export type Num = Exclude<Value, null>; // NaN and the infinities are text
const isNum = (value: unknown): value is Num => isValue(value) && value !== null;
const isTensor = tuple(isString, isCounts, isString); // name, sizes, data type
const isFigures = tuple(isNum, isNum, isNum, isNum, isNum, isNum, isNum);
const isEntry = tuple(isCounts, isNum, orNull(isNum)); // index, value, share
export const isTop = tuple(oneOf("class", "channel", "element"), arrayOf(isEntry));

export type TensorShape = Guarded<typeof isTensor>;
export type Top = Guarded<typeof isTop>;
/** min, max, mean, std, zeros, not finite, count */
export type Figures = Guarded<typeof isFigures>;

const ForwardSchema = v.pipe(
  parts({
    schema_version: v.literal(FORWARD_VERSION),
    kind: v.literal("forward_player"),
    run: is(isInteger),
    title: text,
    error: v.nullable(text),
    failed: v.nullable(count), // step
    dropped: count,
    modules: list(tuple(isString, isString)), // path, class
    shapes: list(arrayOf(isTensor)),
    steps: table({
      module: list(isCount),
      depth: list(isCount),
      inputs: list(isCount), // places in shapes
      outputs: list(isCount),
      sources: list(arrayOf(isInteger)), // values
      value: list(orNull(isInteger)),
      batch_dim: list(isCount),
      statistics: list(orNull(isFigures)),
      top: list(orNull(isTop))
    }),
    raised: list(tuple(isCount, isString)) // step, text
  }),
  relations({
    module: ({ steps, modules }) => isWithin(steps.module, modules.length),
    inputs: ({ steps, shapes }) => isWithin(steps.inputs, shapes.length),
    outputs: ({ steps, shapes }) => isWithin(steps.outputs, shapes.length),
    raised: ({ steps, raised }) => raised.every(([step]) => step < steps.module.length),
    failed: ({ steps, failed }) => failed === null || failed < steps.module.length
  })
);

type ForwardPayload = v.InferOutput<typeof ForwardSchema>;

/** One call of a module. */
export interface Step {
  readonly index: number;
  readonly path: string;
  readonly className: string;
  readonly depth: number;
  readonly inputs: readonly TensorShape[];
  readonly outputs: readonly TensorShape[];
  readonly sources: readonly number[]; // the values that it took
  readonly value: number | null; // the value that it gave first
  readonly batchDim: number;
  readonly figures: Figures | null;
  readonly top: Top | null;
  readonly error: string | null;
}

/** A number of the payload; those that JSON lacks come as text. */
export function toNum(value: Num): number {
  return typeof value === "number" ? value : Number(value);
}

export class Forward {
  readonly size: number;
  readonly run: number;
  readonly title: string;
  readonly error: string | null;
  readonly failed: number | null;
  readonly dropped: number;
  private readonly modules: ForwardPayload["modules"];
  private readonly shapes: ForwardPayload["shapes"];
  private readonly columns: ForwardPayload["steps"];
  private readonly raised: ReadonlyMap<number, string>;
  private readonly firsts = new Map<string, number>();
  private readonly given = new Set<number>(); // values that are some step's output
  private readonly ordered: readonly number[]; // the same, in the order in which they came about
  private readonly parents: Int32Array; // the step around each; −1 around the first one

  /** Raises a PayloadError for a payload of another version or with damaged parts. */
  constructor(raw: unknown) {
    const payload = checked(ForwardSchema, raw);
    this.size = payload.steps.module.length;
    this.run = payload.run;
    this.title = payload.title;
    this.error = payload.error;
    this.failed = payload.failed;
    this.dropped = payload.dropped;
    this.modules = payload.modules;
    this.shapes = payload.shapes;
    this.columns = payload.steps;
    this.raised = new Map(payload.raised);
    const { module, value, depth } = this.columns;
    const open: number[] = [];
    this.parents = Int32Array.from(depth, (level, at) => {
      open.length = Math.min(level, open.length);
      open.push(at);
      return open[open.length - 2] ?? -1;
    });
    for (let at = this.size - 1; at >= 0; at -= 1) {
      this.firsts.set(this.modules[module[at]][0], at);
      const given = value[at];
      if (given !== null) this.given.add(given);
    }
    for (const value of this.columns.sources[0] ?? []) this.given.delete(value); // the input, also where it is handed on
    this.ordered = [...this.given].sort((a, b) => a - b);
  }

  step(index: number): Step {
    const { columns, modules, shapes } = this;
    const [path, className] = modules[columns.module[index]];
    return {
      index,
      path,
      className,
      depth: columns.depth[index],
      inputs: shapes[columns.inputs[index]],
      outputs: shapes[columns.outputs[index]],
      sources: columns.sources[index],
      value: columns.value[index],
      batchDim: columns.batch_dim[index],
      figures: columns.statistics[index],
      top: columns.top[index],
      error: this.raised.get(index) ?? null
    };
  }

  path(index: number): string | null {
    return index < this.size ? this.modules[this.columns.module[index]][0] : null;
  }

  /** The first step of the module; undefined where it was not called. */
  first(path: string): number | undefined {
    return this.firsts.get(path);
  }

  /** How many values of a step's output are NaN or infinite. */
  notFinite(index: number): number {
    const figures = this.columns.statistics[index];
    return figures === null ? 0 : toNum(figures[5]);
  }

  /** The step whose output is the first that is not finite: the innermost one of those that gave it. */
  get firstNotFinite(): number | undefined {
    let found: number | undefined;
    for (let at = 0; at < this.size; at++) {
      if (this.notFinite(at) === 0) continue;
      if (found === undefined || (this.columns.value[at] ?? 0) <= (this.columns.value[found] ?? 0)) found = at;
    }
    return found;
  }

  /** The module's path below the step around it. */
  name(index: number): string {
    const path = this.path(index) ?? "";
    const above = this.parents[index] < 0 ? "" : this.path(this.parents[index]);
    if (path === "") return words.WHOLE_MODEL;
    return above && path.startsWith(`${above}.`) ? path.slice(above.length + 1) : path;
  }

  /** The last value that a module gave before this one came about. */
  givenBefore(value: number): number | undefined {
    const after = this.ordered.findIndex(given => given >= value);
    return after < 0 ? this.ordered[this.ordered.length - 1] : this.ordered[after - 1];
  }

  /** Whether a value is what a step gave; others come from outside, or from code between the modules. */
  isGiven(value: number): boolean {
    return this.given.has(value);
  }
}

/** "1×64×56×56", and how many other tensors there are. */
export function shapesText(shapes: readonly TensorShape[]): string {
  if (!shapes.length) return words.NO_TENSOR;
  const first = shapeText(shapes[0][1]);
  return shapes.length === 1 ? first : words.andMore(first, shapes.length - 1);
}

/** How many items of the batch the first tensor of a step's output holds. */
export function itemCount({ outputs, batchDim }: Step): number {
  const sizes = outputs[0]?.[1] ?? [];
  return sizes.length > Math.max(1, batchDim) ? sizes[batchDim] : 1;
}
