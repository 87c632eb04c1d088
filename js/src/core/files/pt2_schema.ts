// Parts of the JSON that `torch.export.save` writes, checked as they are taken out: texts, sizes, dtypes, names.

import { type Fields, isObject } from "../shared/schema";
import { MOST_DIMENSIONS, need, product } from "./bounds";
import type { ValueRecord } from "./records";

/** ScalarType of torch/_export/serde/schema.py: torch's word, and the bytes of an element. */
const DTYPES: ReadonlyMap<unknown, readonly [string, number]> = new Map([
  [1, ["uint8", 1]],
  [2, ["int8", 1]],
  [3, ["int16", 2]],
  [4, ["int32", 4]],
  [5, ["int64", 8]],
  [6, ["float16", 2]],
  [7, ["float32", 4]],
  [8, ["float64", 8]],
  [9, ["complex32", 4]],
  [10, ["complex64", 8]],
  [11, ["complex128", 16]],
  [12, ["bool", 1]],
  [13, ["bfloat16", 2]],
  [28, ["uint16", 2]],
  [29, ["float8_e4m3fn", 1]],
  [30, ["float8_e5m2", 1]],
  [31, ["float8_e4m3fnuz", 1]],
  [32, ["float8_e5m2fnuz", 1]],
  [33, ["float8_e8m0fnu", 1]],
  [34, ["uint32", 4]],
  [35, ["uint64", 8]]
]);

/** MemoryFormat and Layout of the same file. */
export const MEMORY_FORMATS: ReadonlyMap<unknown, string> = new Map([
  [1, "contiguous_format"],
  [2, "channels_last"],
  [3, "channels_last_3d"],
  [4, "preserve_format"]
]);
export const LAYOUTS: ReadonlyMap<unknown, string> = new Map([
  [1, "sparse_coo"],
  [2, "sparse_csr"],
  [3, "sparse_csc"],
  [4, "sparse_bsr"],
  [5, "sparse_bsc"],
  [6, "_mkldnn"],
  [7, "strided"]
]);

const LONGEST_SIZE = 400; // characters of an expression

/** The value, if it is a text. */
export function text(value: unknown): string {
  need(typeof value === "string", "something else stands where a text should");
  return value;
}

/** The value, if it is an object; null is an empty one. */
export function mapping(value: unknown): Fields {
  need(value === null || value === undefined || isObject(value), "something else stands where an object should");
  return (value ?? {}) as Fields;
}

/** The value, if it is a list; null is an empty one. */
export function listed(value: unknown): readonly unknown[] {
  need(value === null || value === undefined || Array.isArray(value), "something else stands where a list should");
  return (value ?? []) as readonly unknown[];
}

/** What an object has by a name; malformed where it has nothing of it. */
export function required(object: Fields, name: string): unknown {
  need(name in object, `${name} is missing`);
  return object[name];
}

/** The value, if it is a whole number of a size that offsets and counts have. */
export function integer(value: unknown): number {
  need(Number.isSafeInteger(value), "something else stands where a whole number should");
  return value as number;
}

/** The word for a dtype; "" for none, a number for what is newer than this. */
export function dtypeOf(number: unknown): string {
  if (number === null || number === undefined || number === 0) return "";
  return DTYPES.get(number)?.[0] ?? `type ${integer(number)}`;
}

/** What an element takes; 0 where that is not known. */
export const bytesOf = (number: unknown) => DTYPES.get(number)?.[1] ?? 0;

/** Sizes or strides that have to be numbers, as those of weights. */
export function fixedShape(meta: Fields, key: "sizes" | "strides" = "sizes"): readonly number[] {
  const shape = dimensions(meta, key).map(size => integer(required(mapping(size), "as_int")));
  need(
    shape.every(size => size >= 0),
    "a tensor has sizes that no tensor has"
  );
  product(shape, () => "a tensor");
  return shape;
}

/** Shape and dtype of a value; what is symbolic is a text. */
export function valueOf(meta: Fields): ValueRecord {
  return { shape: dimensions(meta, "sizes").map(size => sizeOf(mapping(size))), dtype: dtypeOf(meta.dtype) };
}

/** A symbolic size in short: "s77" for "Symbol('s77', positive=True, integer=True)". */
export function sizeText(expression: string): string {
  const symbols = /Symbol\('([^'()]{1,100})'[^()]{0,200}\)|Integer\((-?\d{1,20})\)/g;
  return expression
    .slice(0, LONGEST_SIZE)
    .replace(symbols, (_, symbol?: string, whole?: string) => symbol ?? whole ?? "");
}

/** The path of a module without the numbers of its calls, as "act" for "act@1". */
export const modulePath = (name: string) => name.replace(/@\d{1,9}(?=\.|$)/g, "");

function dimensions(meta: Fields, key: string): readonly unknown[] {
  const found = listed(meta[key]);
  need(found.length <= MOST_DIMENSIONS, "a tensor has too many dimensions");
  return found;
}

function sizeOf(size: Fields): number | string {
  if ("as_int" in size) return integer(size.as_int);
  return sizeText(text(required(mapping(required(size, "as_expr")), "expr_str")));
}
