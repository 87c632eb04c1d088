// Arguments of the operators of an exported program: which of them are values, and the others in short.

import { type Fields, isObject } from "../shared/schema";
import { excess } from "./bounds";
import { type Element, elementText, Float, MOST_ELEMENTS, short, shortText } from "./graph_parts";
import { dtypeOf, LAYOUTS, listed, mapping, MEMORY_FORMATS, required, text } from "./pt2_schema";
import type { Plain } from "./records";

const DEEPEST = 30; // lists within lists
const MOST_SIZES = 100;

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
  if (depth > DEEPEST) throw excess("arguments within arguments");
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
      .slice(0, MOST_SIZES)
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
  if (Array.isArray(value)) return shortTexts(value.slice(0, MOST_ELEMENTS + 1).map(part => jsonText(part, kind)));
  if (isObject(value)) return shortText(`{${mappingText(value)}}`);
  return short(elementOf(value, kind));
}

function jsonText(value: unknown, kind: string): string {
  const told = Array.isArray(value) || isObject(value) ? shortJson(value, kind) : short(elementOf(value, kind));
  return typeof told === "number" ? elementText(elementOf(value, kind)) : elementText(told);
}

const mappingText = (value: Fields) =>
  Object.entries(value)
    .slice(0, MOST_ELEMENTS + 1)
    .map(([key, part]) => `${shortText(key)}: ${jsonText(part, key)}`)
    .join(", ");

function shortTexts(texts: readonly string[]): string {
  const more = texts.length > MOST_ELEMENTS ? ", …" : "";
  return shortText(`[${texts.slice(0, MOST_ELEMENTS).join(", ")}${more}]`);
}

function elementOf(value: unknown, kind: string): Element {
  if (typeof value === "number") return kind.includes("float") || !Number.isInteger(value) ? new Float(value) : value;
  return typeof value === "string" || typeof value === "boolean" ? value : null;
}
