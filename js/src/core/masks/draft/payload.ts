// The payload of the mask editor: its schema and its types.

import * as v from "valibot";
import {
  areWithin,
  arrayOf,
  checked,
  count,
  isBoolean,
  isCount,
  isCounts,
  isFiniteNumber,
  isInteger,
  isPlace,
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
  tuple
} from "../../shared/base/schema";

/** a ≥ 0: how many indices of axis a stay; -n: the number n; or a product or sum of such. */
export type Expression = number | readonly ["*" | "+", ...Expression[]];

const SCHEMA_VERSION = 2;
const BEFORE_BLOCKS = 1; // of saved notebooks
const MAX_DEPTH = 64;
const MAX_INDICES = 2 ** 24; // of all axes together; more would fill the browser's memory

const isOperator = oneOf("*", "+");
const isSize = (value: unknown): value is number => isCount(value) && value > 0;
/** Whole numbers above 2^53 travel as text. */
const isNumeral = (value: unknown): value is number | string =>
  isFiniteNumber(value) || (isString(value) && /^-?\d+$/.test(value));
const isBit = (value: unknown): value is 0 | 1 | boolean => value === 0 || value === 1 || isBoolean(value);
const isMember = tuple(isString, isCount); // tensor, dimension
const isTensor = tuple(isCount, isBit, isNumeral, isNumeral, isCounts); // module, parameter, bytes, factor, terms
const isFlops = tuple(isNumeral, isCounts); // coefficient, terms

const isExpression = (value: unknown): value is Expression => isExpressionAt(value, 0);

function isExpressionAt(value: unknown, depth: number): boolean {
  if (!Array.isArray(value)) return isInteger(value);
  const [operator, ...parts] = value as unknown[];
  const isRight = depth < MAX_DEPTH && isOperator(operator) && parts.length > 0;
  return isRight && parts.every(part => isExpressionAt(part, depth + 1));
}

/** The highest number of an axis in an expression. */
function highest(expression: Expression): number {
  if (typeof expression === "number") return expression;
  const [, ...parts] = expression;
  return parts.reduce<number>((most, part) => Math.max(most, highest(part)), -Infinity);
}

const AxesSchema = v.pipe(
  table(
    {
      name: list(isString),
      label: list(isString),
      size: list(isSize),
      role: list(orNull(isString)),
      frozen: list(isPlace), // -1: free; else a place in reasons
      members: list(arrayOf(isMember)),
      by_ratio: list(isBoolean)
    },
    {
      reasons: list(isString),
      weights: v.optional(list(isSize), []), // of each axis; none in notebooks saved before there were any
      least: v.optional(list(isSize), []) // how many indices stay in any case; likewise
    }
  ),
  relations({
    frozen: ({ frozen, reasons }) => isWithin(frozen, reasons.length, -1),
    size: ({ size }) => size.reduce((total, one) => total + one, 0) <= MAX_INDICES
  })
);

/** For each axis, tensor and part of the FLOPs the innermost block that it goes with; -1: none. */
const BlocksSchema = v.pipe(
  table(
    {
      path: list(isString),
      params: list(isNumeral),
      flops: list(isNumeral),
      score: list(isValue), // null where it is unknown
      within: list(isPlace), // the innermost block that it lies in; -1: none
      approximate: list(isBoolean) // whether the FLOPs without it are
    },
    {
      importance: text, // what the scores are by
      of_axes: list(isPlace),
      of_tensors: list(isPlace),
      of_flops: list(isPlace)
    }
  ),
  relations({
    within: ({ within }) => isWithin(within, within.length, -1) && within.every((_, at) => ends(within, at))
  }),
  v.transform(blocks => ({
    ...blocks,
    params: blocks.params.map(Number),
    flops: blocks.flops.map(Number),
    score: blocks.score.map(score => (score === null ? NaN : Number(score)))
  }))
);
const NO_BLOCKS: v.InferInput<typeof BlocksSchema> = {
  path: [],
  params: [],
  flops: [],
  score: [],
  within: [],
  approximate: [],
  importance: "",
  of_axes: [],
  of_tensors: [],
  of_flops: []
};

/** Whether the way outwards comes to an end. */
function ends(within: readonly number[], at: number): boolean {
  let steps = 0;
  for (let outer = within[at]; outer >= 0; outer = within[outer]) if ((steps += 1) > within.length) return false;
  return true;
}

/** Whether each of so many parts has a block that there is, or none; without blocks nothing has to be said. */
const haveBlocks = (own: readonly number[], count: number, blocks: number): boolean =>
  (own.length === count || (!own.length && !blocks)) && isWithin(own, blocks, -1);

const MaskSchema = v.pipe(
  parts({
    schema_version: v.picklist([BEFORE_BLOCKS, SCHEMA_VERSION]),
    kind: v.literal("mask_editor"),
    title: text,
    axes: AxesSchema,
    blocks: v.optional(BlocksSchema, NO_BLOCKS),
    modules: list(isString),
    terms: list(isExpression),
    tensors: list(isTensor),
    flops: list(isFlops),
    approximate: v.boolean(),
    generation: count, // how often the model has been traced
    importances: list(isString)
  }),
  relations({
    terms: ({ terms, axes }) => terms.every(term => highest(term) < axes.name.length),
    tensors: ({ tensors, modules, terms }) =>
      tensors.every(([module, , , , own]) => module < modules.length && isWithin(own, terms.length)),
    flops: ({ flops, terms }) =>
      areWithin(
        flops.map(([, own]) => own),
        terms.length
      ),
    blocks: ({ blocks, axes, tensors, flops }) =>
      haveBlocks(blocks.of_axes, axes.name.length, blocks.path.length) &&
      haveBlocks(blocks.of_tensors, tensors.length, blocks.path.length) &&
      haveBlocks(blocks.of_flops, flops.length, blocks.path.length)
  }),
  v.transform(payload => ({
    ...payload,
    tensors: payload.tensors.map(([module, own, bytes, factor, terms]): TensorRecord => {
      return [module, own ? 1 : 0, Number(bytes), Number(factor), terms];
    }),
    flops: payload.flops.map(([coefficient, terms]): FlopRecord => [Number(coefficient), terms])
  }))
);

export type MaskPayload = v.InferOutput<typeof MaskSchema>;
type AxisTable = MaskPayload["axes"];
export type Member = AxisTable["members"][number][number];
type TensorRecord = [module: number, parameter: 0 | 1, bytes: number, factor: number, terms: number[]];
type FlopRecord = [coefficient: number, terms: number[]];

export const readMasks = (raw: unknown): MaskPayload => checked(MaskSchema, raw);
