// The payload of the mask editor: its types and its checks.

import { OTHER_VERSION } from "../shared/payload";
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
  need,
  oneOf,
  PayloadError,
  tuple
} from "../shared/payload_checks";

/** a ≥ 0: how many indices of axis a stay; -n: the number n; or a product or sum of such. */
export type Expression = number | readonly ["*" | "+", ...Expression[]];
export type Member = readonly [tensor: string, dim: number];
export type TensorRecord = readonly [module: number, parameter: 0 | 1, bytes: number, factor: number, terms: number[]];
export type FlopRecord = readonly [coefficient: number, terms: number[]];

export interface AxisTable {
  readonly name: readonly string[];
  readonly label: readonly string[];
  readonly size: readonly number[];
  readonly role: readonly (string | null)[];
  readonly frozen: readonly number[]; // -1: free; else a place in reasons
  readonly reasons: readonly string[];
  readonly members: readonly (readonly Member[])[];
  readonly by_ratio: readonly boolean[];
}

export interface MaskPayload {
  readonly title: string;
  readonly axes: AxisTable;
  readonly modules: readonly string[];
  readonly terms: readonly Expression[];
  readonly tensors: readonly TensorRecord[];
  readonly flops: readonly FlopRecord[];
  readonly approximate: boolean;
  readonly generation: number; // how often the model has been traced
  readonly importances: readonly string[];
}

export const SCHEMA_VERSION = 1;
const DEEPEST = 64;
const MOST_INDICES = 2 ** 24; // of all axes together; more would fill the browser's memory

export function readMasks(raw: unknown): MaskPayload {
  need(isObject(raw), "payload");
  if (raw.schema_version !== SCHEMA_VERSION) throw new PayloadError(OTHER_VERSION);
  need(raw.kind === "mask_editor", "kind");
  need(isString(raw.title), "title");
  const axes = checkAxes(raw.axes);
  need(isStrings(raw.modules), "modules");
  need(isArrayOf(raw.terms, isExpression(axes)), "terms");
  const isTerms: Check = value => isArrayOf(value, below((raw.terms as unknown[]).length));
  const isTensor = tuple(below((raw.modules as unknown[]).length), oneOfBits, isNumber, isNumber, isTerms);
  need(isArrayOf(raw.tensors, isTensor), "tensors");
  need(isArrayOf(raw.flops, tuple(isNumber, isTerms)), "flops");
  need(typeof raw.approximate === "boolean", "approximate");
  need(isStrings(raw.importances), "importances");
  need(isCount(raw.generation), "generation");
  return {
    ...(raw as unknown as MaskPayload),
    tensors: (raw.tensors as TensorRecord[]).map(([at, own, bytes, factor, terms]) => [
      at,
      own ? 1 : 0,
      Number(bytes),
      Number(factor),
      terms
    ]),
    flops: (raw.flops as FlopRecord[]).map(([coefficient, terms]) => [Number(coefficient), terms])
  };
}

// whole numbers above 2^53 travel as text
const isNumber: Check = value => Number.isFinite(value) || (isString(value) && /^-?\d+$/.test(value as string));
const oneOfBits: Check = value => value === 0 || value === 1 || typeof value === "boolean";

/** How many axes there are. */
function checkAxes(axes: unknown): number {
  need(isObject(axes) && Array.isArray(axes.name), "axes");
  const count = axes.name.length;
  need(isStrings(axes.reasons), "reasons");
  const reasons = (axes.reasons as unknown[]).length;
  const isReason: Check = value => isInteger(value) && (value as number) >= -1 && (value as number) < reasons;
  const columns: [keyof AxisTable, Check][] = [
    ["name", isString],
    ["label", isString],
    ["size", value => isCount(value) && (value as number) > 0],
    ["role", value => value === null || isString(value)],
    ["frozen", isReason],
    ["members", value => isArrayOf(value, tuple(isString, isCount))],
    ["by_ratio", value => typeof value === "boolean"]
  ];
  for (const [name, check] of columns) column(axes as Fields, name, count, check);
  need((axes.size as number[]).reduce((total, size) => total + size, 0) <= MOST_INDICES, "size");
  return count;
}

function isExpression(axes: number): Check {
  const isOperator = oneOf("*", "+");
  const check = (value: unknown, depth: number): boolean => {
    if (!Array.isArray(value)) return isInteger(value) && (value as number) < axes;
    const [operator, ...parts] = value as unknown[];
    return depth < DEEPEST && isOperator(operator) && parts.length > 0 && parts.every(part => check(part, depth + 1));
  };
  return value => check(value, 0);
}
