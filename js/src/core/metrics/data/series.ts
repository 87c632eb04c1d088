// Series of points and of histograms, in order of their steps, never more than a limit.

const FIRST_SIZE = 64;
const MIN_LIMIT = 16;
const IN_A_BUCKET = 4; // points that are thinned to at most three

export class LineData {
  private xs: Float64Array;
  private ys: Float64Array;
  private count = 0;
  private broken = Infinity;
  readonly limit: number;

  constructor(limit: number) {
    this.limit = Math.max(MIN_LIMIT, limit);
    const size = Math.min(FIRST_SIZE, this.limit);
    this.xs = new Float64Array(size);
    this.ys = new Float64Array(size);
  }

  get length(): number {
    return this.count;
  }

  /** The steps held, ascending; a view that the next `append` makes stale. */
  get steps(): Float64Array {
    return this.xs.subarray(0, this.count);
  }

  /** The values held, one for each of `steps`. */
  get values(): Float64Array {
    return this.ys.subarray(0, this.count);
  }

  get lastStep(): number {
    return this.count ? this.xs[this.count - 1] : Number.NaN;
  }

  get lastValue(): number {
    return this.count ? this.ys[this.count - 1] : Number.NaN;
  }

  /** The first step with a value that is not finite; Infinity without one. */
  get brokenFrom(): number {
    return this.broken;
  }

  /** The first step since which no value was finite, up to the last one; Infinity where the last one is. */
  get brokenSince(): number {
    let since = Infinity;
    for (let i = this.count - 1; i >= 0 && !Number.isFinite(this.ys[i]); i -= 1) since = this.xs[i];
    return since;
  }

  /** Takes `count` points: their steps stand in `numbers` from `at` on, their values behind them. */
  append(numbers: Float64Array, at: number, count: number): void {
    let ordered = true;
    for (let i = at; i < at + count; i += 1) {
      const step = numbers[i];
      if (!Number.isFinite(step)) continue;
      const last = this.count - 1;
      if (last >= 0 && this.xs[last] === step) {
        this.ys[last] = numbers[i + count]; // a later value of a step replaces the one before
        if (!Number.isFinite(this.ys[last])) this.broken = Math.min(this.broken, step);
        else if (this.broken === step) this.broken = Infinity;
        continue;
      }
      if (last >= 0 && step < this.xs[last]) ordered = false;
      if (this.count === this.limit) {
        if (!ordered) this.sort();
        ordered = true;
        this.count = thin(this.xs, this.ys, this.count, Math.floor(this.limit / IN_A_BUCKET));
        if (step < this.xs[this.count - 1]) ordered = false;
      }
      this.push(step, numbers[i + count]);
    }
    if (!ordered) this.sort();
  }

  /** The number of points at steps before `step`. */
  before(step: number): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.xs[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Index of the point nearest to `step` among the first `end`; -1 when there is none. */
  nearest(step: number, end = this.count): number {
    const at = Math.min(this.before(step), end);
    if (end === 0) return -1;
    if (at === end) return end - 1;
    return at > 0 && step - this.xs[at - 1] <= this.xs[at] - step ? at - 1 : at;
  }

  private push(step: number, value: number): void {
    if (this.count === this.xs.length) {
      const size = Math.min(this.limit, 2 * this.xs.length);
      this.xs = grown(this.xs, size);
      this.ys = grown(this.ys, size);
    }
    this.xs[this.count] = step;
    this.ys[this.count] = value;
    this.count += 1;
    if (!Number.isFinite(value) && step < this.broken) this.broken = step;
  }

  /** Steps came backwards, as after a restart of the training: in order again, the later value of a step stays. */
  private sort(): void {
    const order = Array.from({ length: this.count }, (_, i) => i);
    const [xs, ys] = [this.xs.slice(0, this.count), this.ys.slice(0, this.count)];
    order.sort((a, b) => xs[a] - xs[b] || a - b);
    this.count = 0;
    for (const i of order) {
      if (this.count && this.xs[this.count - 1] === xs[i]) this.count -= 1;
      this.xs[this.count] = xs[i];
      this.ys[this.count] = ys[i];
      this.count += 1;
    }
    const first = this.values.findIndex(value => !Number.isFinite(value));
    this.broken = first < 0 ? Infinity : this.xs[first];
  }
}

function grown(array: Float64Array, size: number): Float64Array {
  const larger = new Float64Array(size);
  larger.set(array);
  return larger;
}

/**
 * Keeps the first and the last point, and of every bucket of steps the least, the greatest and one that is not finite.
 * Works in place; returns how many points are left.
 */
export function thin(xs: Float64Array, ys: Float64Array, length: number, buckets: number): number {
  if (length < 3) return length;
  const bucketOf = bucketing(xs, length, buckets);
  let kept = 1;
  let start = 1;
  while (start < length - 1) {
    const bucket = bucketOf(start);
    let least = -1;
    let greatest = -1;
    let broken = -1;
    let i = start;
    for (; i < length - 1 && bucketOf(i) === bucket; i += 1) {
      if (!Number.isFinite(ys[i])) {
        if (broken < 0) broken = i;
        continue;
      }
      if (least < 0 || ys[i] < ys[least]) least = i;
      if (greatest < 0 || ys[i] > ys[greatest]) greatest = i;
    }
    kept = keep(xs, ys, kept, [least, greatest, broken]);
    start = i;
  }
  xs[kept] = xs[length - 1];
  ys[kept] = ys[length - 1];
  return kept + 1;
}

function keep(xs: Float64Array, ys: Float64Array, at: number, chosen: number[]): number {
  const places = [...new Set(chosen.filter(place => place >= 0))].sort((a, b) => a - b);
  for (const place of places) {
    xs[at] = xs[place];
    ys[at] = ys[place];
    at += 1;
  }
  return at;
}

/** Buckets of equal spans of steps, or of equal counts of points where nearly all points lie in few of them. */
function bucketing(xs: Float64Array, length: number, buckets: number): (i: number) => number {
  const first = xs[0];
  const scale = buckets / (xs[length - 1] - first);
  const bySteps = (i: number) => Math.min(buckets - 1, Math.floor((xs[i] - first) * scale));
  let used = 1;
  for (let i = 1; i < length; i += 1) if (bySteps(i) !== bySteps(i - 1)) used += 1;
  return used >= buckets / 4 ? bySteps : i => Math.floor((i * buckets) / length);
}

// The histograms of one series, in order of their steps, never more than a limit.

export interface Histogram {
  readonly step: number;
  readonly low: number; // where the first bin begins and the last one ends
  readonly high: number;
  readonly total: number; // values that there were
  readonly sampled: number; // values that were counted
  readonly counts: Float64Array;
}

const MAX_HISTOGRAMS = 200; // more steps than a ridge or a slider can show

export class HistogramData {
  private held: Histogram[] = [];
  private readonly limit: number;
  bins = 0; // numbers held

  constructor(limit: number) {
    this.limit = Math.max(2, Math.min(limit, MAX_HISTOGRAMS));
  }

  get items(): readonly Histogram[] {
    return this.held;
  }

  get length(): number {
    return this.held.length;
  }

  add(histogram: Histogram): void {
    let at = this.held.length;
    while (at > 0 && this.held[at - 1].step > histogram.step) at -= 1;
    const replaced = at > 0 && this.held[at - 1].step === histogram.step;
    if (replaced) this.bins -= this.held[at - 1].counts.length;
    this.held.splice(replaced ? at - 1 : at, replaced ? 1 : 0, histogram);
    this.bins += histogram.counts.length;
    if (this.held.length > this.limit) this.halve();
  }

  /** Every second one goes; the first and the last stay. */
  halve(): void {
    const last = this.held.length - 1;
    this.held = this.held.filter((_, i) => i % 2 === 0 || i === last);
    this.bins = this.held.reduce((sum, { counts }) => sum + counts.length, 0);
  }

  /** How wide the values spread at each step: their standard deviation, as far as the bins tell it. */
  widths(): { steps: number[]; values: number[] } {
    return { steps: this.held.map(({ step }) => step), values: this.held.map(deviation) };
  }

  /** The latest one at or before `step`; without any, the first. */
  at(step: number): Histogram | undefined {
    let found = this.held[0];
    for (const histogram of this.held) {
      if (histogram.step > step) break;
      found = histogram;
    }
    return found;
  }
}

function deviation({ low, high, counts }: Histogram): number {
  let [total, sum, squares] = [0, 0, 0];
  counts.forEach((count, bin) => {
    total += count;
    sum += count * bin;
    squares += count * bin * bin;
  });
  const mean = sum / total;
  return (Math.sqrt(Math.max(0, squares / total - mean * mean)) * (high - low)) / counts.length;
}
