// A line chart as plain data, what a pointer reads off it, and its keyboard.

import type { LineData } from "../data/series";
import type { Range } from "../data/polyline";
import type { ValueAxis } from "../base/value_axis";
import type { Span } from "../base/state";
import type { ChartTheme } from "../base/chart_theme";
import { type Disposer, listen } from "../../shared/ui/dom";

export interface ChartLine {
  readonly series: number;
  readonly module: string;
  readonly label: string;
  readonly suffix: string; // the end of the label
  readonly names: readonly string[]; // of all series that have these values
  readonly ends: readonly string[]; // the names at its end; series that differ by the run alone have one
  readonly isSelected: boolean; // its module is, or one that has the same values
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
  readonly message: string; // in place of axes, where there is nothing to draw a line of; else ""
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

// The line chart with the keyboard: arrows read values, + and − zoom, Escape shows all.

interface KeyTarget {
  picture(): ChartPicture | undefined;
  cursorStep(): number | null;
  moveTo(step: number | null): void;
  zoom(span: Span | null): void;
}

const ZOOM = 2;
const MIN_SPAN = 4; // steps

export function bindChartKeys(host: HTMLElement, target: KeyTarget): Disposer {
  host.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight Home End + - Escape");
  return listen(host, "keydown", event => {
    const picture = target.picture();
    if (!picture || event.target !== host || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!handle(event.key, picture, target)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function handle(key: string, picture: ChartPicture, target: KeyTarget): boolean {
  const [first, last] = picture.span;
  const at = target.cursorStep();
  switch (key) {
    case "ArrowRight":
    case "ArrowLeft": {
      const direction = key === "ArrowRight" ? 1 : -1;
      const from = at === null ? (direction > 0 ? first - 1 : last + 1) : Math.round(at);
      const step = stepBeside(picture.lines, from, direction);
      if (!Number.isNaN(step)) target.moveTo(step);
      return true;
    }
    case "Home":
    case "End":
      target.moveTo(key === "Home" ? first : last);
      return true;
    case "+":
    case "=":
      target.zoom(zoomed(picture, at, 1 / ZOOM));
      return true;
    case "-":
      target.zoom(zoomed(picture, at, ZOOM));
      return true;
    case "Escape":
      target.zoom(null);
      target.moveTo(null);
      return true;
    default:
      return false;
  }
}

/** The span around a step, so many times as wide, among the steps that there are; null is all of them. */
export function zoomed(
  { span, lines }: Pick<ChartPicture, "span" | "lines">,
  at: number | null,
  factor: number
): Span | null {
  const held = lines.filter(({ data }) => data.length > 0);
  const first = Math.min(span[0], ...held.map(({ data }) => data.steps[0]));
  const last = Math.max(span[1], ...held.map(({ data }) => data.lastStep));
  const width = Math.max(MIN_SPAN, Math.ceil((span[1] - span[0]) * factor));
  if (width >= last - first) return null;
  const start = Math.floor((at ?? (span[0] + span[1]) / 2) - width / 2);
  const from = Math.min(Math.max(start, first), last - width);
  return [from, from + width];
}
