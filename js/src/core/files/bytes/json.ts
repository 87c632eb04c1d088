// Parser of JSON in model files: depth and number of values are limited before anything is built.

import { type Fields, isObject } from "../../shared/base/schema";
import { limitExceeded, malformed, ensure } from "./limits";

const MAX_DEPTH = 200; // lists and objects within each other
const MAX_PARTS = 2_000_000; // lists and objects
const MAX_NAMES = 2_200_000; // 500,000 tensors have 2 million
const FEW = 64; // names of an object
const MAX_OBJECT_NAMES = 600_000; // names of objects that have more than few: each is another
const MAX_COMMAS = 6_000_000; // 500,000 tensors have 4 million

/** A value, and how many names the objects of its document have: more than those of the value where one stands twice. */
interface Named {
  readonly value: unknown;
  readonly names: number;
}

export function parseNamed(bytes: Uint8Array, what: string): Named {
  const names = measured(bytes, what);
  return { value: parsed(bytes, what), names };
}

/** The value of a document; `unique` refuses a name that stands twice in one object. */
export function parseJson(bytes: Uint8Array, what: string, unique = false): unknown {
  const { value, names } = parseNamed(bytes, what);
  ensure(!unique || namesIn(value) === names, `a name stands twice in ${what}`);
  return value;
}

/** The object that a document is. */
export function parseObject(bytes: Uint8Array, what: string, unique = false): Fields {
  const value = parseJson(bytes, what, unique);
  ensure(isObject(value), `${what} is not an object`);
  return value;
}

const [QUOTE, BACKSLASH, COLON, COMMA, LIST, LIST_END, OBJECT, OBJECT_END] = [...'"\\:,[]{}'].map(each =>
  each.charCodeAt(0)
);

/** How many names its objects have. */
function measured(bytes: Uint8Array, what: string): number {
  let [depth, parts, names, ofMany, commas, isInText] = [0, 0, 0, 0, 0, false];
  const own = new Uint32Array(MAX_DEPTH + 1); // names of the objects that are open, by depth
  for (let at = 0; at < bytes.length; at++) {
    const code = bytes[at];
    if (isInText) {
      at += code === BACKSLASH ? 1 : 0;
      isInText = code !== QUOTE;
    } else if (code === QUOTE) {
      isInText = true;
    } else if (code === COLON) {
      ofMany += ++own[Math.max(depth, 0)] > FEW ? 1 : 0;
      if (++names > MAX_NAMES || ofMany > MAX_OBJECT_NAMES) throw limitExceeded(`names in ${what}`);
    } else if (code === COMMA) {
      if (++commas > MAX_COMMAS) throw limitExceeded(`values in ${what}`);
    } else if (code === LIST || code === OBJECT) {
      depth += 1;
      parts += 1;
      if (depth > MAX_DEPTH) throw limitExceeded(`lists within lists in ${what}`);
      own[Math.max(depth, 0)] = 0;
      if (parts > MAX_PARTS) throw limitExceeded(`lists and objects in ${what}`);
    } else if (code === LIST_END || code === OBJECT_END) {
      depth -= 1;
    }
  }
  return names;
}

function parsed(bytes: Uint8Array, what: string): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes));
  } catch {
    throw malformed(`${what} is not JSON`); // never the parser's text: it quotes the file
  }
}

function namesIn(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  const inner: unknown[] = Array.isArray(value) ? value : Object.values(value);
  let names = Array.isArray(value) ? 0 : inner.length;
  for (const each of inner) if (typeof each === "object") names += namesIn(each);
  return names;
}
