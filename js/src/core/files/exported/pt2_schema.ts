// The JSON that `torch.export.save` writes: texts, sizes, dtypes, names and arguments, checked as they are read.

import { FORMAT_TABLES } from "../../../generated/format_tables";
import { type Fields, isObject } from "../../shared/base/schema";
import { limitExceeded, MAX_DIMENSIONS, ensure, product } from "../bytes/limits";
import type { Plain, ValueRecord } from "../bytes/records";
import { type Element, elementText, Float, MAX_ELEMENTS, short, shortText } from "../bytes/graph_building";

/** ScalarType of torch/_export/serde/schema.py: torch's word, and the bytes of an element. */
const DTYPES: ReadonlyMap<unknown, readonly [string, number]> = new Map(
  FORMAT_TABLES.pt2_dtypes.map(([number, word, nbytes]) => [number, [word, nbytes]])
);

/** MemoryFormat and Layout of the same file. */
const MEMORY_FORMATS: ReadonlyMap<unknown, string> = new Map<unknown, string>(FORMAT_TABLES.pt2_memory_formats);
const LAYOUTS: ReadonlyMap<unknown, string> = new Map<unknown, string>(FORMAT_TABLES.pt2_layouts);

const MAX_EXPRESSION_LENGTH = 400; // characters of an expression

/** The value, if it is a text. */
export function text(value: unknown): string {
  ensure(typeof value === "string", "something else stands where a text should");
  return value;
}

/** The value, if it is an object; null is an empty one. */
export function mapping(value: unknown): Fields {
  ensure(value === null || value === undefined || isObject(value), "something else stands where an object should");
  return (value ?? {}) as Fields;
}

/** The value, if it is a list; null is an empty one. */
export function listed(value: unknown): readonly unknown[] {
  ensure(value === null || value === undefined || Array.isArray(value), "something else stands where a list should");
  return (value ?? []) as readonly unknown[];
}

/** What an object has by a name; malformed where it has nothing of it. */
export function required(object: Fields, name: string): unknown {
  ensure(name in object, `${name} is missing`);
  return object[name];
}

/** The value, if it is a whole number of a size that offsets and counts have. */
export function integer(value: unknown): number {
  ensure(Number.isSafeInteger(value), "something else stands where a whole number should");
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
  ensure(
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
function sizeText(expression: string): string {
  const symbols = /Symbol\('([^'()]{1,100})'[^()]{0,200}\)|Integer\((-?\d{1,20})\)/g;
  return expression
    .slice(0, MAX_EXPRESSION_LENGTH)
    .replace(symbols, (_, symbol?: string, whole?: string) => symbol ?? whole ?? "");
}

/** The path of a module without the numbers of its calls, as "act" for "act@1". */
export const modulePath = (name: string) => name.replace(/@\d{1,9}(?=\.|$)/g, "");

function dimensions(meta: Fields, key: string): readonly unknown[] {
  const found = listed(meta[key]);
  ensure(found.length <= MAX_DIMENSIONS, "a tensor has too many dimensions");
  return found;
}

function sizeOf(size: Fields): number | string {
  if ("as_int" in size) return integer(size.as_int);
  return sizeText(text(required(mapping(required(size, "as_expr")), "expr_str")));
}

// Arguments of the operators of an exported program: which of them are values, and the others in short.

const MAX_DEPTH = 30; // lists within lists
const MAX_SIZES = 100;

const HOLDERS: ReadonlySet<string> = new Set(
  (
    "as_tensors as_optional_tensor as_optional_tensors as_nested_tensors as_sym_int as_sym_ints as_sym_bool " +
    "as_sym_bools as_sym_float as_sym_floats"
  ).split(" ")
);
const NO_SETTINGS: ReadonlySet<string> = new Set([
  ...HOLDERS,
  "as_none",
  "as_tensor",
  "as_token",
  "as_string_to_argument"
]);

/** The names of the values in an argument: tensors, lists of them, and sizes that are computed. */
export function namesOf(argument: unknown, depth = 0): string[] {
  if (depth > MAX_DEPTH) throw limitExceeded("arguments within arguments");
  if (Array.isArray(argument)) return argument.flatMap(part => namesOf(part, depth + 1));
  return Object.entries(mapping(argument)).flatMap(([kind, value]) => {
    if (kind === "as_tensor" || kind === "as_token") return named(mapping(value).name);
    // in a list, tensors stand without their kind
    if (kind === "as_name" || (kind === "name" && depth > 0)) return named(value);
    if (kind === "as_string_to_argument") {
      return Object.values(mapping(value)).flatMap(part => namesOf(part, depth + 1));
    }
    return HOLDERS.has(kind) ? namesOf(value, depth + 1) : [];
  });
}

const named = (name: unknown) => (name ? [text(name)] : []);

/** An argument that is no value, as a plain setting; null for one that is. */
export function settingOf(argument: Fields): Plain {
  for (const [kind, value] of Object.entries(argument)) {
    const known = WAYS.get(kind);
    if (known !== undefined) return known(value, kind);
    if (!NO_SETTINGS.has(kind)) return shortJson(value, kind);
  }
  return null;
}

type Way = (value: unknown, kind: string) => Plain;

const numbered =
  (words: ReadonlyMap<unknown, string>): Way =>
  (value, kind) =>
    Number.isInteger(value) ? (words.get(value) ?? shortText(`${kind.slice(3)} ${String(value)}`)) : null;

const symbolic: Way = value => {
  const told = Object.entries(mapping(value)).find(([key]) => key !== "as_name");
  return told === undefined ? null : shortJson(told[1], told[0]);
};

const symbolics: Way = value =>
  shortTexts(
    listed(value)
      .slice(0, MAX_SIZES)
      .map(part => {
        const [kind, first] = Object.entries(mapping(part))[0] ?? ["", null];
        return jsonText(first, kind);
      })
  );

function device(value: unknown): string {
  const found = mapping(value);
  const kind = text(required(found, "type"));
  return shortText(found.index === null || found.index === undefined ? kind : `${kind}:${String(found.index)}`);
}

const WAYS: ReadonlyMap<string, Way> = new Map<string, Way>([
  ["as_memory_format", numbered(MEMORY_FORMATS)],
  ["as_layout", numbered(LAYOUTS)],
  ["as_scalar_type", value => dtypeOf(value)],
  ["as_device", device],
  ["as_custom_obj", value => shortText(text(required(mapping(value), "class_fqn")))],
  ["as_sym_int", symbolic],
  ["as_sym_float", symbolic],
  ["as_sym_bool", symbolic],
  ["as_sym_ints", symbolics],
  ["as_sym_floats", symbolics],
  ["as_sym_bools", symbolics]
]);

/** A value of JSON as a setting; `kind` tells floats, which Python writes with a fraction. */
export function shortJson(value: unknown, kind: string): Plain {
  if (Array.isArray(value)) return shortTexts(value.slice(0, MAX_ELEMENTS + 1).map(part => jsonText(part, kind)));
  if (isObject(value)) return shortText(`{${mappingText(value)}}`);
  return short(elementOf(value, kind));
}

function jsonText(value: unknown, kind: string): string {
  const told = Array.isArray(value) || isObject(value) ? shortJson(value, kind) : short(elementOf(value, kind));
  return typeof told === "number" ? elementText(elementOf(value, kind)) : elementText(told);
}

const mappingText = (value: Fields) =>
  Object.entries(value)
    .slice(0, MAX_ELEMENTS + 1)
    .map(([key, part]) => `${shortText(key)}: ${jsonText(part, key)}`)
    .join(", ");

function shortTexts(texts: readonly string[]): string {
  const more = texts.length > MAX_ELEMENTS ? ", …" : "";
  return shortText(`[${texts.slice(0, MAX_ELEMENTS).join(", ")}${more}]`);
}

function elementOf(value: unknown, kind: string): Element {
  if (typeof value === "number") return kind.includes("float") || !Number.isInteger(value) ? new Float(value) : value;
  return typeof value === "string" || typeof value === "boolean" ? value : null;
}
