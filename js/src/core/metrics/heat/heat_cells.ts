// The cells of a heat map: of each row the value that held at each column's steps.

import type { LineData } from "../data/series";
import type { Range } from "../data/polyline";

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
  readonly words: string; // what the colors mean
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
