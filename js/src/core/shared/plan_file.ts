// What plan.save writes, as far as a reader of it is shown: see modulekg_widgets/engine/pruning/plan/plan_file.py.

import * as v from "valibot";
import {
  checked,
  dictionary,
  is,
  isArrayOf,
  isFiniteNumber,
  isInteger,
  isObject,
  list,
  parts,
  relations,
  tuple
} from "./schema";

const FORMAT = "modulekg-plan";
const VERSION = 1;
const LONGEST_TEXT = 10_000;
const LARGEST_SIZE = 2 ** 40;

type Sizes = number | number[];

const isText = (value: unknown): value is string => typeof value === "string" && value.length <= LONGEST_TEXT;
const isSize = (value: unknown): value is number => isInteger(value) && Math.abs(value) <= LARGEST_SIZE;
const isAmount = (value: unknown): value is number => isFiniteNumber(value) && value >= 0;
const isSizes = (value: unknown): value is Sizes =>
  isSize(value) || (isArrayOf(value, isSize) && value.length <= LONGEST_TEXT);
/** A size, several, or a tuple of them, as Python has it. */
const isSetting = (value: unknown): value is Sizes | { tuple: Sizes } =>
  isObject(value) ? isSizes(value.tuple) : isSizes(value);

const shortText = is(isText);
const beforeAndAfter = is(tuple(isAmount, isAmount));

const AxisSchema = v.pipe(
  v.object({
    name: shortText,
    size: is(isSize),
    dropped: v.message(list(isSize), "dropped"),
    members: list(isText) // "conv1.weight[0]"
  }),
  relations({ dropped: ({ dropped, size }) => isAscending(dropped, size) })
);

const PlanSchema = parts({
  version: v.literal(VERSION),
  params: beforeAndAfter,
  flops: beforeAndAfter,
  macs: beforeAndAfter,
  axes: v.array(AxisSchema),
  changes: v.array(v.object({ kind: shortText, what: shortText, source: shortText })),
  attributes: v.pipe(
    dictionary(tuple(isSetting, isSetting)),
    v.check(settings => Object.keys(settings).every(isText)),
    v.transform(settings =>
      Object.entries(settings).map(([name, [before, after]]) => ({
        name,
        before: written(before),
        after: written(after)
      }))
    )
  ),
  tensors: v.pipe(
    v.array(v.unknown()),
    v.transform(tensors => tensors.length) // how many are cut
  )
});

export type SavedPlan = v.InferOutput<typeof PlanSchema>;
export type SavedAxis = v.InferOutput<typeof AxisSchema>;
export type Pair = SavedPlan["params"];

export function isPlan(raw: unknown): boolean {
  return isObject(raw) && raw.format === FORMAT;
}

/** The plan, once all that is shown of it is known to be right; throws `PayloadError`. */
export const readPlan = (raw: unknown): SavedPlan => checked(PlanSchema, raw);

/** Places in the axis, none twice, and not all of them. */
function isAscending(places: readonly number[], size: number): boolean {
  return places.length < size && places.every((place, i) => place > (i ? places[i - 1] : -1) && place < size);
}

/** As Python writes it. */
function written(setting: Sizes | { tuple: Sizes }): string {
  if (Array.isArray(setting)) return `[${setting.join(", ")}]`;
  return typeof setting === "number" ? String(setting) : `(${[setting.tuple].flat().join(", ")})`;
}
