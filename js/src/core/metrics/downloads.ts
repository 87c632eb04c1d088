// Downloads of a panel: the picture with title and legend as a PNG, and the values as CSV.

import { sample } from "../shared/stage/color";
import { el } from "../shared/ui/dom";
import type { ChartTheme } from "./base/chart_theme";
import { canDraw, type Picture } from "../shared/base/canvas";
import type { Histogram, LineData } from "./data/series";
import type { Range } from "./data/polyline";
import type { Entry } from "./data/metric_data";

export interface LegendEntry {
  readonly text: string;
  readonly color: string;
  readonly dash: readonly number[];
}

/** The colors of a heat map, and what they begin and end with. */
export interface ColorRamp {
  readonly low: string;
  readonly high: string;
  readonly note: string;
}

interface PictureFile {
  readonly title: string;
  readonly picture: Picture;
  readonly legend: readonly LegendEntry[];
  readonly ramp: ColorRamp | null;
  readonly notes: readonly string[];
  readonly theme: ChartTheme;
}

const MARGIN = 14;
const TITLE = 30;
const LINE = 20;
const KEY = 26;
const RAMP = 220;

/** Null where there is no canvas to draw on. */
export function pictureToPng({ title, picture, legend, ramp, notes, theme }: PictureFile): Promise<Blob | null> {
  const { canvas, ratio } = picture;
  const target = el("canvas");
  const context = canDraw() && canvas.width > 0 ? target.getContext("2d") : null;
  if (!context) return Promise.resolve(null);
  const [width, height] = [canvas.width / ratio + 2 * MARGIN, canvas.height / ratio];
  const font = (weight: string, size: number) => `${weight} ${size}px ${theme.font}`;
  context.font = font("400", 12);
  const rows = wrapped(legend, width - 2 * MARGIN, text => context.measureText(text).width + KEY + 18);
  target.width = Math.round(width * ratio);
  target.height = Math.round(
    (TITLE + height + (rows.length + (ramp ? 1 : 0) + notes.length) * LINE + 2 * MARGIN) * ratio
  );
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = theme.ground;
  context.fillRect(0, 0, target.width, target.height);
  context.textBaseline = "middle";
  context.fillStyle = theme.text;
  context.font = font("600", 14);
  context.fillText(title, MARGIN, MARGIN + TITLE / 2 - 4, width - 2 * MARGIN);
  context.drawImage(canvas, MARGIN, MARGIN + TITLE, canvas.width / ratio, height);
  context.font = font("400", 12);
  rows.forEach((row, i) => paintRow(context, row, MARGIN + TITLE + height + (i + 0.5) * LINE, theme));
  context.setLineDash([]);
  context.fillStyle = theme.muted;
  let below = MARGIN + TITLE + height + rows.length * LINE;
  if (ramp) {
    paintRamp(context, ramp, below + LINE / 2, theme);
    below += LINE;
  }
  context.fillStyle = theme.muted;
  notes.forEach((note, i) => context.fillText(note, MARGIN, below + (i + 0.5) * LINE, width - 2 * MARGIN));
  return new Promise(resolve => target.toBlob(resolve, "image/png"));
}

interface Placed extends LegendEntry {
  readonly x: number;
}

/** The entries in rows of a width. */
function wrapped(entries: readonly LegendEntry[], room: number, widthOf: (text: string) => number): Placed[][] {
  const rows: Placed[][] = [];
  let x = Infinity;
  for (const entry of entries) {
    const width = widthOf(entry.text);
    if (x + width > room) {
      rows.push([]);
      x = 0;
    }
    rows[rows.length - 1].push({ ...entry, x });
    x += width;
  }
  return rows;
}

function paintRow(context: CanvasRenderingContext2D, row: readonly Placed[], y: number, theme: ChartTheme): void {
  for (const { text, color, dash, x } of row) {
    context.strokeStyle = color;
    context.lineWidth = 2.5;
    context.setLineDash([...dash]);
    context.beginPath();
    context.moveTo(MARGIN + x, y);
    context.lineTo(MARGIN + x + 20, y);
    context.stroke();
    context.fillStyle = theme.text;
    context.fillText(text, MARGIN + x + KEY, y);
  }
}

function paintRamp(
  context: CanvasRenderingContext2D,
  { low, high, note }: ColorRamp,
  y: number,
  theme: ChartTheme
): void {
  const start = MARGIN + context.measureText(low).width + 8;
  const gradient = context.createLinearGradient(start, 0, start + RAMP, 0);
  for (let stop = 0; stop <= 10; stop += 1) gradient.addColorStop(stop / 10, sample(stop / 10));
  context.fillStyle = theme.text;
  context.fillText(low, MARGIN, y);
  context.fillText(`${high}  ${note}`, start + RAMP + 8, y);
  context.fillStyle = gradient;
  context.fillRect(start, y - 5, RAMP, 10);
}

// What is shown, as a table of values separated by commas.

export interface Named {
  readonly run: string;
  readonly entry: Entry;
}

interface CsvLine extends Named {
  readonly data: LineData;
  readonly range: Range;
}

interface CsvHistogram extends Named {
  readonly items: readonly Histogram[];
}

const WHO = ["run", "module", "metric", "call", "phase"];

export function linesToCsv(lines: readonly CsvLine[]): string {
  const rows = [[...WHO, "step", "value"].join(",")];
  for (const line of lines) {
    const head = who(line);
    const { steps, values } = line.data;
    for (let i = line.range.start; i < line.range.end; i += 1) rows.push(`${head},${steps[i]},${values[i]}`);
  }
  return rows.join("\r\n") + "\r\n";
}

/** One row for each bin. */
export function histogramsToCsv(histograms: readonly CsvHistogram[]): string {
  const rows = [[...WHO, "step", "low", "high", "count", "values", "sampled"].join(",")];
  for (const histogram of histograms) {
    const head = who(histogram);
    for (const { step, low, high, total, sampled, counts } of histogram.items) {
      const width = (high - low) / counts.length;
      counts.forEach((count, bin) => {
        const ends = [low + bin * width, bin === counts.length - 1 ? high : low + (bin + 1) * width];
        rows.push([head, step, ...ends, count, total, sampled].join(","));
      });
    }
  }
  return rows.join("\r\n") + "\r\n";
}

function who({ run, entry }: Named): string {
  return [textCell(run), textCell(entry.module), textCell(entry.metric), entry.call, textCell(entry.phase)].join(",");
}

/** A text that a spreadsheet would take for a formula gets an apostrophe before it, and quotes where it needs them. */
export function textCell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
