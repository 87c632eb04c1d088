// The histograms of one series, in order of their steps, never more than a limit.

export interface Histogram {
  readonly step: number;
  readonly low: number; // where the first bin begins and the last one ends
  readonly high: number;
  readonly total: number; // values that there were
  readonly sampled: number; // values that were counted
  readonly counts: Float64Array;
}

const MOST = 200; // more steps than a ridge or a slider can show

export class HistogramData {
  private held: Histogram[] = [];
  private readonly limit: number;
  bins = 0; // numbers held

  constructor(limit: number) {
    this.limit = Math.max(2, Math.min(limit, MOST));
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
