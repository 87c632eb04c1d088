// Polylines of series: a gap where a value is not finite, no more points than pixels, and a fast stroke.

import type { LineData } from "./series";

export interface ValueRange {
  least: number; // of the finite values that have a place; Infinity when there are none
  greatest: number;
  leftOut: number; // values ≤ 0 on a logarithmic axis
  broken: number; // NaN and infinite values
}

/** Points of one series from index `start` up to `end`. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** The points of a series at steps from `first` to `last`. */
export function rangeOf(line: LineData, first: number, last: number): Range {
  const start = line.before(first);
  let end = line.before(last);
  const { steps } = line;
  if (end < steps.length && steps[end] === last) end += 1;
  return { start, end: Math.max(start, end) };
}

/** Widens `extent` by the values of a range. */
export function measure(values: Float64Array, { start, end }: Range, log: boolean, extent: ValueRange): void {
  let { least, greatest } = extent;
  for (let i = start; i < end; i += 1) {
    const value = values[i];
    if (value - value !== 0)
      extent.broken += 1; // NaN and the infinities, and no call in the loop
    else if (log && value <= 0) extent.leftOut += 1;
    else {
      if (value < least) least = value;
      if (value > greatest) greatest = value;
    }
  }
  extent.least = least;
  extent.greatest = greatest;
}

export function emptyExtent(): ValueRange {
  return { least: Infinity, greatest: -Infinity, leftOut: 0, broken: 0 };
}

interface Sink {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
}

/** Straight maps from step and plot number to pixels: x = x0 + step · xs, y = y0 + plot · ys. */
export interface Projection {
  readonly x0: number;
  readonly xs: number;
  readonly y0: number;
  readonly ys: number;
  readonly plot: (value: number) => number;
  readonly grain: number; // pixels in a column of which the least and the greatest are drawn
}

const FAR = 32_000; // pixels; canvases do not draw well beyond

/**
 * Draws the points into `sink`: in each column of pixels the first, the least, the greatest and the last.
 * Returns the places (x, y, x, y, …) of points that stand alone between gaps.
 */
export function tracePath(
  sink: Sink,
  steps: Float64Array,
  values: Float64Array,
  range: Range,
  p: Projection
): number[] {
  const alone: number[] = [];
  let length = 0; // points of the present stretch
  let column = Number.NaN;
  let lastX = 0;
  let lastY = 0;
  let [low, high, lowFirst, ends] = [0, 0, true, 0]; // of the present column; how many points it has had
  const flush = () => {
    if (ends < 2) return;
    if (ends > 2) {
      sink.lineTo(lastX, lowFirst ? low : high);
      sink.lineTo(lastX, lowFirst ? high : low);
    }
    sink.lineTo(lastX, lastY);
  };
  const finish = () => {
    flush();
    if (length === 1) alone.push(lastX, lastY);
    length = 0;
    column = Number.NaN;
    ends = 0;
  };
  for (let i = range.start; i < range.end; i += 1) {
    const plot = p.plot(values[i]);
    if (plot - plot !== 0) {
      finish();
      continue;
    }
    const x = p.x0 + steps[i] * p.xs;
    const y = Math.min(FAR, Math.max(-FAR, p.y0 + plot * p.ys));
    const own = Math.round(x / p.grain);
    if (length === 0) sink.moveTo(x, y);
    else if (own !== column) {
      flush();
      sink.lineTo(x, y);
    }
    if (own !== column) {
      column = own;
      low = high = y;
      ends = 1;
    } else {
      if (y < low) [low, lowFirst] = [y, false];
      if (y > high) [high, lowFirst] = [y, true];
      ends += 1;
    }
    lastX = x;
    lastY = y;
    length += 1;
  }
  finish();
  return alone;
}

// Wide lines of many points: without a graphics card, hairlines are drawn a hundred times faster than wide lines.

const FEW = 120; // points that may be drawn as a wide line
const MANY = 6000; // points of all lines, beyond which all but the emphasised ones are hairlines
const HAIR = 1; // device pixel
const WIDE = 2.2; // device pixels; wider lines were made so on purpose

interface PolylineStroke {
  readonly path: Path2D;
  readonly width: number; // device pixels
}

/** A path that looks `width` device pixels wide: itself, or hairlines one beside the other; `total` is of all lines. */
export function polylineStroke(path: Path2D, points: number, width: number, total: number): PolylineStroke {
  if (points <= FEW) return { path, width };
  const passes = total > MANY && width < WIDE ? 1 : Math.max(1, Math.ceil(width));
  if (passes === 1) return { path, width: HAIR };
  const all = new Path2D();
  const apart = (width - HAIR) / (passes - 1);
  for (let pass = 0; pass < passes; pass += 1) {
    const shift = pass * apart - (width - HAIR) / 2;
    // down and to the side, so that steep parts are as wide as flat ones
    all.addPath(path, { a: 1, b: 0, c: 0, d: 1, e: shift * 0.5, f: shift });
  }
  return { path: all, width: HAIR };
}
