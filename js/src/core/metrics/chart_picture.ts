// What a line chart shows, as plain data, and the questions that a pointer asks of it.

import type { LineData } from "./line_data";
import type { Range } from "./line_path";
import type { ValueAxis } from "./value_axis";
import type { Span } from "./state";
import type { ChartTheme } from "./chart_theme";

export interface ChartLine {
  readonly series: number;
  readonly module: string;
  readonly label: string;
  readonly suffix: string; // the end of the label
  readonly data: LineData;
  readonly range: Range; // the points in the span
  readonly color: string;
  readonly dash: readonly number[];
  readonly width: number;
  readonly hasDots: boolean; // a dot at every value
  readonly reason: string; // why the panel chose it; "" where it did not
  readonly broken: number; // values in the range that are not finite
}

export interface ChartMark {
  readonly step: number;
  readonly text: string;
}

export interface ChartPicture {
  readonly lines: readonly ChartLine[];
  readonly span: Span;
  readonly axis: ValueAxis;
  readonly marks: readonly ChartMark[];
  readonly theme: ChartTheme;
}

export interface Reading {
  readonly line: ChartLine;
  readonly step: number;
  readonly value: number;
}

/** The step of the point nearest to `step`, over all lines; NaN when there is none. */
export function nearestStep(lines: readonly ChartLine[], step: number): number {
  let found = Number.NaN;
  for (const line of lines) {
    const reading = readingAt(line, step);
    if (reading && !(Math.abs(found - step) <= Math.abs(reading.step - step))) found = reading.step;
  }
  return found;
}

/** The point of a line nearest to `step`, of those in its range. */
export function readingAt(line: ChartLine, step: number): Reading | null {
  const { data, range } = line;
  if (range.end <= range.start) return null;
  const at = Math.max(range.start, data.nearest(step, range.end));
  return { line, step: data.steps[at], value: data.values[at] };
}

export function readingsAt(lines: readonly ChartLine[], step: number): Reading[] {
  return lines.map(line => readingAt(line, step)).filter(reading => reading !== null);
}

/** The reading whose place is nearest to `plot`; null without a finite one. */
export function nearestReading(readings: readonly Reading[], axis: ValueAxis, plot: number): Reading | null {
  let found: Reading | null = null;
  let least = Infinity;
  for (const reading of readings) {
    const distance = Math.abs(axis.plot(reading.value) - plot);
    if (distance < least) [found, least] = [reading, distance];
  }
  return found;
}

/** The next step in a direction at which any line has a point. */
export function stepBeside(lines: readonly ChartLine[], step: number, direction: 1 | -1): number {
  let found = Number.NaN;
  for (const { data, range } of lines) {
    let at = direction > 0 ? data.before(step) : data.before(step) - 1;
    if (direction > 0 && data.steps[at] === step) at += 1;
    if (at < range.start || at >= range.end) continue;
    const next = data.steps[at];
    if (!(Math.abs(found - step) <= Math.abs(next - step))) found = next;
  }
  return found;
}
