// One message of new values: its checks, and its numbers as typed arrays.

import {
  type Check,
  type Fields,
  isArrayOf,
  isCount,
  isObject,
  isString,
  oneOf,
  tuple
} from "../shared/payload_checks";

export type Form = "number" | "vector" | "histogram";
export type RawEntry = [run: number, module: string, metric: string, call: number, phase: string, form: Form];
export type RawAlert = [run: number, module: string, metric: string, step: number, text: string];

export interface Update {
  readonly seq: number;
  readonly reset: boolean;
  readonly catalog: { readonly from: number; readonly entries: readonly RawEntry[] };
  /** Of each series its steps, then its values, one series after the other in `numbers`. */
  readonly points: {
    readonly series: readonly number[];
    readonly counts: readonly number[];
    readonly numbers: Float64Array;
  };
  /** Of each histogram low, high, total and sampled, then its counts, in `numbers`. */
  readonly histograms: {
    readonly series: readonly number[];
    readonly steps: readonly number[];
    readonly bins: readonly number[];
    readonly numbers: Float64Array;
  };
  readonly alerts: { readonly from: number; readonly entries: readonly RawAlert[] };
  readonly ended: readonly number[];
}

/** low, high, total, sampled */
export const HISTOGRAM_HEAD = 4;

const NONE = new Float64Array(0);
const isEntry = tuple(isCount, isString, isString, isCount, isString, oneOf("number", "vector", "histogram"));
const isStep: Check = value => Number.isFinite(value);
const isAlert = tuple(isCount, isString, isString, isStep, isString);

/** The message, or null and a warning in the console when it is not one of ours. Never throws. */
export function decodeUpdate(content: unknown, buffers: unknown): Update | null {
  try {
    return decode(content, buffers);
  } catch (error) {
    // the reason is one of the fixed texts below; the content may hold the user's names and is not shown
    console.warn(
      "modulekg-widgets: a message of metric values was left out:",
      error instanceof Fault ? error.message : "unreadable"
    );
    return null;
  }
}

class Fault extends Error {}

function must(condition: boolean, part: string): asserts condition {
  if (!condition) throw new Fault(part);
}

function decode(content: unknown, buffers: unknown): Update {
  must(isObject(content) && content.kind === "update", "kind");
  must(isCount(content.seq), "seq");
  const sent = Array.isArray(buffers) ? buffers : [];
  return {
    seq: content.seq as number,
    reset: content.reset === true,
    catalog: appended<RawEntry>(content.catalog, isEntry, "catalog"),
    points: decodePoints(section(content.points, "points"), sent[0]),
    histograms: decodeHistograms(section(content.histograms, "histograms"), sent[1]),
    alerts: appended<RawAlert>(content.alerts, isAlert, "alerts"),
    ended: counts(content.ended, "ended")
  };
}

function section(value: unknown, part: string): Fields {
  if (value === undefined || value === null) return {};
  must(isObject(value), part);
  return value;
}

function appended<T>(value: unknown, check: Check, part: string): { from: number; entries: T[] } {
  const { from = 0, entries = [] } = section(value, part);
  must(isCount(from) && isArrayOf(entries, check), part);
  return { from: from as number, entries: entries as T[] };
}

function counts(value: unknown, part: string): number[] {
  if (value === undefined || value === null) return [];
  must(isArrayOf(value, isCount), part);
  return value as number[];
}

function decodePoints(raw: Fields, buffer: unknown): Update["points"] {
  const series = counts(raw.series, "points");
  const found = counts(raw.counts, "points");
  const numbers = floats(buffer, "points");
  must(series.length === found.length, "points");
  must(found.reduce((sum, count) => sum + 2 * count, 0) === numbers.length, "points");
  return { series, counts: found, numbers };
}

function decodeHistograms(raw: Fields, buffer: unknown): Update["histograms"] {
  const series = counts(raw.series, "histograms");
  const bins = counts(raw.bins, "histograms");
  const steps = raw.steps ?? [];
  must(isArrayOf(steps, isStep), "histograms");
  const numbers = floats(buffer, "histograms");
  must(series.length === bins.length && series.length === steps.length, "histograms");
  must(bins.reduce((sum, count) => sum + HISTOGRAM_HEAD + count, 0) === numbers.length, "histograms");
  return { series, steps: steps as number[], bins, numbers };
}

const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** A buffer as little-endian doubles; a place in memory that is no multiple of 8 is copied first. */
function floats(buffer: unknown, part: string): Float64Array {
  if (buffer === undefined || buffer === null) return NONE;
  const bytes = ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : buffer instanceof ArrayBuffer
      ? new Uint8Array(buffer)
      : undefined;
  must(bytes !== undefined && bytes.byteLength % 8 === 0, part);
  const length = bytes.byteLength / 8;
  if (!LITTLE) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Float64Array.from({ length }, (_, i) => view.getFloat64(8 * i, true));
  }
  const aligned = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  return new Float64Array(aligned.buffer, aligned.byteOffset, length);
}
