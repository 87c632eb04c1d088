// Parameters, FLOPs and bytes before and after, from the payload's expressions; only what changed is computed anew.

import type { Expression, MaskPayload } from "./payload";

export interface Amount {
  readonly before: number;
  readonly after: number;
}

export interface Totals {
  readonly params: Amount;
  readonly flops: Amount;
  readonly bytes: Amount;
}

/** Path of a module -> its own parameters before the first cut; empty where there was none. */
export type Uncut = ReadonlyMap<string, number>;

/** The value of an expression when so many indices of each axis stay. */
export function evaluate(expression: Expression, kept: ArrayLike<number>): number {
  if (typeof expression === "number") return expression < 0 ? -expression : kept[expression];
  const [operator, ...parts] = expression;
  return operator === "*"
    ? parts.reduce<number>((product, part) => product * evaluate(part, kept), 1)
    : parts.reduce<number>((sum, part) => sum + evaluate(part, kept), 0);
}

/** The axes that an expression depends on. */
export function axesOf(expression: Expression): number[] {
  if (typeof expression === "number") return expression < 0 ? [] : [expression];
  return expression.slice(1).flatMap(part => axesOf(part as Expression));
}

interface Entry {
  readonly factor: number;
  readonly terms: readonly number[];
  readonly block: number; // with which it goes; -1: none
}

export class Counters {
  private readonly kept: number[];
  private readonly terms: Float64Array;
  private readonly records: readonly Entry[]; // tensors, then operators
  private readonly before: Float64Array; // of each record
  private readonly after: Float64Array;
  private readonly termsOf: readonly number[][]; // of each axis
  private readonly recordsOf: readonly number[][]; // of each term
  private gone: ReadonlySet<number> = new Set(); // blocks

  constructor(private readonly payload: MaskPayload) {
    const { axes, terms, tensors, flops, blocks } = payload;
    this.kept = [...axes.size];
    this.records = [
      ...tensors.map(([, , , factor, own], at) => ({ factor, terms: own, block: blocks.of_tensors[at] ?? -1 })),
      ...flops.map(([factor, own], at) => ({ factor, terms: own, block: blocks.of_flops[at] ?? -1 }))
    ];
    this.termsOf = inverse(terms.map(axesOf), axes.size.length);
    this.recordsOf = inverse(
      this.records.map(record => [...record.terms]),
      terms.length
    );
    this.terms = Float64Array.from(terms, term => evaluate(term, this.kept));
    this.before = Float64Array.from(this.records, record => this.product(record));
    this.after = this.before.slice();
  }

  /** So many indices of these axes stay now. */
  update(changes: Iterable<readonly [axis: number, kept: number]>): void {
    const terms = new Set<number>();
    for (const [axis, kept] of changes) {
      if (this.kept[axis] === kept) continue;
      this.kept[axis] = kept;
      this.termsOf[axis].forEach(term => terms.add(term));
    }
    const records = new Set<number>();
    for (const term of terms) {
      this.terms[term] = evaluate(this.payload.terms[term], this.kept);
      this.recordsOf[term].forEach(record => records.add(record));
    }
    for (const record of records) this.after[record] = this.remaining(this.records[record]);
  }

  /** These blocks go, and no others. */
  remove(blocks: ReadonlySet<number>): void {
    const before = this.gone;
    this.gone = blocks;
    this.records.forEach((record, at) => {
      if (before.has(record.block) !== blocks.has(record.block)) this.after[at] = this.remaining(record);
    });
  }

  totals(): Totals {
    const { tensors } = this.payload;
    const [params, bytes, flops] = [zero(), zero(), zero()];
    this.records.forEach((_, at) => {
      const [before, after] = [this.before[at], this.after[at]];
      if (at >= tensors.length) add(flops, before, after);
      else {
        const [, isParameter, width] = tensors[at];
        add(bytes, before * width, after * width);
        if (isParameter) add(params, before, after);
      }
    });
    // what goes with an element of a list counts by shares, of which the sum is a whole number but for rounding
    for (const amount of [params, flops, bytes])
      [amount.before, amount.after] = [Math.round(amount.before), Math.round(amount.after)];
    return { params, flops, bytes };
  }

  /**
   * Of each module with parameters in it or below the share of them that goes, or went with a cut: `uncut` says how many
   * a module had of its own before the first one, with those of the blocks that have gone from it. The model itself
   * is "".
   */
  shares(uncut: Uncut = new Map()): Record<string, number> {
    const own = new Map<string, { before: number; after: number }>();
    this.payload.tensors.forEach(([module, isParameter], at) => {
      if (isParameter) add(entry(own, this.payload.modules[module]), this.before[at], this.after[at]);
    });
    for (const module of uncut.keys()) entry(own, module); // one that has nothing of its own any more
    const found = new Map<string, { before: number; after: number }>();
    for (const [module, { before, after }] of own)
      for (const path of upwards(module)) add(entry(found, path), uncut.get(module) ?? before, after);
    const filled = [...found].filter(([, { before }]) => before > 0);
    return Object.fromEntries(filled.map(([path, { before, after }]) => [path, Math.max(0, 1 - after / before)]));
  }

  /** Nothing of a record that goes with a block, whatever else goes in there. */
  private remaining(record: Entry): number {
    return this.gone.has(record.block) ? 0 : this.product(record);
  }

  private product({ factor, terms }: Entry): number {
    let product = factor;
    for (const term of terms) product *= this.terms[term];
    return product;
  }
}

const zero = () => ({ before: 0, after: 0 });

function entry<Key>(amounts: Map<Key, { before: number; after: number }>, key: Key) {
  const amount = amounts.get(key) ?? zero();
  amounts.set(key, amount);
  return amount;
}

function add(amount: { before: number; after: number }, before: number, after: number): void {
  amount.before += before;
  amount.after += after;
}

/** A dotted path and all above it. */
function* upwards(path: string): Generator<string> {
  for (let rest = path; rest !== ""; rest = rest.slice(0, Math.max(0, rest.lastIndexOf(".")))) yield rest;
  yield "";
}

function inverse(lists: readonly (readonly number[])[], count: number): number[][] {
  const found: number[][] = Array.from({ length: count }, () => []);
  lists.forEach((list, at) => new Set(list).forEach(entry => found[entry].push(at)));
  return found;
}
