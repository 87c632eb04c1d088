// What plan.save writes, as far as a reader of it is shown: see modulekg_widgets/engine/pruning/plan/plan_file.py.

import { FileProblem } from "./file_problem";
import { type Check, isArrayOf, isInteger, isObject } from "./payload_checks";

export type Pair = readonly [number, number]; // before and after

export interface SavedAxis {
  readonly name: string;
  readonly size: number;
  readonly dropped: readonly number[];
  readonly members: readonly string[]; // "conv1.weight[0]"
}

export interface SavedPlan {
  readonly params: Pair;
  readonly flops: Pair;
  readonly macs: Pair;
  readonly axes: readonly SavedAxis[];
  readonly changes: readonly { kind: string; what: string; source: string }[];
  readonly attributes: readonly { name: string; before: string; after: string }[];
  readonly tensors: number; // how many are cut
}

const FORMAT = "modulekg-plan";
const VERSION = 1;
const LONGEST_TEXT = 10_000;
const LARGEST_SIZE = 2 ** 40;

export function isPlan(raw: unknown): raw is Record<string, unknown> {
  return isObject(raw) && raw.format === FORMAT;
}

/** The plan, once all that is shown of it is known to be right; throws `FileProblem`. */
export function readPlan(raw: Record<string, unknown>): SavedPlan {
  if (raw.version !== VERSION) {
    throw new FileProblem("version");
  }
  const [params, flops, macs] = (["params", "flops", "macs"] as const).map(name => pair(raw[name], name));
  need(Array.isArray(raw.tensors), "tensors");
  return {
    params,
    flops,
    macs,
    axes: each(raw.axes, "axes", axis),
    changes: each(raw.changes, "changes", change),
    attributes: attributes(raw.attributes),
    tensors: raw.tensors.length
  };
}

function need(condition: boolean, part: string): asserts condition {
  if (!condition) {
    throw new FileProblem("damaged", part);
  }
}

const isText = (value: unknown): value is string => typeof value === "string" && value.length <= LONGEST_TEXT;
const isSize: Check = value => isInteger(value) && Math.abs(value as number) <= LARGEST_SIZE;
const isCounted: Check = value => typeof value === "number" && Number.isFinite(value) && value >= 0;

function pair(value: unknown, part: string): Pair {
  need(isArrayOf(value, isCounted) && value.length === 2, part);
  return value as unknown as Pair;
}

function each<T>(value: unknown, part: string, read: (entry: Record<string, unknown>) => T): T[] {
  need(isArrayOf(value, isObject), part);
  return value.map(entry => read(entry as Record<string, unknown>));
}

function axis({ name, size, dropped, members }: Record<string, unknown>): SavedAxis {
  need(isText(name) && isSize(size) && isArrayOf(members, isText), "axes");
  need(isArrayOf(dropped, isSize) && isAscending(dropped as number[], size as number), "dropped");
  return { name, size: size as number, dropped: dropped as number[], members: members as string[] };
}

/** Places in the axis, none twice, and not all of them. */
function isAscending(places: readonly number[], size: number): boolean {
  return places.length < size && places.every((place, i) => place > (i ? places[i - 1] : -1) && place < size);
}

function change({ kind, what, source }: Record<string, unknown>): SavedPlan["changes"][number] {
  need(isText(kind) && isText(what) && isText(source), "changes");
  return { kind, what, source };
}

function attributes(value: unknown): SavedPlan["attributes"] {
  need(isObject(value), "attributes");
  return Object.entries(value).map(([name, both]) => {
    need(isText(name) && Array.isArray(both) && both.length === 2, "attributes");
    return { name, before: sizes(both[0]), after: sizes(both[1]) };
  });
}

/** A size, several, or a tuple of them, as Python writes it. */
function sizes(value: unknown): string {
  const isTuple = isObject(value) && "tuple" in value;
  const inner = isTuple ? value.tuple : value;
  need(isSize(inner) || (isArrayOf(inner, isSize) && inner.length <= LONGEST_TEXT), "attributes");
  const text = Array.isArray(inner) ? inner.join(", ") : String(inner);
  return isTuple ? `(${text})` : Array.isArray(inner) ? `[${text}]` : text;
}
