// Routing channels between neighbouring columns: every bundle of lines that changes its height there gets a track.

export interface Bundle {
  left: number[]; // heights at which it comes from the left
  right: number[]; // heights at which it goes on
  track: number; // -1: it goes straight on
  detour?: Detour; // where two would change places, one goes by a height of its own
}

interface Detour {
  y: number; // to which its first track leads
  track: number; // from there on
}

const NEAR = 5; // lines nearer than this would be taken for one
const MAX_COMPARED = 120; // bundles of one channel that are compared in pairs

/** Numbers the tracks from left to right; how many there are. */
export function assignTracks(bundles: readonly Bundle[]): number {
  bundles.forEach(bundle => {
    bundle.track = -1;
    bundle.detour = undefined;
  });
  const bent = bundles.map(partOf).filter(({ span: [top, bottom] }) => bottom - top >= 0.5);
  const gains = bent.length > MAX_COMPARED ? null : gainsOf(bent);
  let count = 0;
  const placed: Part[] = [];
  for (const part of new Ordering(bundles, bent, gains).run()) {
    part.track = 0;
    for (const other of placed) {
      if (other.track >= part.track && meets(part.span, other.span)) part.track = other.track + 1;
    }
    placed.push(part);
    count = Math.max(count, part.track + 1);
    if (part.isSecond && part.bundle.detour) part.bundle.detour.track = part.track;
    else part.bundle.track = part.track;
  }
  return count;
}

type Span = readonly [top: number, bottom: number];

/** A bundle, or one of the two tracks of one that makes a detour. */
interface Part {
  bundle: Bundle;
  left: readonly number[];
  right: readonly number[];
  span: Span;
  track: number;
  isSecond: boolean;
}

function partOf(bundle: Bundle): Part {
  return part(bundle, bundle.left, bundle.right, false);
}

function part(bundle: Bundle, left: readonly number[], right: readonly number[], isSecond: boolean): Part {
  let [top, bottom] = [Infinity, -Infinity];
  for (const heights of [left, right]) {
    for (const y of heights) {
      top = Math.min(top, y);
      bottom = Math.max(bottom, y);
    }
  }
  return { bundle, left, right, span: [top, bottom], track: -1, isSecond };
}

function meets([top, bottom]: Span, [otherTop, otherBottom]: Span): boolean {
  return top < otherBottom + NEAR && otherTop < bottom + NEAR;
}

/**
 * From left to right. One that leaves the channel at a height at which another comes in has to stand right of it, else
 * both would be one line; of those that are free the one comes next that has most to gain from being left of the others.
 */
class Ordering {
  private readonly behind: number[][]; // parts that have to stand right of each
  private readonly waitsFor: Int32Array;
  private readonly sums: number[];
  private readonly order: Part[] = [];

  constructor(
    private readonly bundles: readonly Bundle[],
    private readonly parts: Part[],
    private readonly gains: readonly (readonly number[])[] | null
  ) {
    this.behind = parts.map(() => []);
    this.waitsFor = new Int32Array(parts.length);
    const enter = parts.flatMap(({ left }, at) => left.map(y => ({ y, at }))).sort((a, b) => a.y - b.y);
    parts.forEach(({ right }, at) => {
      for (const y of right) {
        for (let k = firstFrom(enter, y - NEAR); k < enter.length && enter[k].y < y + NEAR; k++) {
          if (enter[k].at === at || this.behind[enter[k].at].includes(at)) continue;
          this.behind[enter[k].at].push(at);
          this.waitsFor[at]++;
        }
      }
    });
    this.sums = gains
      ? gains.map(row => row.reduce((sum, value) => sum + value, 0))
      : parts.map(({ span: [top] }) => -top);
  }

  run(): Part[] {
    const { parts, waitsFor, sums } = this;
    const waiting = new Set(parts.keys());
    while (waiting.size > 0) {
      let [next, isFree] = [-1, false];
      for (const at of waiting) {
        const free = waitsFor[at] === 0;
        if (!free && (parts[at].isSecond || this.behind[at].length === 0)) continue; // no way out of a circle
        if (next < 0 || (free && !isFree) || (free === isFree && sums[at] > sums[next])) [next, isFree] = [at, free];
      }
      if (isFree) waiting.delete(next);
      this.take(next, isFree);
    }
    return this.order;
  }

  /** Where all wait for each other, one begins with a track that leads to a height of its own. */
  private take(next: number, isFree: boolean): void {
    const { parts, waitsFor } = this;
    const { bundle, left, right } = parts[next];
    if (isFree) {
      this.order.push(parts[next]);
    } else {
      const y = this.freeHeight(parts[next]);
      bundle.detour = { y, track: -1 };
      this.order.push(part(bundle, left, [y], false));
      parts[next] = part(bundle, [y], right, true);
    }
    this.behind[next].forEach(at => waitsFor[at]--);
    this.behind[next] = [];
    if (this.gains && isFree) {
      this.gains.forEach((row, other) => (this.sums[other] -= row[next]));
    }
  }

  private readonly given: number[] = [];

  /** As near as can be to the middle of a part, and away from all other lines. */
  private freeHeight({ left, right }: Part): number {
    const taken = [...this.bundles.flatMap(bundle => [...bundle.left, ...bundle.right]), ...this.given];
    const known = [left[0], right[0]].filter(Number.isFinite);
    const start = known.reduce((sum, y) => sum + y, 0) / known.length;
    for (let step = 0; ; step++) {
      const y = start + (step % 2 ? 1 : -1) * Math.ceil(step / 2) * NEAR;
      if (taken.every(other => !(Math.abs(other - y) < NEAR))) {
        this.given.push(y);
        return y;
      }
    }
  }
}

function firstFrom(sorted: readonly { y: number }[], y: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle].y > y) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** For each part and each other what it gains from being left of that. */
function gainsOf(parts: readonly Part[]): number[][] {
  const costs = parts.map(a => parts.map(b => (a === b ? 0 : crossings(a, b))));
  return costs.map((row, a) => row.map((cost, b) => costs[b][a] - cost));
}

/** Crossings where `a` is left of `b`. */
function crossings(a: Part, b: Part): number {
  return meets(a.span, b.span) ? within(a.right, b.span) + within(b.left, a.span) : 0;
}

function within(heights: readonly number[], [top, bottom]: Span): number {
  let count = 0;
  for (const y of heights) if (y > top && y < bottom) count++;
  return count;
}
