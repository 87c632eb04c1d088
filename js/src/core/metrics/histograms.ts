// The histograms of a few modules side by side: of one step, which a slider chooses, or of all steps.

import { Disposers, el, listen, option } from "../../shared/ui/dom";
import { exactNumber } from "../../shared/base/format";
import type { Histogram, HistogramData } from "../data/series";
import {
  binAt,
  binEnds,
  type Box,
  domainOf,
  isDrawable,
  paintAxis,
  paintBars,
  paintRidge,
  paintTitle,
  plotBox,
  ridgeItems,
  sampleNote,
  valueAt
} from "./histogram_painter";
import { stepText, valueText } from "../base/value_axis";
import type { PanelStore } from "../base/state";
import type { ChartTheme } from "../base/chart_theme";
import { Tooltip } from "../../shared/ui/tooltip";
import { canDraw, pixelRatio } from "../../shared/base/canvas";

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
    this.mode.append(option("one", "one step"), option("ridge", "all steps"));
    this.mode.setAttribute("aria-label", "Steps shown");
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.step = "1";
    this.slider.setAttribute("aria-label", "Step");
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
    const text = at < 0 ? "" : `step ${stepText(this.steps[at])}${at === last ? " (latest)" : ""}`;
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
    this.canvas.setAttribute("aria-label", `Histograms of ${names || "no module"}`);
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
    if (isRidge) paintTitle(context, box, cell.label, `${items.length} steps`, theme);
    else paintTitle(context, box, cell.label, item ? sampleNote(item) : "", theme);
    if (!domain || (!isRidge && (!item || !isDrawable(item)))) {
      context.textAlign = "center";
      context.fillStyle = theme.muted;
      context.fillText(
        item ? "no finite values at this step" : "no values yet",
        plot.x + plot.width / 2,
        plot.y + plot.height / 2
      );
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
    const rows = [{ name: `${valueText(from)} to ${valueText(to)}`, value: exactNumber(item.counts[bin]) }];
    this.tip.show(
      event.clientX - area.left,
      event.clientY - area.top,
      `${cell.label} · step ${stepText(item.step)}`,
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
