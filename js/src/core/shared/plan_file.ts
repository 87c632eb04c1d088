// What plan.save writes, as far as a reader of it is shown: see modulekg_widgets/engine/pruning/plan/saved/plan_file.py.

import * as v from "valibot";
import {
  arrayOf,
  checked,
  dictionary,
  type Guarded,
  is,
  isArrayOf,
  isFiniteNumber,
  isInteger,
  isNumber,
  isObject,
  list,
  parts,
  record,
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

const beforeAndAfter = is(tuple(isAmount, isAmount));

// guards, as a hostile file may have a million of each
const isAxis = record({
  name: isText,
  size: isSize,
  dropped: arrayOf(isNumber),
  members: arrayOf(isText) // "conv1.weight[0]"
});
const isChange = record({ kind: isText, what: isText, source: isText });

const PlanSchema = v.pipe(
  parts({
    version: v.literal(VERSION),
    params: beforeAndAfter,
    flops: beforeAndAfter,
    macs: beforeAndAfter,
    axes: list(isAxis),
    changes: list(isChange),
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
      v.custom<unknown[]>(Array.isArray),
      v.transform(tensors => tensors.length) // how many are cut
    )
  }),
  relations({ dropped: ({ axes }) => axes.every(({ dropped, size }) => isAscending(dropped, size)) })
);

export type SavedPlan = v.InferOutput<typeof PlanSchema>;
export type SavedAxis = Guarded<typeof isAxis>;
export type Pair = SavedPlan["params"];

export function isPlan(raw: unknown): boolean {
  return isObject(raw) && raw.format === FORMAT;
}

/** The plan, once all that is shown of it is known to be right; throws `PayloadError`. */
export const readPlan = (raw: unknown): SavedPlan => checked(PlanSchema, raw);

/** Places in the axis, none twice, and not all of them. */
function isAscending(places: readonly number[], size: number): boolean {
  return (
    places.length < size &&
    places.every((place, i) => isInteger(place) && place > (i ? places[i - 1] : -1) && place < size)
  );
}

/** As Python writes it. */
function written(setting: Sizes | { tuple: Sizes }): string {
  if (Array.isArray(setting)) return `[${setting.join(", ")}]`;
  return typeof setting === "number" ? String(setting) : `(${[setting.tuple].flat().join(", ")})`;
}
