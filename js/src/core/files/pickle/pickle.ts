// A pickle machine that executes nothing: imports, calls and objects are recorded, never made.
// Each opcode makes at most one value and refers to those before it, so that what a pickle makes is no larger than it is.

import { FileProblem } from "../../shared/payload/file_problem";
import { limitExceeded, malformed, ensure } from "../bytes/limits";
import type { Bytes } from "../bytes/buffered";
import { Float } from "../bytes/graph_building";
import { MODULES, NAMES } from "./python2_names";
import { anyText } from "../bytes/numbers";

const MAX_OPCODES = 4_000_000; // 100,000 tensors take 3.2 million
const MAX_CONTAINERS = 1_000_000; // 100,000 tensors take 800,000
export const DICT = 5; // containers, as which a dict counts: it takes as much memory
const MAX_GLOBALS = 20_000;
const MAX_GLOBAL_LENGTH = 1_000;
export const MAX_TEXT_LENGTH = 2 ** 20; // bytes of a text that is kept; a longer one is known by its length
const MAX_NUMBER_LENGTH = 2 ** 12; // bytes of a whole number
export const MAX_LINE_LENGTH = 2 ** 24; // bytes of a line that is looked through
const HEAD = 2 ** 12;
const MAX_DENSE_MEMO = 2 ** 22; // numbers of the memo that stand in an array
const MAX_SPARSE_MEMO = 4_096; // larger ones
const NEWLINE = 10;

/** A list, or what the items of a set are kept in. */
type List = Value[];
export type Dict = Map<Value, Value>;
export type Value =
  | string
  | number
  | bigint
  | boolean
  | null
  | Float
  | Uint8Array
  | List
  | Dict
  | Tuple
  | Global
  | ObjectRecord
  | Persistent
  | Long;

export class Tuple {
  constructor(readonly items: readonly Value[]) {}
}

/** A class or function that a pickle names and whoever loads it imports. */
export class Global {
  readonly path: string;

  constructor(
    readonly module: string,
    readonly name: string
  ) {
    this.path = `${module}.${name}`;
  }
}

/** What loading would make by calling `maker`: its arguments, then its state, and what is put into it. */
export class ObjectRecord {
  state: Value = null;
  items: List | null = null;
  entries: Dict | null = null;

  constructor(
    readonly maker: Value,
    readonly args: Value
  ) {}
}

/** What a pickle leaves to its reader to find, as the storages of tensors. */
export class Persistent {
  constructor(readonly key: Value) {}
}

/** A text or bytes that are too long to keep: how many bytes, and the first of them, of a text as one. */
export class Long {
  constructor(
    readonly length: number,
    readonly head: Uint8Array | string
  ) {}
}

/** Does what an opcode says; it reads all that it needs before it changes anything. */
export type Opcode = (pickles: PickleMachine) => void;

const STOP = 0x2e;

/** One pickle after the other; `position` is after the last opcode. */
export class PickleMachine {
  position = 0;
  readonly globals = new Map<string, Global>(); // what all of them name
  readonly persistent: Persistent[] = []; // what all of them leave to their reader
  stack: Value[] = [];
  private memo: (Value | undefined)[] = []; // a map takes several times as long
  private scattered = new Map<string, Value>(); // engines let numbers, not texts, be chosen so that a map of them is slow
  private remembers = 0;
  private marks: number[] = [];
  private at = 0;
  private left = MAX_OPCODES;
  private containersLeft = MAX_CONTAINERS;

  constructor(
    private readonly from: Bytes,
    private readonly opcodes: readonly (Opcode | undefined)[]
  ) {}

  /** What the next pickle makes; called again, it goes on with the opcode that has not had its bytes. */
  load(): Value {
    for (; this.left > 0; this.left--) {
      this.at = this.position;
      const code = this.from.byte(this.at++);
      if (code === STOP) return this.finished();
      const opcode = this.opcodes[code];
      if (opcode === undefined) throw malformed(`no pickle at byte ${this.position}`);
      opcode(this);
      this.position = this.at;
    }
    throw limitExceeded("opcodes");
  }

  private finished(): Value {
    const value = this.pop();
    this.position = this.at;
    [this.stack, this.marks, this.memo] = [[], [], []];
    this.scattered = new Map<string, Value>();
    this.remembers = 0;
    return value;
  }

  push(value: Value): void {
    this.stack.push(value);
  }

  /** Pushes a container, or something else that takes memory of its own. */
  contain(value: Value, units = 1): void {
    this.containersLeft -= units;
    if (this.containersLeft < 0) throw limitExceeded("lists and objects");
    this.push(value);
  }

  pop(): Value {
    const value = this.stack.pop();
    if (value === undefined) throw this.wrong();
    return value;
  }

  top(): Value {
    const value = this.stack[this.stack.length - 1];
    if (value === undefined) throw this.wrong();
    return value;
  }

  mark(): void {
    this.marks.push(this.stack.length);
  }

  sinceMark(): List {
    const start = this.marks.pop();
    if (start === undefined) throw this.wrong();
    return this.stack.splice(start);
  }

  lastOnes(number: number): List {
    if (this.stack.length < number) throw this.wrong();
    return this.stack.splice(this.stack.length - number);
  }

  /** POP takes a mark, too. */
  drop(): void {
    if (this.marks.length > 0 && this.marks[this.marks.length - 1] === this.stack.length) this.marks.pop();
    else this.pop();
  }

  /** MEMOIZE gives the numbers one after the other. */
  rememberNext(): void {
    this.remember(this.remembers);
  }

  remembered(index: number): Value {
    const value = isInOrder(index) ? this.memo[index] : this.scattered.get(scatteredKey(index));
    if (value === undefined) throw this.wrong();
    return value;
  }

  remember(index: number): void {
    const value = this.top();
    if (!isInOrder(index)) {
      this.scatter(scatteredKey(index), value);
      return;
    }
    while (this.memo.length <= index) this.memo.push(undefined); // an array with holes is a map
    if (this.memo[index] === undefined) this.remembers += 1;
    this.memo[index] = value;
  }

  private scatter(key: string, value: Value): void {
    if (!this.scattered.has(key)) this.remembers += 1;
    this.scattered.set(key, value);
    if (this.scattered.size > MAX_SPARSE_MEMO) throw limitExceeded("things to remember");
  }

  bytes(length: number): Uint8Array {
    const found = this.from.bytes(this.at, length);
    this.at += length;
    return found;
  }

  byte(): number {
    return this.from.byte(this.at++);
  }

  /** An unsigned number of one, two or four bytes. */
  count(length: number): number {
    let total = 0;
    for (let index = 0, scale = 1; index < length; index++, scale *= 256) total += this.byte() * scale;
    return total;
  }

  /** Leaves out what is long; bytes that are not there are found missing by the opcode after them. */
  content(length: number): Uint8Array | Long {
    if (length <= MAX_TEXT_LENGTH) return this.bytes(length);
    const long = new Long(length, this.from.bytes(this.at, HEAD).slice());
    this.at += length;
    return long;
  }

  text(length: number): string | Long {
    const found = this.content(length);
    return found instanceof Uint8Array ? anyText(found) : new Long(found.length, wholeText(found.head));
  }

  line(longest = MAX_TEXT_LENGTH): Uint8Array {
    let end = this.at;
    while (this.from.byte(end) !== NEWLINE) {
      if (++end - this.at > longest) throw this.wrong();
    }
    const line = this.bytes(end - this.at);
    this.at += 1;
    return line;
  }

  /** A whole number of that many bytes, the lowest first. */
  whole(length: number): number | bigint {
    if (length > MAX_NUMBER_LENGTH) throw this.wrong();
    const bytes = this.bytes(length);
    if (length === 0) return 0;
    const digits = Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).reverse();
    return narrow(BigInt.asIntN(8 * length, BigInt(`0x${digits.join("")}`)));
  }

  named(module: Value, name: Value): Global {
    const isName = (part: Value): part is string => typeof part === "string" && part.length <= MAX_GLOBAL_LENGTH;
    if (!isName(module) || !isName(name)) throw this.wrong();
    const moved = NAMES.get(`${module} ${name}`)?.split(" ");
    const found =
      moved === undefined ? new Global(MODULES.get(module) ?? module, name) : new Global(moved[0], moved[1]);
    const key = `${found.module.length} ${found.path}`;
    const known = this.globals.get(key);
    if (known !== undefined) return known;
    if (this.globals.size >= MAX_GLOBALS) throw limitExceeded("things to import");
    this.globals.set(key, found);
    return found;
  }

  globalLine(): Global {
    const [module, name] = [this.line(MAX_GLOBAL_LENGTH), this.line(MAX_GLOBAL_LENGTH)];
    return this.named(anyText(module), anyText(name));
  }

  refer(key: Value): void {
    const found = new Persistent(key);
    this.persistent.push(found);
    this.contain(found);
  }

  putIn(target: Value, pairs: List): void {
    const into = target instanceof ObjectRecord ? (target.entries ??= new Map()) : target;
    if (!(into instanceof Map) || pairs.length % 2 !== 0) throw this.wrong();
    for (let index = 0; index < pairs.length; index += 2) into.set(pairs[index], pairs[index + 1]);
  }

  append(target: Value, values: List): void {
    const into = target instanceof ObjectRecord ? (target.items ??= []) : target;
    if (!Array.isArray(into)) throw this.wrong();
    for (const value of values) into.push(value);
  }

  wrong(): FileProblem {
    return malformed(`no pickle at byte ${this.position}`);
  }
}

const isInOrder = (index: number) => index >= 0 && index < MAX_DENSE_MEMO;

/** No text of digits alone: engines take those for numbers. */
const scatteredKey = (index: number) => `#${index}`;

/** What bytes that are cut off within a text begin with. */
const wholeText = (head: Uint8Array | string) =>
  typeof head === "string" ? head : anyText(head).replace(/\ufffd+$/, "");

/** As a number where it is exact. */
export function narrow(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** A whole number in digits, as old pickles write it. */
export function wholeOf(line: Uint8Array): number | bigint {
  ensure(line.length <= MAX_NUMBER_LENGTH, "a number of too many digits");
  const digits = anyText(line).trim().replace(/L$/, "");
  ensure(/^[-+]?\d+$/.test(digits), "a number that is none");
  return narrow(digits.startsWith("-") ? -BigInt(digits.slice(1)) : BigInt(digits.replace("+", "")));
}
