// The opcodes of pickles of protocols 0 to 5, by their codes, as Python's pickletools documents them.

import { ensure } from "../bytes/limits";
import type { Bytes } from "../bytes/buffered";
import { Float } from "../bytes/graph_building";
import { anyText, numberIn } from "../bytes/numbers";
import {
  DICT,
  Long,
  MAX_LINE_LENGTH,
  MAX_TEXT_LENGTH,
  ObjectRecord,
  type Opcode,
  PickleMachine,
  Tuple,
  type Value,
  wholeOf
} from "./pickle";

const MAX_PREFIX_LENGTH = 2 ** 12; // bytes of a text that is too long to keep

/** The pickles that stand in bytes one after the other. */
export const picklesIn = (bytes: Bytes) => new PickleMachine(bytes, OPCODES);

const EMPTY = new Tuple([]);

const constant =
  (make: () => Value): Opcode =>
  pickles =>
    pickles.push(make());

const skipped =
  (length: number): Opcode =>
  pickles =>
    void pickles.bytes(length);

const number =
  (length: number): Opcode =>
  pickles =>
    pickles.push(pickles.count(length));

const tupleOf =
  (length: number): Opcode =>
  pickles =>
    pickles.contain(new Tuple(pickles.lastOnes(length)));

const text =
  (width: number): Opcode =>
  pickles =>
    pickles.push(pickles.text(pickles.count(width)));

const bytes =
  (width: number): Opcode =>
  pickles => {
    const found = pickles.content(pickles.count(width));
    pickles.push(found instanceof Uint8Array ? found.slice() : found); // the rest of the window need not stay for it
  };

const whole =
  (width: number): Opcode =>
  pickles =>
    pickles.push(pickles.whole(pickles.count(width)));

/** A number that stands for something in a table of the process that loads the file. */
const extension =
  (width: number): Opcode =>
  pickles =>
    pickles.push(pickles.named("copyreg", `_extension_registry[${pickles.count(width)}]`));

const get =
  (width: number): Opcode =>
  pickles =>
    pickles.push(pickles.remembered(pickles.count(width)));

const put =
  (width: number): Opcode =>
  pickles =>
    pickles.remember(pickles.count(width));

const list: Opcode = pickles => pickles.contain([]);
const tuple: Opcode = pickles => pickles.contain(new Tuple(pickles.sinceMark()));

function append(pickles: PickleMachine): void {
  const value = pickles.pop();
  pickles.append(pickles.top(), [value]);
}

function appends(pickles: PickleMachine): void {
  const values = pickles.sinceMark();
  pickles.append(pickles.top(), values);
}

function setItem(pickles: PickleMachine): void {
  const pair = pickles.lastOnes(2);
  pickles.putIn(pickles.top(), pair);
}

function setItems(pickles: PickleMachine): void {
  const pairs = pickles.sinceMark();
  pickles.putIn(pickles.top(), pairs);
}

function dict(pickles: PickleMachine): void {
  const pairs = pickles.sinceMark();
  pickles.contain(new Map(), DICT);
  pickles.putIn(pickles.top(), pairs);
}

/** REDUCE and NEWOBJ, which differ in how the object is made, and not in what it is made of. */
function made(pickles: PickleMachine): void {
  const args = pickles.pop();
  pickles.contain(new ObjectRecord(pickles.pop(), args));
}

function madeWithNames(pickles: PickleMachine): void {
  const [args, names] = pickles.lastOnes(2);
  const found = new ObjectRecord(pickles.pop(), args);
  found.state = names;
  pickles.contain(found);
}

function object(pickles: PickleMachine): void {
  const [maker, ...args] = pickles.sinceMark();
  ensure(maker !== undefined, "an object of no class in a pickle");
  pickles.contain(new ObjectRecord(maker, new Tuple(args)));
}

function instance(pickles: PickleMachine): void {
  const maker = pickles.globalLine();
  pickles.contain(new ObjectRecord(maker, new Tuple(pickles.sinceMark())));
}

function stackGlobal(pickles: PickleMachine): void {
  const [module, name] = pickles.lastOnes(2);
  pickles.push(pickles.named(module, name));
}

function build(pickles: PickleMachine): void {
  const state = pickles.pop();
  const target = pickles.top();
  if (target instanceof ObjectRecord) target.state = state;
}

function integer(pickles: PickleMachine): void {
  const line = pickles.line();
  const digits = line.length === 2 ? anyText(line) : "";
  pickles.push(digits === "00" ? false : digits === "01" ? true : wholeOf(line));
}

function float(pickles: PickleMachine): void {
  const digits = anyText(pickles.line()).trim().toLowerCase();
  const named = /^([-+]?)(inf(?:inity)?|nan)$/.exec(digits);
  ensure(named !== null || /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/.test(digits), "a number that is none");
  const infinity = named?.[1] === "-" ? -Infinity : Infinity;
  pickles.push(new Float(named === null ? Number(digits) : named[2] === "nan" ? NaN : infinity));
}

/** A text in quotes, with Python's escapes. */
function quoted(pickles: PickleMachine): void {
  const raw = latin(pickles.line()).trim();
  ensure(raw.length >= 2 && /^(['"])[^]*\1$/.test(raw), "a text without quotes in a pickle");
  pickles.push(unescaped(raw.slice(1, -1)));
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\n": "",
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v"
};

function unescaped(raw: string): string {
  const plain = raw.replace(/\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|[^])/g, (_, code: string) => {
    if (/^x./.test(code)) return String.fromCharCode(parseInt(code.slice(1), 16));
    if (/^[0-7]/.test(code)) return String.fromCharCode(parseInt(code, 8) & 255);
    return ESCAPES[code] ?? (code === "\\" || code === "'" || code === '"' ? code : `\\${code}`);
  });
  return anyText(Uint8Array.from(plain, character => character.charCodeAt(0)));
}

/** A text of protocol 0. */
function unicode(pickles: PickleMachine): void {
  const line = pickles.line(MAX_LINE_LENGTH);
  if (line.length > MAX_TEXT_LENGTH) pickles.push(new Long(line.length, rawText(line.subarray(0, MAX_PREFIX_LENGTH))));
  else pickles.push(rawText(line));
}

function rawText(line: Uint8Array): string {
  const escapes = /\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})/g;
  return latin(line).replace(escapes, (whole: string, short?: string, long?: string) => {
    const code = parseInt(short ?? long ?? "", 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

/** A character for each byte. */
function latin(line: Uint8Array): string {
  let result = "";
  for (const byte of line) result += String.fromCharCode(byte);
  return result;
}

const indexOf = (line: Uint8Array) => Number(wholeOf(line));

const BY_CODE: Readonly<Record<string, Opcode>> = {
  "\x80": skipped(1), // PROTO
  "\x95": skipped(8), // FRAME
  "(": pickles => pickles.mark(),
  "0": pickles => pickles.drop(),
  "1": pickles => void pickles.sinceMark(), // POP_MARK
  "2": pickles => pickles.push(pickles.top()), // DUP
  N: constant(() => null),
  "\x88": constant(() => true),
  "\x89": constant(() => false),
  I: integer,
  L: pickles => pickles.push(wholeOf(pickles.line())),
  F: float,
  J: pickles => pickles.push(pickles.count(4) | 0), // BININT
  K: number(1),
  M: number(2),
  "\x8a": whole(1),
  "\x8b": whole(4),
  G: pickles => pickles.push(new Float(Number(numberIn(pickles.bytes(8), "f64", false)))), // BINFLOAT
  S: quoted,
  U: text(1),
  T: text(4),
  V: unicode,
  "\x8c": text(1),
  X: text(4),
  "\x8d": text(8),
  C: bytes(1),
  B: bytes(4),
  "\x8e": bytes(8),
  "\x96": bytes(8), // BYTEARRAY8
  "\x97": constant(() => null), // NEXT_BUFFER
  "\x98": skipped(0), // READONLY_BUFFER
  ")": constant(() => EMPTY),
  t: tuple,
  "\x85": tupleOf(1),
  "\x86": tupleOf(2),
  "\x87": tupleOf(3),
  "]": list,
  l: pickles => pickles.contain(pickles.sinceMark()),
  a: append,
  e: appends,
  "\x8f": list, // EMPTY_SET
  "\x91": tuple, // FROZENSET
  "\x90": appends, // ADDITEMS
  "}": pickles => pickles.contain(new Map(), DICT),
  d: dict,
  s: setItem,
  u: setItems,
  c: pickles => pickles.push(pickles.globalLine()),
  "\x93": stackGlobal,
  i: instance,
  o: object,
  R: made,
  "\x81": made, // NEWOBJ
  "\x92": madeWithNames, // NEWOBJ_EX
  b: build,
  "\x82": extension(1),
  "\x83": extension(2),
  "\x84": extension(4),
  P: pickles => pickles.refer(anyText(pickles.line())),
  Q: pickles => pickles.refer(pickles.pop()),
  g: pickles => pickles.push(pickles.remembered(indexOf(pickles.line()))),
  h: get(1),
  j: get(4),
  p: pickles => pickles.remember(indexOf(pickles.line())),
  q: put(1),
  r: put(4),
  "\x94": pickles => pickles.rememberNext() // MEMOIZE
};

const OPCODES: readonly (Opcode | undefined)[] = Array.from(
  { length: 256 },
  (_, code) => BY_CODE[String.fromCharCode(code)]
);
