// Statistics of the series of one metric over all steps, cached while values stream.

import type { Kind, MetricData } from "./metric_data";
import { push } from "../../shared/base/multimap";

/** One series as it is surveyed; those of one group (a run in a phase) are compared with each other. */
interface SampledSeries {
  readonly module: string;
  readonly group: string;
  readonly steps: ArrayLike<number>; // ascending
  readonly values: ArrayLike<number>;
}

/** Where a module stands among the others of its metric. */
export interface ModuleRank {
  readonly distance: number; // mean distance from the median series, on the metric's scale
  readonly shift: number; // its value against that of the median series, where they differ most: a factor or a difference
  readonly brokenFrom: number; // the first step with a value that is not finite; Infinity without one
}

export interface MetricStats {
  readonly standings: ReadonlyMap<string, ModuleRank>;
  readonly hasFactors: boolean; // shifts are factors: no value is negative
  readonly decades: Decades | null; // null where a value is negative, or none is positive
  readonly spread: number; // decades between the modules' typical magnitudes
}

interface Decades {
  readonly core: number; // between the 2nd and the 98th percentile of the positive values
  readonly all: number; // between the least and the greatest positive value
  readonly least: number; // positive value
  readonly greatest: number;
  readonly hasZero: boolean;
}

const BUCKETS = 32; // stretches of steps; of each the least and the greatest value count
const SAMPLE = 4096; // numbers that percentiles are taken of
const MIN_DECADES = 2; // from here on distances are those of logarithms
const ZERO = 1e-6; // of the greatest magnitude: what a zero counts as, where magnitudes are compared
const { abs, floor, log10, max, min } = Math;

/** The least and the greatest finite value of each bucket of each series; NaN where there is none. */
interface Buckets {
  readonly lows: Float64Array;
  readonly highs: Float64Array;
  readonly brokenFrom: Float64Array; // of each series
}

function computeStats(series: readonly SampledSeries[]): MetricStats {
  const buckets = bucketsOf(series);
  const decades = decadesOf(buckets);
  const isLog = decades !== null && decades.core >= MIN_DECADES;
  const found = new Map<string, ModuleRank>();
  for (const members of groups(series)) {
    for (const [at, standing] of rankModules(members, buckets, isLog, decades !== null)) {
      const { module } = series[at];
      const before = found.get(module);
      if (!before || isFurther(standing, before)) found.set(module, standing);
    }
  }
  return { standings: found, hasFactors: decades !== null, decades, spread: spreadOf(series, buckets) };
}

function bucketsOf(series: readonly SampledSeries[]): Buckets {
  let first = Infinity;
  let last = -Infinity;
  for (const { steps } of series) {
    if (!steps.length) continue;
    first = min(first, steps[0]);
    last = max(last, steps[steps.length - 1]);
  }
  const scale = BUCKETS / max(1, last - first + 1);
  const size = series.length * BUCKETS;
  const lows = new Float64Array(size).fill(Number.NaN);
  const highs = new Float64Array(size).fill(Number.NaN);
  const brokenFrom = new Float64Array(series.length).fill(Infinity);
  series.forEach(({ steps, values }, row) => {
    let at = row * BUCKETS;
    let [end, low, high] = [first + 1 / scale, Number.NaN, Number.NaN]; // of the present bucket
    const lastAt = at + BUCKETS - 1;
    for (let i = 0; i < steps.length; i += 1) {
      const value = values[i];
      if (steps[i] >= end) {
        [lows[at], highs[at], low, high] = [low, high, Number.NaN, Number.NaN];
        // one further at least, whatever rounding makes of it
        at = min(lastAt, max(at + 1, row * BUCKETS + floor((steps[i] - first) * scale)));
        end = at === lastAt ? Infinity : first + (at + 1 - row * BUCKETS) / scale;
      }
      // the comparisons are so that the first value replaces NaN
      if (value - value === 0) {
        if (!(value >= low)) low = value;
        if (!(value <= high)) high = value;
      } else if (steps[i] < brokenFrom[row]) brokenFrom[row] = steps[i];
    }
    [lows[at], highs[at]] = [low, high];
  });
  return { lows, highs, brokenFrom };
}

function groups(series: readonly SampledSeries[]): number[][] {
  const found = new Map<string, number[]>();
  series.forEach(({ group }, at) => {
    push(found, group, at);
  });
  return [...found.values()];
}

function decadesOf({ lows, highs }: Buckets): Decades | null {
  let least = Infinity;
  let greatest = 0;
  let hasZero = false;
  for (let at = 0; at < lows.length; at += 1) {
    if (lows[at] < 0) return null;
    hasZero ||= lows[at] === 0;
    if (lows[at] > 0 && lows[at] < least) least = lows[at];
    if (highs[at] > 0 && highs[at] < least) least = highs[at];
    if (highs[at] > greatest) greatest = highs[at];
  }
  if (greatest === 0) return null;
  const stride = max(1, Math.ceil(lows.length / SAMPLE));
  const sample: number[] = [];
  for (let at = 0; at < lows.length; at += stride)
    for (const value of [lows[at], highs[at]]) if (value > 0) sample.push(value);
  const sorted = new Float64Array(sample).sort();
  const core = sorted.length ? log10(quantile(sorted, 0.98)) - log10(quantile(sorted, 0.02)) : 0;
  return { core, all: log10(greatest) - log10(least), least, greatest, hasZero };
}

function rankModules(
  members: readonly number[],
  { lows, highs, brokenFrom }: Buckets,
  isLog: boolean,
  hasFactors: boolean
): [at: number, standing: ModuleRank][] {
  const sums = members.map(() => ({ distance: 0, count: 0, most: -1, shift: Number.NaN }));
  const shiftOf = (value: number, median: number) =>
    hasFactors ? value / (isLog ? 10 ** median : median) : value - median;
  const [from, to] = isLog ? logarithms(lows, highs) : [lows, highs];
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    const places = members.map(row => row * BUCKETS + bucket);
    const median = medianOf(places.map(at => from[at] / 2 + to[at] / 2));
    if (Number.isNaN(median)) continue;
    places.forEach((at, i) => {
      if (Number.isNaN(from[at])) return;
      const sum = sums[i];
      const [below, above] = [abs(from[at] - median), abs(to[at] - median)];
      const distance = max(below, above);
      if (distance > sum.most)
        [sum.most, sum.shift] = [distance, shiftOf(below > above ? lows[at] : highs[at], median)];
      sum.distance += distance;
      sum.count += 1;
    });
  }
  return members.map((at, i) => {
    const { distance, shift, count } = sums[i];
    return [at, { distance: count ? distance / count : 0, shift, brokenFrom: brokenFrom[at] }];
  });
}

/** Zeros stand one decade below all that has a logarithm. */
function logarithms(...ends: Float64Array[]): Float64Array[] {
  let least = Infinity;
  for (const values of ends) for (const value of values) if (value > 0 && value < least) least = value;
  const below = log10(least) - 1;
  return ends.map(values => values.map(value => (value === 0 ? below : log10(value))));
}

/** Whether a module counts as what it is in this group rather than in the other one. */
function isFurther(one: ModuleRank, other: ModuleRank): boolean {
  if (one.brokenFrom !== other.brokenFrom) return one.brokenFrom < other.brokenFrom;
  return one.distance > other.distance;
}

/**
 * How far the layers of a metric lie apart, in a number that can be compared between metrics: decades between the 10th
 * and the 90th percentile of the series' median magnitudes. 0 where there are no two layers.
 */
function spreadOf(series: readonly SampledSeries[], { lows, highs }: Buckets): number {
  if (new Set(series.map(({ module }) => module)).size < 2) return 0;
  const typical = series
    .map((_, row) => medianOf(magnitudes(row, lows, highs)))
    .filter(value => !Number.isNaN(value))
    .sort((a, b) => a - b);
  if (typical.length < 2) return 0;
  const [low, high] = [quantile(typical, 0.1), quantile(typical, 0.9)];
  return high > 0 ? log10(high) - log10(max(low, high * ZERO)) : 0;
}

function magnitudes(row: number, lows: Float64Array, highs: Float64Array): number[] {
  const own = [];
  for (let at = row * BUCKETS; at < (row + 1) * BUCKETS; at += 1) own.push(max(abs(lows[at]), abs(highs[at])));
  return own;
}

function medianOf(values: readonly number[]): number {
  const known = new Float64Array(values.filter(value => !Number.isNaN(value))).sort();
  return known.length ? quantile(known, 0.5) : Number.NaN;
}

/** Of ascending numbers the one at a share of the way; between two of them the mean. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  const place = share * (sorted.length - 1);
  const at = floor(place);
  const rest = place - at;
  return rest === 0 ? sorted[at] : sorted[at] * (1 - rest) + sorted[at + 1] * rest;
}

// The surveys of a panel's metrics, kept: what is chosen by them shall stay, and cost nothing, while values stream.

const GROWN = 1.25; // so many times as many values as before are surveyed anew,
const OLD = 10_000; // ms; and after so long a time any that have come

interface CachedStats {
  readonly survey: MetricStats;
  readonly structure: number;
  readonly taken: number;
  readonly at: number;
}

interface Book {
  readonly surveys: Map<string, CachedStats>;
  layered: { readonly built: string; readonly metric: string };
}

const books = new WeakMap<MetricData, Book>();

function bookOf(data: MetricData): Book {
  const book = books.get(data) ?? { surveys: new Map<string, CachedStats>(), layered: { built: "", metric: "" } };
  books.set(data, book);
  return book;
}

/** What the metric's series of a phase ("both" for all) have in common; the same object until it is made anew. */
export function metricStats(
  data: MetricData,
  kind: Kind,
  metric: string,
  phase: string,
  isPaused = false
): MetricStats {
  const { surveys } = bookOf(data);
  const key = `${kind} ${phase} ${metric}`;
  const kept = surveys.get(key);
  const now = performance.now();
  if (kept && (isPaused || isFresh(kept, data, now))) return kept.survey;
  const made = { survey: computeStats(surveyedOf(data, kind, metric, phase)), structure: data.structure };
  surveys.set(key, { ...made, taken: data.taken, at: now });
  return made.survey;
}

function isFresh({ structure, taken, at }: CachedStats, data: MetricData, now: number): boolean {
  if (structure !== data.structure) return false;
  return data.taken === taken || (data.taken < GROWN * taken && now - at < OLD);
}

function surveyedOf(data: MetricData, kind: Kind, metric: string, phase: string): SampledSeries[] {
  const found: SampledSeries[] = [];
  for (const series of data.index(kind, metric)?.series ?? []) {
    const entry = data.entries[series];
    if (!entry || (phase !== "both" && entry.phase !== phase)) continue;
    const points = kind === "numbers" ? data.line(series) : data.histogram(series)?.widths();
    if (points) {
      const { steps, values } = points;
      found.push({ module: entry.module, group: `${entry.run} ${entry.phase}`, steps, values });
    }
  }
  return found;
}

/**
 * The metric that a heat map opens on: of those with a row for each of several layers the one that the first alert
 * names, else the one whose layers lie furthest apart. "" where no layer has been measured: a number of the whole run,
 * such as a loss, is one stripe and no map. It changes only with the catalog and with the first alert, so that nobody's
 * picture is exchanged while values stream.
 */
export function layeredMetric(data: MetricData): string {
  const book = bookOf(data);
  const built = `${data.structure} ${data.alertCount > 0}`;
  if (book.layered.built !== built) book.layered = { built, metric: chosenMetric(data) };
  return book.layered.metric;
}

function chosenMetric(data: MetricData): string {
  const layers = (metric: string) => [...(data.index("numbers", metric)?.modules ?? [])].filter(Boolean).length;
  const metrics = data.metrics("numbers").filter(metric => layers(metric) > 0);
  const several = metrics.filter(metric => layers(metric) > 1);
  const alert = data.alerts.find(({ metric }) => several.includes(metric));
  if (alert) return alert.metric;
  let found = several[0] ?? metrics[0] ?? "";
  let most = 0;
  for (const metric of several) {
    const { spread } = metricStats(data, "numbers", metric, "both");
    if (spread > most) [found, most] = [metric, spread];
  }
  return found;
}
