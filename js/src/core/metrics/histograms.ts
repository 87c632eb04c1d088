// Histograms of a few modules side by side: of one step, which a slider chooses, or of all steps.

import { Disposers, el, listen, option } from "../shared/ui/dom";
import { exactNumber, shortNumber } from "../shared/base/format";
import type { Histogram, HistogramData } from "./data/series";
import { severalTicks, stepText, valueText, roundTicks, tickTexts } from "./base/value_axis";
import type { PanelStore } from "./base/state";
import type { ChartTheme } from "./base/chart_theme";
import { Tooltip } from "../shared/ui/tooltip";
import { canDraw, pixelRatio } from "../shared/base/canvas";
import { sample } from "../shared/stage/color";
import { mix } from "../shared/stage/theme";
import * as words from "../words/metrics";

export interface HistogramCell {
  readonly label: string;
  readonly data: HistogramData;
  readonly first: number; // earlier and later steps are not shown
  readonly last: number;
  readonly color: string;
}

export interface HistogramPicture {
  readonly cells: readonly HistogramCell[];
  readonly log: boolean;
  readonly theme: ChartTheme;
}

export const MAX_CELLS = 12;
const WIDEST_CELL = 210;
const MIN_HEIGHT = 110;
const MIN_RIDGE_HEIGHT = 190;

export class Histograms {
  private readonly disposers = new Disposers();
  private readonly canvas = el("canvas");
  private readonly scroller = el("div", "mkg-metric-scroller");
  private readonly mode = el("select", "mkg-metric-histogram-mode");
  private readonly slider = el("input", "mkg-metric-step");
  private readonly said = el("output", "mkg-metric-step-text");
  private readonly tip: Tooltip;
  private picture?: HistogramPicture;
  private steps: number[] = [];
  private boxes: Box[] = [];

  constructor(
    host: HTMLElement,
    private readonly store: PanelStore
  ) {
    host.classList.add("mkg-metric-histogram");
    const area = el("div", "mkg-metric-histogram-area");
    this.canvas.setAttribute("role", "img");
    this.scroller.append(this.canvas);
    area.append(this.scroller);
    host.append(this.controls(), area);
    this.tip = new Tooltip(area);
    this.disposers.add(
      listen(this.scroller, "mousemove", event => this.point(event)),
      listen(this.scroller, "mouseleave", () => this.tip.hide()),
      listen(this.mode, "change", () => store.set("ridge", this.mode.value === "ridge")),
      listen(this.slider, "input", () => this.slide()),
      store.on("ridge", () => this.tip.hide()),
      () => host.replaceChildren()
    );
  }

  get bitmap(): HTMLCanvasElement {
    return this.canvas;
  }

  dispose(): void {
    this.disposers.dispose();
  }

  draw(picture: HistogramPicture): void {
    this.picture = picture;
    this.steps = stepsOf(picture.cells);
    this.showControls();
    this.paint();
  }

  /** What is shown, for the file. */
  shown(): { cell: HistogramCell; items: readonly Histogram[] }[] {
    const isRidge = this.store.get("ridge");
    return (this.picture?.cells ?? []).map(cell => {
      const item = this.itemOf(cell);
      return { cell, items: isRidge ? itemsOf(cell) : item ? [item] : [] };
    });
  }

  private controls(): HTMLElement {
    const bar = el("div", "mkg-metric-histogram-bar");
    this.mode.append(option("one", words.ONE_STEP), option("ridge", words.ALL_STEPS));
    this.mode.setAttribute("aria-label", words.STEPS_SHOWN);
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.step = "1";
    this.slider.setAttribute("aria-label", words.STEP_SLIDER);
    bar.append(this.mode, this.slider, this.said);
    return bar;
  }

  private showControls(): void {
    const isRidge = this.store.get("ridge");
    const last = this.steps.length - 1;
    this.mode.value = isRidge ? "ridge" : "one";
    this.slider.hidden = this.said.hidden = isRidge;
    this.slider.disabled = last < 1;
    this.slider.max = String(Math.max(0, last));
    const at = this.place();
    this.slider.value = String(Math.max(0, at));
    const step = at < 0 ? "" : words.stepAt(stepText(this.steps[at]));
    const text = at >= 0 && at === last ? words.latest(step) : step;
    this.said.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }

  /** Where the chosen step stands among those there are; the last place follows the latest. */
  private place(): number {
    const step = this.store.get("step");
    if (step === null) return this.steps.length - 1;
    let at = 0;
    while (at + 1 < this.steps.length && this.steps[at + 1] <= step) at += 1;
    return Math.min(at, this.steps.length - 1);
  }

  private get step(): number {
    return this.steps[this.place()] ?? Infinity;
  }

  private slide(): void {
    const at = Number(this.slider.value);
    this.store.set("step", at >= this.steps.length - 1 ? null : this.steps[at]);
  }

  private paint(): void {
    const { picture } = this;
    const context = canDraw() ? this.canvas.getContext("2d") : null;
    if (!context || !picture) return;
    const { clientWidth: width, clientHeight } = this.scroller;
    const columns = Math.max(1, Math.min(picture.cells.length, Math.floor(width / WIDEST_CELL)));
    const rows = Math.max(1, Math.ceil(picture.cells.length / columns));
    const cellHeight = Math.max(
      this.store.get("ridge") ? MIN_RIDGE_HEIGHT : MIN_HEIGHT,
      Math.floor(clientHeight / rows)
    );
    const ratio = pixelRatio();
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${cellHeight * rows}px`;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(cellHeight * rows * ratio));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.boxes = picture.cells.map((_, i) => ({
      x: (i % columns) * (width / columns),
      y: Math.floor(i / columns) * cellHeight,
      width: width / columns,
      height: cellHeight
    }));
    picture.cells.forEach((cell, i) => this.paintCell(context, cell, this.boxes[i], picture));
    const names = picture.cells.map(({ label }) => label).join(", ");
    this.canvas.setAttribute("aria-label", words.histogramsOf(names));
  }

  private paintCell(
    context: CanvasRenderingContext2D,
    cell: HistogramCell,
    box: Box,
    { theme, log }: HistogramPicture
  ): void {
    const isRidge = this.store.get("ridge");
    const items = itemsOf(cell);
    const domain = domainOf(items);
    const plot = plotBox(box, isRidge);
    const item = this.itemOf(cell);
    const style = { theme, color: cell.color, log };
    if (isRidge) paintTitle(context, box, cell.label, words.stepCount(items.length), theme);
    else paintTitle(context, box, cell.label, item ? sampleNote(item) : "", theme);
    if (!domain || (!isRidge && (!item || !isDrawable(item)))) {
      context.textAlign = "center";
      context.fillStyle = theme.muted;
      context.fillText(item ? words.NO_FINITE : words.NO_VALUES, plot.x + plot.width / 2, plot.y + plot.height / 2);
      return;
    }
    if (isRidge) paintRidge(context, plot, ridgeItems(items, plot.height), domain, style);
    else if (item) paintBars(context, plot, item, domain, style);
    paintAxis(context, plot, domain, theme);
  }

  private itemOf(cell: HistogramCell): Histogram | undefined {
    const item = cell.data.at(Math.min(this.step, cell.last));
    return item && isSelectedStep(cell, item) ? item : undefined;
  }

  private point(event: MouseEvent): void {
    const box = this.canvas.getBoundingClientRect();
    const area = this.scroller.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const at = this.boxes.findIndex(b => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + b.height);
    const cell = this.picture?.cells[at];
    const item = cell && this.pointedItem(cell, this.boxes[at], y);
    const domain = cell && domainOf(itemsOf(cell));
    if (!cell || !item || !domain) {
      this.tip.hide();
      return;
    }
    const bin = binAt(item, valueAt(plotBox(this.boxes[at], this.store.get("ridge")), domain, x));
    if (bin < 0) {
      this.tip.hide();
      return;
    }
    const [from, to] = binEnds(item, bin);
    const rows = [{ name: words.binRange(valueText(from), valueText(to)), value: exactNumber(item.counts[bin]) }];
    this.tip.show(
      event.clientX - area.left,
      event.clientY - area.top,
      words.cellAt(cell.label, stepText(item.step)),
      rows,
      [sampleNote(item)]
    );
  }

  /** In a ridge the outline whose foot is nearest below the pointer. */
  private pointedItem(cell: HistogramCell, box: Box, y: number): Histogram | undefined {
    if (!this.store.get("ridge")) return this.itemOf(cell);
    const plot = plotBox(box, true);
    const items = ridgeItems(itemsOf(cell), plot.height);
    const share = (y - plot.y) / plot.height;
    return items[Math.min(items.length - 1, Math.max(0, Math.floor(share * items.length)))];
  }
}

function itemsOf(cell: HistogramCell): Histogram[] {
  return cell.data.items.filter(item => isSelectedStep(cell, item));
}

function isSelectedStep({ first, last }: HistogramCell, { step }: Histogram): boolean {
  return step >= first && step <= last;
}

function stepsOf(cells: readonly HistogramCell[]): number[] {
  const steps = new Set<number>();
  for (const cell of cells) for (const { step } of itemsOf(cell)) steps.add(step);
  return [...steps].sort((a, b) => a - b);
}

// One cell of the histogram view: the bars of one step, or the outlines of all steps one behind the other.

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The values that a cell's axis reaches over. */
interface Domain {
  readonly low: number;
  readonly high: number;
}

interface BarStyle {
  readonly theme: ChartTheme;
  readonly color: string;
  readonly log: boolean; // heights
}

const FONT = 11;
const TITLE = 20;
const FOOT = 18;
const SIDE = 10;
const OVERHANG = 6; // of texts of an axis
const RIDGE_LABELS = 48;
const MAX_RIDGES = 28;
const OVERLAP = 2.6; // a ridge may be so many times as high as the space between two

export function isDrawable({ low, high, counts }: Histogram): boolean {
  return Number.isFinite(low) && Number.isFinite(high) && high >= low && counts.length > 0;
}

export function domainOf(items: readonly Histogram[]): Domain | null {
  const drawable = items.filter(isDrawable);
  if (!drawable.length) return null;
  const low = drawable.reduce((least, item) => Math.min(least, item.low), Infinity);
  const high = drawable.reduce((most, item) => Math.max(most, item.high), -Infinity);
  if (high > low) return { low, high };
  const pad = Math.abs(low) * 0.1 || 1;
  return { low: low - pad, high: high + pad };
}

/** The part of a cell in which bars stand. */
export function plotBox({ x, y, width, height }: Box, isRidge: boolean): Box {
  const left = SIDE + (isRidge ? RIDGE_LABELS : 0);
  return {
    x: x + left,
    y: y + TITLE,
    width: Math.max(1, width - left - SIDE),
    height: Math.max(1, height - TITLE - FOOT)
  };
}

function paintTitle(context: CanvasRenderingContext2D, box: Box, title: string, note: string, theme: ChartTheme): void {
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.font = `600 ${FONT}px ${theme.font}`;
  context.fillStyle = theme.text;
  const y = box.y + TITLE / 2;
  context.fillText(title, box.x + SIDE, y, box.width - 2 * SIDE);
  const used = context.measureText(title).width;
  context.font = `${FONT}px ${theme.font}`;
  context.fillStyle = theme.muted;
  context.textAlign = "right";
  if (used + context.measureText(note).width + 3 * SIDE < box.width) {
    context.fillText(note, box.x + box.width - SIDE, y);
  }
}

export function paintAxis(context: CanvasRenderingContext2D, plot: Box, domain: Domain, theme: ChartTheme): void {
  const ticks = severalTicks(wanted => roundTicks(domain.low, domain.high, wanted), plot.width / 70);
  const bottom = plot.y + plot.height;
  context.strokeStyle = theme.axis;
  context.fillStyle = theme.muted;
  context.lineWidth = 1;
  context.font = `${FONT}px ${theme.font}`;
  context.textBaseline = "top";
  context.textAlign = "center";
  context.beginPath();
  context.moveTo(plot.x, bottom + 0.5);
  context.lineTo(plot.x + plot.width, bottom + 0.5);
  tickTexts(ticks).forEach((text, i) => {
    const x = Math.round(place(plot, domain, ticks[i])) + 0.5;
    context.moveTo(x, bottom);
    context.lineTo(x, bottom + 4);
    // texts end before the cell does, and do not touch those beside it
    const half = context.measureText(text).width / 2;
    const [least, most] = [plot.x - OVERHANG + half, plot.x + plot.width + OVERHANG - half];
    context.fillText(text, Math.max(least, Math.min(most, x)), bottom + 5);
  });
  context.stroke();
}

export function paintBars(
  context: CanvasRenderingContext2D,
  plot: Box,
  item: Histogram,
  domain: Domain,
  style: BarStyle
): void {
  const most = item.counts.reduce((found, count) => Math.max(found, count), 0);
  const bottom = plot.y + plot.height;
  context.fillStyle = mix(style.theme.ground, style.color, 0.72);
  context.strokeStyle = style.color;
  context.lineWidth = 1;
  item.counts.forEach((count, bin) => {
    if (!(count > 0)) return;
    const [from, to] = binEnds(item, bin);
    const left = place(plot, domain, from);
    const right = Math.max(left + 1, place(plot, domain, to));
    const height = Math.max(1, share(count, most, style.log) * (plot.height - 6));
    const gap = right - left > 4 ? 0.5 : 0;
    context.fillRect(left + gap, bottom - height, right - left - 2 * gap, height);
    context.fillRect(left + gap, bottom - height, right - left - 2 * gap, 1);
  });
}

/** The steps of a ridge: so many as there is room for, evenly chosen, the last one always. */
export function ridgeItems(items: readonly Histogram[], height: number): Histogram[] {
  const drawable = items.filter(isDrawable);
  const most = Math.max(2, Math.min(MAX_RIDGES, Math.floor(height / 9)));
  if (drawable.length <= most) return drawable;
  return Array.from({ length: most }, (_, i) => drawable[Math.round((i * (drawable.length - 1)) / (most - 1))]);
}

/** Early steps at the back and on top, late ones in front. */
function paintRidge(
  context: CanvasRenderingContext2D,
  plot: Box,
  items: readonly Histogram[],
  domain: Domain,
  style: BarStyle
): void {
  const apart = plot.height / (items.length + OVERLAP - 1);
  const every = Math.max(1, Math.ceil(13 / apart));
  const { theme } = style;
  context.lineJoin = "round";
  items.forEach((item, i) => {
    const base = plot.y + (i + OVERLAP) * apart;
    const most = item.counts.reduce((found, count) => Math.max(found, count), 0);
    const hue = sample(items.length > 1 ? 0.1 + (0.75 * i) / (items.length - 1) : 0.5);
    outline(context, plot, item, domain, base, count => share(count, most, style.log) * apart * OVERLAP * 0.95);
    context.fillStyle = mix(theme.ground, hue, 0.5);
    context.fill();
    context.strokeStyle = mix(hue, theme.dark ? "#ffffff" : "#000000", 0.35);
    context.lineWidth = 1;
    context.stroke();
    if ((items.length - 1 - i) % every === 0) {
      context.fillStyle = theme.muted;
      context.font = `${FONT}px ${theme.font}`;
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(stepText(item.step), plot.x - 6, base - 2, RIDGE_LABELS);
    }
  });
}

function outline(
  context: CanvasRenderingContext2D,
  plot: Box,
  item: Histogram,
  domain: Domain,
  base: number,
  height: (count: number) => number
): void {
  context.beginPath();
  context.moveTo(place(plot, domain, item.low), base);
  item.counts.forEach((count, bin) => {
    const [from, to] = binEnds(item, bin);
    context.lineTo(place(plot, domain, from / 2 + to / 2), base - height(Math.max(0, count)));
  });
  context.lineTo(place(plot, domain, item.high), base);
  context.closePath();
}

function share(count: number, most: number, log: boolean): number {
  if (!(most > 0)) return 0;
  return log ? Math.log1p(count) / Math.log1p(most) : count / most;
}

export function binEnds({ low, high, counts }: Histogram, bin: number): [number, number] {
  const at = (i: number) => low * (1 - i / counts.length) + high * (i / counts.length);
  return [at(bin), at(bin + 1)];
}

/** The bin at a value; -1 beyond the ends. */
export function binAt(item: Histogram, value: number): number {
  if (!isDrawable(item) || value < item.low || value > item.high) return -1;
  const position = item.high > item.low ? (value - item.low) / (item.high - item.low) : 0;
  return Math.min(item.counts.length - 1, Math.floor(position * item.counts.length));
}

function place(plot: Box, { low, high }: Domain, value: number): number {
  return plot.x + ((value / 2 - low / 2) / (high / 2 - low / 2)) * plot.width;
}

export function valueAt(plot: Box, { low, high }: Domain, x: number): number {
  const position = (x - plot.x) / plot.width;
  return low * (1 - position) + high * position;
}

/** How many values were counted, where that is not all of them. */
export function sampleNote({ total, sampled }: Histogram): string {
  return sampled < total
    ? words.sampleOf(shortNumber(sampled), shortNumber(total))
    : words.valueCount(shortNumber(total));
}
