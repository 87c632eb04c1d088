// The color scale of a heat map: from which value to which it reaches, and how that is said.

import { counted } from "../../shared/base/format";
import { ABOVE, BELOW, type HeatRow, type HeatScale } from "./heat_layout";
import { quantile } from "../data/metric_stats";
import type { ColorRule } from "../base/state";

const SAMPLE = 8192; // values that percentiles are taken of
const MIN_SHARE = 2; // percent that may be cut off at an end: so much,
const MAX_CLIPPED_PERCENT = 15; // and more of few rows, of which one alone is more than that
const ROOM = 1.25; // so much more than one row
const FAR = 1.5; // an end is cut off only where it is so many times as wide as all between the percentiles

/** What the values in view are like. */
interface Extent {
  readonly least: number; // of those that have a place on the scale; Infinity without any
  readonly greatest: number;
  readonly broken: number; // NaN and infinite
  readonly leftOut: number; // below zero, on a logarithmic scale
  readonly zeros: number; // on a logarithmic scale
}

/** The scale of the values in view, with the counts of what it leaves out. */
export function heatScale(rows: readonly HeatRow[], log: boolean, rule: ColorRule): HeatScale {
  const extent = extentOf(rows, log);
  const { least, greatest, broken, leftOut, zeros } = extent;
  const isKnown = least <= greatest;
  const full = {
    log,
    least: isKnown ? least : Number.NaN,
    greatest: isKnown ? greatest : Number.NaN,
    broken,
    leftOut,
    beyond: new Uint8Array(rows.length),
    byRow: null,
    words: `${nameOf(log)} colors from the least to the greatest value`
  };
  if (!isKnown) return full;
  if (rule === "row") return byRow(rows, full);
  const cut = rule === "robust" ? cutOff(rows, full) : { ...full, low: "", high: "" };
  const { low, high, ...scale } = cut;
  if (!low && !high && !zeros) return scale; // and nothing has to be counted
  return { ...scale, words: wordsOf(log, low, high, markBeyond(rows, scale)) };
}

function extentOf(rows: readonly HeatRow[], log: boolean): Extent {
  let [least, greatest, broken, leftOut, zeros] = [Infinity, -Infinity, 0, 0, 0];
  for (const { data, range } of rows) {
    const { values } = data;
    for (let i = range.start; i < range.end; i += 1) {
      const value = values[i];
      if (value - value !== 0) broken += 1;
      else if (log && value === 0) zeros += 1;
      else if (log && value < 0) leftOut += 1;
      else {
        if (value < least) least = value;
        if (value > greatest) greatest = value;
      }
    }
  }
  return { least, greatest, broken, leftOut, zeros };
}

type Cut = HeatScale & { readonly low: string; readonly high: string }; // the names of the percentiles; "" is the end

/** An end of the scale goes to the percentile where a few values would take most of the colors from all others. */
function cutOff(rows: readonly HeatRow[], full: HeatScale): Cut {
  const { log, least, greatest } = full;
  const percent = Math.min(MAX_CLIPPED_PERCENT, Math.max(MIN_SHARE, Math.floor((100 * ROOM) / rows.length)));
  const sorted = sampled(rows, log);
  const low = quantile(sorted, percent / 100);
  const high = quantile(sorted, 1 - percent / 100);
  // halves: the difference of the largest numbers would not be finite
  const place = (value: number) => (log ? Math.log(value) : value) / 2;
  const far = FAR * (place(high) - place(low));
  const isLow = far > 0 && place(low) - place(least) > far;
  const isHigh = far > 0 && place(greatest) - place(high) > far;
  return {
    ...full,
    least: isLow ? low : least,
    greatest: isHigh ? high : greatest,
    low: isLow ? ordinal(percent) : "",
    high: isHigh ? ordinal(100 - percent) : ""
  };
}

function sampled(rows: readonly HeatRow[], log: boolean): Float64Array {
  const total = rows.reduce((sum, { range }) => sum + range.end - range.start, 0);
  const stride = Math.max(1, Math.ceil(total / SAMPLE));
  const found: number[] = [];
  let skip = 0; // so that short rows are not left out
  for (const { data, range } of rows) {
    const { values } = data;
    let i = range.start + skip;
    for (; i < range.end; i += stride) {
      const value = values[i];
      if (Number.isFinite(value) && !(log && value <= 0)) found.push(value);
    }
    skip = i - range.end;
  }
  return new Float64Array(found).sort();
}

/** Marks the rows that have values beyond the ends; returns the count of such values. */
function markBeyond(rows: readonly HeatRow[], { log, least, greatest, beyond }: HeatScale): number {
  let count = 0;
  rows.forEach(({ data, range }, row) => {
    const { values } = data;
    for (let i = range.start; i < range.end; i += 1) {
      const value = values[i];
      const isBelow = value < least && value > -Infinity && !(log && value < 0);
      if (!isBelow && !(value > greatest && value < Infinity)) continue;
      beyond[row] |= isBelow ? BELOW : ABOVE;
      count += 1;
    }
  });
  return count;
}

function byRow(rows: readonly HeatRow[], full: HeatScale): HeatScale {
  const own = rows.map(row => {
    const { least, greatest } = extentOf([row], full.log);
    return [least, greatest] as const;
  });
  const words = `${nameOf(full.log)} colors of each row from its own least to its own greatest value: rows cannot be compared`;
  return { ...full, byRow: own, words };
}

function wordsOf(log: boolean, low: string, high: string, count: number): string {
  const lowest = log ? "least positive value" : "least value"; // only zeros can lie below it
  const ends =
    low && high
      ? `the ${low} to the ${high} percentile`
      : `the ${low ? `${low} percentile` : lowest} to the ${high ? `${high} percentile` : "greatest value"}`;
  return `${nameOf(log)} colors from ${ends}; ${counted(count, "value")} beyond`;
}

const nameOf = (log: boolean) => (log ? "logarithmic" : "linear");

function ordinal(count: number): string {
  const endings: Record<number, string> = { 1: "st", 2: "nd", 3: "rd" };
  const isTeen = count % 100 >= 11 && count % 100 <= 13;
  return `${count}${isTeen ? "th" : (endings[count % 10] ?? "th")}`;
}
