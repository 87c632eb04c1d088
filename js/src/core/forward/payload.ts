// The steps of a forward pass as the kernel sent them, checked, with the questions that the views ask.

import { shapeText } from "../shared/dataflow";
import { OTHER_VERSION } from "../shared/payload";
import {
  below,
  type Check,
  column,
  isArrayOf,
  isCount,
  isInteger,
  isObject,
  isString,
  isValue,
  need,
  PayloadError,
  tuple
} from "../shared/payload_checks";

export const FORWARD_VERSION = 1;

export type Num = number | string; // NaN and the infinities are text
export type TensorShape = readonly [name: string, sizes: readonly number[], dtype: string];
export type TopKind = "class" | "channel" | "element";
export type Entry = readonly [index: readonly number[], value: Num, share: Num | null];
export type Top = readonly [kind: TopKind, entries: readonly Entry[]];
export type Figures = readonly [min: Num, max: Num, mean: Num, std: Num, zeros: Num, nonFinite: Num, count: Num];

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

interface Columns {
  readonly module: readonly number[];
  readonly depth: readonly number[];
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  readonly sources: readonly (readonly number[])[];
  readonly value: readonly (number | null)[];
  readonly batch_dim: readonly number[];
  readonly statistics: readonly (Figures | null)[];
  readonly top: readonly (Top | null)[];
}

const isNum: Check = value => isValue(value) && value !== null;
const isTensor = tuple(isString, value => isArrayOf(value, isCount), isString);
const orNull =
  (check: Check): Check =>
  value =>
    value === null || check(value);
const isFigures = tuple(isNum, isNum, isNum, isNum, isNum, isNum, isNum);
const isEntry = tuple(value => isArrayOf(value, isCount), isNum, orNull(isNum));

export const isTop = tuple(
  value => value === "class" || value === "channel" || value === "element",
  value => isArrayOf(value, isEntry)
);

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
  private readonly modules: readonly (readonly [path: string, className: string])[];
  private readonly shapes: readonly (readonly TensorShape[])[];
  private readonly columns: Columns;
  private readonly raised: ReadonlyMap<number, string>;
  private readonly firsts = new Map<string, number>();
  private readonly given = new Set<number>(); // values that are some step's output
  private readonly ordered: readonly number[]; // the same, in the order in which they came about
  private readonly parents: Int32Array; // the step around each; −1 around the first one

  /** Raises a PayloadError for a payload of another version or with damaged parts. */
  constructor(raw: unknown) {
    if (!isObject(raw) || raw.schema_version !== FORWARD_VERSION || raw.kind !== "forward_player")
      throw new PayloadError(OTHER_VERSION);
    const { modules, shapes, steps, raised, title, error, failed, dropped, run } = raw;
    need(isArrayOf(modules, tuple(isString, isString)), "modules");
    need(
      isArrayOf(shapes, shape => isArrayOf(shape, isTensor)),
      "shapes"
    );
    need(isObject(steps) && Array.isArray(steps.module), "steps");
    this.size = (steps.module as unknown[]).length;
    column(steps, "module", this.size, below(modules.length));
    for (const name of ["inputs", "outputs"]) column(steps, name, this.size, below(shapes.length));
    for (const name of ["depth", "batch_dim"]) column(steps, name, this.size, isCount);
    column(steps, "sources", this.size, value => isArrayOf(value, isInteger));
    column(steps, "value", this.size, orNull(isInteger));
    column(steps, "statistics", this.size, orNull(isFigures));
    column(steps, "top", this.size, orNull(isTop));
    need(isArrayOf(raised, tuple(below(this.size), isString)), "raised");
    need(isString(title) && orNull(isString)(error) && isCount(dropped) && isInteger(run), "title");
    need(orNull(below(this.size))(failed), "failed");
    this.modules = modules as unknown as Forward["modules"];
    this.shapes = shapes as unknown as Forward["shapes"];
    this.columns = steps as unknown as Columns;
    this.raised = new Map(raised as [number, string][]);
    this.title = title as string;
    this.error = error as string | null;
    this.failed = failed as number | null;
    this.dropped = dropped as number;
    this.run = run as number;
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

  /** The module's path below the step around it. */
  name(index: number): string {
    const path = this.path(index) ?? "";
    const above = this.parents[index] < 0 ? "" : this.path(this.parents[index]);
    if (path === "") return "the model";
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
  if (!shapes.length) return "no tensor";
  const first = shapeText(shapes[0][1]);
  return shapes.length === 1 ? first : `${first} and ${shapes.length - 1} more`;
}

/** How many items of the batch the first tensor of a step's output holds. */
export function itemCount({ outputs, batchDim }: Step): number {
  const sizes = outputs[0]?.[1] ?? [];
  return sizes.length > Math.max(1, batchDim) ? sizes[batchDim] : 1;
}
