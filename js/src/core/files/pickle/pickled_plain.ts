// Short values of pickles as text or numbers, for display.

import { Float, elementText } from "../bytes/graph_building";
import { grouped, numberIn, type NumberKind, widthOf } from "../bytes/numbers";
import { Global, Long, ObjectRecord, Persistent, Tuple, type Value } from "./pickle";
import { excerpt } from "../bytes/limits";
import type { Plain } from "../bytes/records";

const MAX_TEXT_LENGTH = 1_000;
const MAX_LISTED = 8; // values of a list that are told one by one
const MAX_NUMBER = 2n ** 64n;
const SIZE = "torch.Size";
const LETTERS = 8; // of a text that are looked at in the time of an element
const LARGE = 500; // elements, as which a number beyond 2^53 counts: it may have 32,768 bits

/** What can be shown; null where a value cannot, and for None. */
type PlainScalar = Float | number | bigint | string | boolean | null;

/** The path of what makes something, also where torch's old format wraps it; "" for what is made itself. */
export function classPath(maker: Value | undefined): string {
  const isWrapped = maker instanceof Persistent && maker.key instanceof Tuple && maker.key.items[0] === "module";
  const found = isWrapped ? (maker.key as Tuple).items[1] : maker;
  return found instanceof Global ? found.path : "";
}

/** The arguments of what is made; none where they are no tuple. */
export const argsOf = ({ args }: ObjectRecord): readonly Value[] => (args instanceof Tuple ? args.items : []);

/**
 * How long it takes to tell a value, in elements of a list that are looked at: texts and large numbers are looked at
 * character by character.
 */
export function costOf(value: Value): number {
  if (Array.isArray(value)) return listCost(value);
  if (value instanceof Tuple) return listCost(value.items);
  if (!(value instanceof ObjectRecord)) return elementCost(value);
  const first = argsOf(value)[0];
  if (Array.isArray(first)) return listCost(first);
  return first instanceof Tuple ? listCost(first.items) : 0;
}

const listCost = (values: readonly Value[]) =>
  values.length > MAX_LISTED
    ? values.length
    : values.reduce<number>((total, value) => total + 1 + elementCost(value), 0);

function elementCost(value: Value): number {
  if (typeof value === "bigint") return LARGE;
  return typeof value === "string" ? Math.floor(Math.min(value.length, 2 * MAX_TEXT_LENGTH) / LETTERS) : 0;
}

export function plain(value: Value): Plain {
  const told = plainScalar(value);
  if (told instanceof Float) return told.value;
  return typeof told === "bigint" ? Number(told) : told;
}

/** The text of a key of a dict. */
export function keyText(key: Value): string {
  const told = plainScalar(key);
  if (told !== null || key === null) return typeof told === "string" ? told : elementText(told);
  return key instanceof Uint8Array ? "<bytes>" : "<Key>";
}

function plainScalar(value: Value): PlainScalar {
  if (typeof value === "bigint") return wholeOf(value);
  if (typeof value === "string") return cut(value);
  if (typeof value === "number" || typeof value === "boolean" || value instanceof Float) return value;
  if (value instanceof Global) return value.path;
  if (value instanceof ObjectRecord) return objectOf(value);
  if (Array.isArray(value)) return listOf(value, true);
  return value instanceof Tuple ? listOf(value.items, false) : null;
}

const wholeOf = (value: bigint): PlainScalar => {
  const size = value < 0n ? -value : value;
  return size < MAX_NUMBER ? value : `a number of ${grouped(size.toString(2).length)} bits`;
};

function cut(value: string): string {
  if (value.length <= MAX_TEXT_LENGTH) return value;
  const characters = [...value.slice(0, 2 * MAX_TEXT_LENGTH + 2)]; // not halves of those beyond 16 bits
  return characters.length <= MAX_TEXT_LENGTH ? value : `${characters.slice(0, MAX_TEXT_LENGTH - 1).join("")}…`;
}

function objectOf(made: ObjectRecord): PlainScalar {
  const path = classPath(made.maker);
  const args = argsOf(made);
  if (path === "torch.device" && typeof args[0] === "string") {
    const parts = args.slice(0, 2).filter(part => typeof part === "string" || typeof part === "number");
    return parts.map(part => excerpt(String(part))).join(":");
  }
  if (path === SIZE && args.length > 0) {
    const sizes = args[0];
    return Array.isArray(sizes) ? listOf(sizes, true) : sizes instanceof Tuple ? listOf(sizes.items, false) : null;
  }
  return numberOf(made);
}

/** A short list as it is written in Python, and a long one by its length; null where it holds more than numbers. */
function listOf(values: readonly Value[], isList: boolean): string | null {
  if (values.length === 0 || !values.every(isElement)) return null;
  if (values.length > MAX_LISTED) return `${grouped(values.length)} values`;
  const told = values.map(value => (typeof value === "string" ? repr(cut(value)) : numberText(plainScalar(value))));
  if (isList) return `[${told.join(", ")}]`;
  return `(${told.join(", ")}${told.length === 1 ? "," : ""})`;
}

const numberText = (told: PlainScalar) => (typeof told === "string" ? repr(told) : elementText(told));

const isElement = (value: Value) =>
  ["number", "bigint", "boolean", "string"].includes(typeof value) || value instanceof Float;

const ESCAPED: ReadonlyMap<string, string> = new Map([
  ["\\", "\\\\"],
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"]
]);

/** A text as Python writes it, in quotes. */
function repr(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = text.replace(/[\\']|[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, each => {
    if (each === "'") return quote === "'" ? "\\'" : "'";
    return ESCAPED.get(each) ?? escaped(each.codePointAt(0) ?? 0);
  });
  return quote + inner + quote;
}

function escaped(code: number): string {
  const digits = code.toString(16);
  if (code < 256) return `\\x${digits.padStart(2, "0")}`;
  return code < 65_536 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

const MAX_SCALAR_LENGTH = 16; // bytes
const SCALARS: readonly string[] = ["numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"];
const NUMBERS: ReadonlyMap<string, NumberKind> = new Map([
  ["f4", "f32"],
  ["f8", "f64"],
  ["i1", "i8"],
  ["i2", "i16"],
  ["i4", "i32"],
  ["i8", "i64"],
  ["u1", "u8"],
  ["u4", "u32"],
  ["u8", "u64"],
  ["b1", "u8"]
]);

/** The number that a scalar of numpy is; null for anything else. */
function numberOf(made: ObjectRecord): PlainScalar {
  const [dtype, content] = argsOf(made);
  const isScalar = SCALARS.includes(classPath(made.maker)) && argsOf(made).length === 2;
  if (!isScalar || !(dtype instanceof ObjectRecord)) return null;
  const code = argsOf(dtype)[0];
  const kind = typeof code === "string" ? NUMBERS.get(code) : undefined;
  const inner = encoded(content);
  const isShort = (typeof inner === "string" || inner instanceof Uint8Array) && inner.length <= MAX_SCALAR_LENGTH;
  const raw = isShort ? firstBytes(inner) : null;
  if (kind === undefined || raw?.length !== widthOf(kind)) return null;
  const isSwapped = dtype.state instanceof Tuple && dtype.state.items[1] === ">";
  const found = numberIn(raw, kind, !isSwapped);
  if (code === "b1") return found !== 0;
  return kind.startsWith("f") ? new Float(Number(found)) : found;
}

/** Bytes that an old protocol writes as text, one character for each. */
export function encoded(content: Value): Value {
  const isEncoded = content instanceof ObjectRecord && classPath(content.maker) === "_codecs.encode";
  return isEncoded ? (argsOf(content)[0] ?? null) : content;
}

/** The first of some bytes; null for what is none. */
export function firstBytes(given: Value, most = MAX_SCALAR_LENGTH): Uint8Array | null {
  const content = encoded(given);
  const first = content instanceof Long ? content.head : content;
  if (typeof first !== "string") return first instanceof Uint8Array ? first.subarray(0, most) : null;
  return Uint8Array.from(
    Array.from(first.slice(0, most), character => character.charCodeAt(0)).filter(code => code < 256) // as latin-1 has them
  );
}
