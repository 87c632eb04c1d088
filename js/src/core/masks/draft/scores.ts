// Scores of the indices: how important each is, in which order they are removed, and how many a ratio removes.

import { bytesOf } from "./bit_table";

/** So many numbers, or none: 4 or 8 bytes each, little end first. */
export function readScores(value: unknown, count: number): Float64Array | null {
  const bytes = bytesOf(value);
  const width = bytes && count ? bytes.length / count : 0;
  if (!bytes || (width !== 4 && width !== 8)) return null;
  const view = new DataView(bytes.buffer);
  const read = (at: number) => (width === 4 ? view.getFloat32(4 * at, true) : view.getFloat64(8 * at, true));
  return Float64Array.from({ length: count }, (_, at) => read(at));
}

// many are sorted by the digits of their 64 bits: with a comparison they would hold up several frames
const MANY = 20_000;
const DIGIT = 16; // bits
const BUCKETS = 1 << DIGIT;

/** Places in ascending order of their values, equal ones as they stand, NaN last: numpy's stable argsort. */
export function argsort(values: Float64Array): Uint32Array {
  const places = Uint32Array.from(values, (_, at) => at);
  if (values.length < MANY) return places.sort((a, b) => compare(values[a], values[b]) || a - b);
  const { low, high } = sortable(values);
  let [from, to] = [places, new Uint32Array(places.length)];
  for (const half of [low, high])
    for (const shift of [0, DIGIT]) {
      distribute(half, shift, from, to);
      [from, to] = [to, from];
    }
  return from;
}

function compare(x: number, y: number): number {
  if (x < y) return -1;
  if (x > y) return 1;
  return x === y ? 0 : Number(Number.isNaN(x)) - Number(Number.isNaN(y));
}

/** Two halves that are in the order of the values when they are compared as whole numbers. */
function sortable(values: Float64Array): { low: Uint32Array; high: Uint32Array } {
  const [low, high] = [new Uint32Array(values.length), new Uint32Array(values.length)];
  const view = new DataView(new ArrayBuffer(8));
  values.forEach((value, at) => {
    view.setFloat64(0, value + 0); // -0 is 0
    const [top, bottom] = [view.getUint32(0), view.getUint32(4)];
    const isNegative = top >>> 31 === 1;
    high[at] = Number.isNaN(value) ? 0xffffffff : isNegative ? ~top : top | 0x80000000;
    low[at] = Number.isNaN(value) ? 0xffffffff : isNegative ? ~bottom : bottom;
  });
  return { low, high };
}

/** By one digit, in the order in which they come. */
function distribute(keys: Uint32Array, shift: number, from: Uint32Array, to: Uint32Array): void {
  const starts = new Uint32Array(BUCKETS + 1);
  for (const place of from) starts[((keys[place] >>> shift) & (BUCKETS - 1)) + 1] += 1;
  for (let bucket = 1; bucket <= BUCKETS; bucket += 1) starts[bucket] += starts[bucket - 1];
  for (const place of from) {
    const bucket = (keys[place] >>> shift) & (BUCKETS - 1);
    to[starts[bucket]] = place;
    starts[bucket] += 1;
  }
}

/** The values divided by the mean of their sizes, as numpy's mean sums them; all zeros stay so. */
export function normalised(values: Float64Array): Float64Array {
  const size = mean(values);
  return size === 0 ? values.slice() : values.map(value => value / size);
}

/** Of their sizes. */
function mean(values: Float64Array): number {
  return values.length ? pairwiseSum(values.map(Math.abs), 0, values.length) / values.length : 0;
}

const WEAK = 0.5; // of the mean: the share of an axis that may go does not bound what is below

// numpy's order of additions: another one would end in other last digits, and so in other ties
const BLOCK = 128;

function pairwiseSum(values: Float64Array, start: number, count: number): number {
  if (count < 8) return sum(values, start, start + count);
  if (count <= BLOCK) return blockSum(values, start, count);
  const half = count >> 1;
  const first = half - (half % 8);
  return pairwiseSum(values, start, first) + pairwiseSum(values, start + first, count - first);
}

function sum(values: Float64Array, start: number, end: number, before = 0): number {
  let total = before;
  for (let at = start; at < end; at += 1) total += values[at];
  return total;
}

function blockSum(values: Float64Array, start: number, count: number): number {
  const lanes = values.slice(start, start + 8);
  const even = count - (count % 8);
  for (let at = 8; at < even; at += 1) lanes[at % 8] += values[start + at];
  const [a, b, c, d, e, f, g, h] = lanes;
  return sum(values, start + even, start + count, a + b + (c + d) + (e + f + (g + h)));
}

/** The scores of all axes, with the orders that follow from them, made when they are asked for. */
export class Scores {
  private readonly starts: number[] = [];
  private readonly orders = new Map<number, Uint32Array>();
  private readonly relative = new Map<number, Float64Array>();
  private ranked: { key: string; owners: Uint32Array } | null = null;

  constructor(
    private readonly values: Float64Array,
    private readonly sizes: readonly number[],
    private readonly weights: readonly number[] = [], // of each axis: what an index does to them adds up
    readonly isComparable = false // from axis to axis, as they are
  ) {
    let start = 0;
    for (const size of sizes) {
      this.starts.push(start);
      start += size;
    }
  }

  at(axis: number, index: number): number {
    return this.values[this.starts[axis] + index];
  }

  of(axis: number): Float64Array {
    return this.values.subarray(this.starts[axis], this.starts[axis] + this.sizes[axis]);
  }

  /** The indices of an axis, the first to go first. */
  order(axis: number): Uint32Array {
    let found = this.orders.get(axis);
    if (!found) {
      found = argsort(this.of(axis));
      this.orders.set(axis, found);
    }
    return found;
  }

  /** So that all axes can be ranked together. */
  normalised(axis: number): Float64Array {
    let found = this.relative.get(axis);
    if (!found) {
      found = this.isComparable ? this.of(axis) : normalised(this.of(axis));
      this.relative.set(axis, found);
    }
    return found;
  }

  /** How many indices of an axis matter clearly less than the others. */
  weak(axis: number): number {
    const least = WEAK * mean(this.of(axis));
    return this.of(axis).filter(score => score < least).length;
  }

  /** To which of `axes` (a place in the list) each index belongs, over all of them, the least important first. */
  owners(axes: readonly number[]): Uint32Array {
    const key = axes.join();
    if (this.ranked?.key === key) return this.ranked.owners;
    const count = axes.reduce((total, axis) => total + this.sizes[axis], 0);
    const every = new Float64Array(count);
    const owner = new Uint32Array(count);
    let start = 0;
    axes.forEach((axis, place) => {
      const weight = this.isComparable ? 1 : (this.weights[axis] ?? 1);
      every.set(
        this.normalised(axis).map(value => value * weight),
        start
      );
      owner.fill(place, start, start + this.sizes[axis]);
      start += this.sizes[axis];
    });
    const owners = argsort(every).map(at => owner[at]);
    this.ranked = { key, owners };
    return owners;
  }
}

// How many indices go when a ratio says so: the same numbers as mk.plan has before its dry run.

export type Scope = "local" | "global";

const FLOOR = 0.1; // of what an axis has: a common ranking takes no layer away altogether
const MAX_AXIS_FACTOR = 1.5; // times the share that goes of all axes
const SLACK = 1e-9; // 0.29 * 100 is a little less than 29

/** How many of `size` indices a ratio takes; never more than it says, and never all: `least` stay. */
export function removedCount(size: number, ratio: number, least = 1): number {
  return Math.max(0, Math.min(size - least, Math.floor(size * ratio + SLACK)));
}

/** How many indices of each axis go when the lowest scores of all axes go; `weak` says how many may go in any case. */
function removedByRank(
  sizes: readonly number[],
  owners: Uint32Array,
  ratio: number,
  weak: readonly number[],
  floors: readonly number[] = []
): number[] {
  let left = Math.floor(owners.length * ratio + SLACK);
  const stay = [...sizes];
  const least = sizes.map((size, axis) => {
    const fair = Math.floor(size * (1 - MAX_AXIS_FACTOR * ratio) + SLACK);
    if (floors[axis] > 1) return floors[axis];
    return Math.max(1, Math.ceil(size * Math.min(FLOOR, 1 - ratio) - SLACK), Math.min(fair, size - weak[axis]));
  });
  for (let at = 0; at < owners.length && left > 0; at += 1) {
    const axis = owners[at];
    if (stay[axis] > least[axis]) {
      stay[axis] -= 1;
      left -= 1;
    }
  }
  return sizes.map((size, axis) => size - stay[axis]);
}

/** For each of `axes` how many indices go; `least` says of each how many stay in any case. */
export function removedByRatio(
  axes: readonly number[],
  sizes: readonly number[],
  ratio: number,
  scope: Scope,
  scores: Scores,
  least: readonly number[] = []
): number[] {
  const own = axes.map(axis => sizes[axis]);
  const floors = axes.map(axis => least[axis] ?? 1);
  if (scope === "local") return own.map((size, at) => removedCount(size, ratio, floors[at]));
  const weak = axes.map(axis => (scores.isComparable ? sizes[axis] : scores.weak(axis))); // one unit tells all
  return removedByRank(own, scores.owners(axes), ratio, weak, floors);
}
