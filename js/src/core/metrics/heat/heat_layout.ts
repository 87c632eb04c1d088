// A heat map as plain data: its rows under headings, the values of their cells, and the scale of its colors.

import type { Span, ColorRule } from "../base/state";
import type { ChartTheme } from "../base/chart_theme";
import type { LineData } from "../data/series";
import type { Range } from "../data/polyline";
import * as words from "../../words/metrics";
import { quantile } from "../data/metric_stats";

// Where the rows of a heat map stand: groups of rows under headings, so high that the names can be read or all fit.

interface HeatGroup {
  readonly heading: string; // "" where there is only one group
  readonly rows: number;
}

interface HeatBlock {
  readonly heading: string;
  readonly first: number; // row
  readonly rows: number;
  readonly top: number; // of the first row, in CSS pixels of the whole picture
}

export interface HeatLayout {
  readonly rowHeight: number;
  readonly height: number; // of all blocks
  readonly blocks: readonly HeatBlock[];
}

const MIN_HEIGHT = 3; // CSS pixels
const MAX_HEIGHT = 30;
export const HEADING = 20;

export function heatLayout(groups: readonly HeatGroup[], room: number): HeatLayout {
  const rows = groups.reduce((sum, group) => sum + group.rows, 0);
  const headings = groups.filter(({ heading }) => heading !== "").length * HEADING;
  const fitting = (room - headings) / Math.max(1, rows);
  const rowHeight = Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, fitting));
  const blocks: HeatBlock[] = [];
  let top = 0;
  let first = 0;
  for (const { heading, rows: count } of groups) {
    if (heading !== "") top += HEADING;
    blocks.push({ heading, first, rows: count, top });
    top += count * rowHeight;
    first += count;
  }
  return { rowHeight, height: top, blocks };
}

/** The row at a height of the whole picture; -1 on a heading or beyond the end. */
export function rowAt({ blocks, rowHeight }: HeatLayout, y: number): number {
  for (const { first, rows, top } of blocks) {
    if (y >= top && y < top + rows * rowHeight) return first + Math.floor((y - top) / rowHeight);
  }
  return -1;
}

/** The height at which a row begins. */
export function topOf({ blocks, rowHeight }: HeatLayout, row: number): number {
  const block = blocks.find(({ first, rows }) => row >= first && row < first + rows);
  return block ? block.top + (row - block.first) * rowHeight : 0;
}

/** The rows of a block that are seen between two heights. */
export function visibleRows(
  block: HeatBlock,
  rowHeight: number,
  from: number,
  to: number
): [first: number, end: number] {
  const first = Math.max(0, Math.floor((from - block.top) / rowHeight));
  const end = Math.min(block.rows, Math.ceil((to - block.top) / rowHeight));
  return [block.first + Math.min(first, block.rows), block.first + Math.max(0, end)];
}

export interface HeatLine extends HeatRow {
  readonly module: string;
  readonly label: string;
  readonly run: number;
}

export interface HeatPicture {
  readonly rows: readonly HeatLine[]; // those of one run one after the other
  readonly headings: ReadonlyMap<number, string>; // names of the runs; empty where there is only one
  readonly span: Span;
  readonly scale: HeatScale;
  readonly selected: string | null;
  readonly named: ReadonlySet<string>; // modules whose names come first where not all have room
  readonly marks: readonly { readonly row: number; readonly step: number; readonly text: string }[];
  readonly theme: ChartTheme;
}

/** The rows of each run, under its name. */
export function groupsOf({ rows, headings }: HeatPicture): HeatGroup[] {
  if (!headings.size) return [{ heading: "", rows: rows.length }];
  const counts = new Map<number, number>();
  for (const { run } of rows) counts.set(run, (counts.get(run) ?? 0) + 1);
  return [...counts].map(([run, count]) => ({ heading: headings.get(run) ?? "", rows: count }));
}

// The cells of a heat map: of each row the value that held at each column's steps.

export interface HeatRow {
  readonly data: LineData;
  readonly range: Range;
}

/** What is in a cell. */
export const EMPTY = 0;
export const VALUE = 1;
export const BROKEN = 2; // NaN or infinite

interface Cells {
  readonly columns: number;
  readonly rows: number;
  readonly values: Float64Array;
  readonly kinds: Uint8Array;
  readonly points: Int32Array; // the point of each cell, as an index in its row's data
}

/** So many columns as the densest row has points, at most one for each pixel. */
export function columnCount(rows: readonly HeatRow[], pixels: number): number {
  const densest = rows.reduce((most, { range }) => Math.max(most, range.end - range.start), 0);
  return Math.max(1, Math.min(densest, Math.floor(pixels)));
}

/** A cell has the last value of its steps, or one that is not finite; where there is none, the value before holds. */
export function fillCells(rows: readonly HeatRow[], first: number, last: number, columns: number): Cells {
  const size = rows.length * columns;
  const cells = {
    columns,
    rows: rows.length,
    values: new Float64Array(size),
    kinds: new Uint8Array(size),
    points: new Int32Array(size)
  };
  const scale = columns / (last - first + 1);
  rows.forEach(({ data, range }, row) => {
    const { steps, values } = data;
    const start = row * columns;
    let filled = -1; // the column that was reached
    for (let i = range.start; i < range.end; i += 1) {
      const column = Math.min(columns - 1, Math.floor((steps[i] - first) * scale));
      const at = start + column;
      if (filled >= 0) hold(cells, start + filled, at);
      const isBroken = !Number.isFinite(values[i]);
      if (column !== filled || isBroken || cells.kinds[at] !== BROKEN) {
        cells.values[at] = values[i];
        cells.kinds[at] = isBroken ? BROKEN : VALUE;
        cells.points[at] = i;
      }
      filled = column;
    }
  });
  return cells;
}

/** The cells between two that have values show the earlier one. */
function hold(cells: Cells, from: number, to: number): void {
  for (let at = from + 1; at < to; at += 1) {
    cells.values[at] = cells.values[from];
    cells.kinds[at] = cells.kinds[from];
    cells.points[at] = cells.points[from];
  }
}

/** Where the values of a row lie beyond the ends of the colors. */
export const BELOW = 1;
export const ABOVE = 2;

export interface HeatScale {
  readonly log: boolean;
  readonly least: number; // where the colors begin and end; both NaN when there is nothing to color
  readonly greatest: number;
  readonly beyond: Uint8Array; // of each row, whether it has values below (1) or above (2) the ends
  readonly broken: number; // values that are not finite
  readonly leftOut: number; // values below zero, on a logarithmic scale
  readonly byRow: readonly (readonly [least: number, greatest: number])[] | null; // own ends of each row
  readonly text: string; // what the colors mean
}

type End = Pick<HeatScale, "log" | "least" | "greatest">;
type Ends = End & Pick<HeatScale, "byRow">;

/** 0…1, also for what lies beyond the ends, such as a zero on a logarithmic scale; NaN for what has no place. */
export function heatPosition({ log, least, greatest }: End, value: number): number {
  if (log && value < 0) return Number.NaN;
  const [low, high, own] = log ? [Math.log(least), Math.log(greatest), Math.log(value)] : [least, greatest, value];
  // halves: the difference of the largest numbers would not be finite
  const span = high / 2 - low / 2;
  return span > 0 ? Math.min(1, Math.max(0, (own / 2 - low / 2) / span)) : 0.5;
}

/** Colors as a canvas stores them (one number for each pixel), by kind and position. */
export interface HeatInk {
  readonly ramp: Uint32Array;
  readonly empty: number;
  readonly broken: number;
}

/** Colors the cells of rows, the first of which is row `from` of the scale. */
export function paintCells(cells: Cells, scale: Ends, ink: HeatInk, pixels: Uint32Array, from = 0): void {
  const { columns, rows, kinds, values } = cells;
  const top = ink.ramp.length - 1;
  for (let row = 0; row < rows; row += 1) {
    const own = scale.byRow?.[from + row];
    const ends = own ? { log: scale.log, least: own[0], greatest: own[1] } : scale;
    for (let at = row * columns; at < (row + 1) * columns; at += 1) {
      const kind = kinds[at];
      if (kind === VALUE) {
        const position = heatPosition(ends, values[at]);
        pixels[at] = position === position ? ink.ramp[Math.round(position * top)] : ink.empty;
      } else pixels[at] = kind === BROKEN ? ink.broken : ink.empty;
    }
  }
}

// The color scale of a heat map: from which value to which it reaches, and how that is said.

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
    text: words.colorScale(log)
  };
  if (!isKnown) return full;
  if (rule === "row") return byRow(rows, full);
  const cut = rule === "robust" ? cutOff(rows, full) : { ...full, low: "", high: "" };
  const { low, high, ...scale } = cut;
  if (!low && !high && !zeros) return scale; // and nothing has to be counted
  return { ...scale, text: words.colorScale(log, low, high, markBeyond(rows, scale)) };
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
  return { ...full, byRow: own, text: words.rowScale(full.log) };
}

function ordinal(count: number): string {
  const endings: Record<number, string> = { 1: "st", 2: "nd", 3: "rd" };
  const isTeen = count % 100 >= 11 && count % 100 <= 13;
  return `${count}${isTeen ? "th" : (endings[count % 10] ?? "th")}`;
}
