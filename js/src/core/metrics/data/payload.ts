// The payload of a metric panel, and messages of new values with their numbers as typed arrays.

import * as v from "valibot";
import { LEFT_OUT } from "../../words/metrics";
import {
  checked,
  count,
  type Guarded,
  is,
  isCount,
  isFiniteNumber,
  isObject,
  isString,
  list,
  need,
  oneOf,
  parts,
  PayloadError,
  tuple
} from "../../shared/base/schema";

// The panel's fixed data: the names of its runs and how many points a series may hold.

const PANEL_VERSION = 1;
const DEFAULT_LIMIT = 2000;

const isLimit = (value: unknown): value is number => isCount(value) && value > 0;

const PanelSchema = parts({
  schema_version: v.literal(PANEL_VERSION),
  kind: v.literal("metric_panel"),
  runs: list(isString),
  limit: is(isLimit) // points held of one series
});

export type PanelPayload = v.InferOutput<typeof PanelSchema>;

/** The payload, once its version and its parts are known to be right. */
export const readPanel = (raw: unknown): PanelPayload => checked(PanelSchema, raw);

/** How many points a series may hold, whatever else the payload is. */
export function limitOf(raw: unknown): number {
  return isObject(raw) && isLimit(raw.limit) ? raw.limit : DEFAULT_LIMIT;
}

// run, module, metric, call, phase, form
const isEntry = tuple(isCount, isString, isString, isCount, isString, oneOf("number", "vector", "histogram"));
const isAlert = tuple(isCount, isString, isString, isFiniteNumber, isString); // run, module, metric, step, text

type RawEntry = Guarded<typeof isEntry>;
export type RawAlert = Guarded<typeof isAlert>;
export type Form = RawEntry[5];

/** low, high, total, sampled */
export const HISTOGRAM_HEAD = 4;

/** A part of a message that may be missing. */
const section = <const E extends v.ObjectEntries>(entries: E) =>
  v.nullish(v.pipe(v.custom<object>(isObject), v.object(entries)), {} as never);
const counts = v.nullish(list(isCount), []);
const from = v.optional(count, 0);

const UpdateSchema = parts({
  kind: v.literal("update"),
  seq: count,
  reset: v.optional(v.unknown()),
  catalog: section({ from, entries: v.optional(list(isEntry), []) }),
  /** Of each series its steps, then its values, one series after the other in the first buffer. */
  points: section({ series: counts, counts }),
  /** Of each histogram low, high, total and sampled, then its counts, in the second buffer. */
  histograms: section({ series: counts, steps: v.nullish(list(isFiniteNumber), []), bins: counts }),
  alerts: section({ from, entries: v.optional(list(isAlert), []) }),
  ended: counts,
  saved: v.optional(v.unknown()), // on a page, which gets no other message
  waiting: counts // runs that have begun and have no value yet
});

export type Update = ReturnType<typeof decode>;

/** The message, or null and a warning in the console when it is not one of ours. Never throws. */
export function decodeUpdate(content: unknown, buffers: unknown): Update | null {
  try {
    return decode(content, buffers);
  } catch (error) {
    // the reason is the name of a part; the content may hold the user's names and is not shown
    const reason = error instanceof PayloadError ? error.part || "kind" : "unreadable";
    console.warn(LEFT_OUT, reason);
    return null;
  }
}

function decode(content: unknown, buffers: unknown) {
  const update = checked(UpdateSchema, content);
  const { points, histograms } = update;
  const sent = Array.isArray(buffers) ? (buffers as unknown[]) : [];
  const pairs = floats(sent[0], "points");
  const bins = floats(sent[1], "histograms");
  const total = (sizes: readonly number[], size: (one: number) => number) =>
    sizes.reduce((sum, one) => sum + size(one), 0);
  need(points.series.length === points.counts.length, "points");
  need(total(points.counts, one => 2 * one) === pairs.length, "points");
  need(histograms.series.length === histograms.bins.length, "histograms");
  need(histograms.series.length === histograms.steps.length, "histograms");
  need(total(histograms.bins, one => HISTOGRAM_HEAD + one) === bins.length, "histograms");
  return {
    ...update,
    reset: update.reset === true,
    saved: update.saved === true,
    points: { ...points, numbers: pairs },
    histograms: { ...histograms, numbers: bins }
  };
}

const LITTLE = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/** A buffer as little-endian doubles; a place in memory that is no multiple of 8 is copied first. */
function floats(buffer: unknown, part: string): Float64Array {
  if (buffer === undefined || buffer === null) return new Float64Array(0);
  const bytes = ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : buffer instanceof ArrayBuffer
      ? new Uint8Array(buffer)
      : undefined;
  need(bytes !== undefined && bytes.byteLength % 8 === 0, part);
  const length = bytes.byteLength / 8;
  if (!LITTLE) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Float64Array.from({ length }, (_, i) => view.getFloat64(8 * i, true));
  }
  const aligned = bytes.byteOffset % 8 === 0 ? bytes : bytes.slice();
  return new Float64Array(aligned.buffer, aligned.byteOffset, length);
}
