// Marks over the lines of a chart: alerts, and values that were not finite.

import type uPlot from "uplot";
import { NOT_FINITE_COLOR } from "../../shared/stage/color";
import { el } from "../../shared/ui/dom";
import type { ChartMark, ChartPicture } from "./chart_picture";
import { pixelRatio } from "../../shared/base/canvas";

const SIZE = 4; // half of a mark, in CSS pixels
const MAX_FLAGS = 60;
const APART = 6; // CSS pixels

/** A dashed line down the chart at the step of each alert. */
export function drawMarks(plot: uPlot, { marks, theme, span }: ChartPicture): void {
  const { ctx, bbox } = plot;
  const ratio = pixelRatio();
  ctx.save();
  ctx.strokeStyle = theme.warn;
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.beginPath();
  let before = Number.NaN;
  for (const { step } of marks) {
    if (step < span[0] || step > span[1]) continue;
    const x = Math.round(plot.valToPos(step, "x", true)) + 0.5;
    if (x === before) continue;
    before = x;
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
  }
  ctx.stroke();
  ctx.restore();
}

/** At the foot of the chart a cross for NaN and an arrow down for −∞, at its head an arrow up for ∞. */
export function drawBroken(plot: uPlot, { lines }: ChartPicture): void {
  const { ctx, bbox } = plot;
  const ratio = pixelRatio();
  const size = SIZE * ratio;
  ctx.save();
  ctx.strokeStyle = NOT_FINITE_COLOR;
  ctx.lineWidth = 1.8 * ratio;
  ctx.setLineDash([]);
  ctx.beginPath();
  for (const { data, range, broken } of lines) {
    if (!broken) continue;
    const { steps, values } = data;
    let before = Number.NaN;
    for (let i = range.start; i < range.end; i += 1) {
      const value = values[i];
      if (Number.isFinite(value)) continue;
      const x = plot.valToPos(steps[i], "x", true);
      if (Math.abs(x - before) < 1.5 * size) continue; // they would cover each other
      before = x;
      const y = value === Infinity ? bbox.top + size + ratio : bbox.top + bbox.height - size - ratio;
      glyph(ctx, value, x, y, size);
    }
  }
  ctx.stroke();
  ctx.restore();
}

function glyph(ctx: CanvasRenderingContext2D, value: number, x: number, y: number, size: number): void {
  if (Number.isNaN(value)) {
    ctx.moveTo(x - size, y - size);
    ctx.lineTo(x + size, y + size);
    ctx.moveTo(x + size, y - size);
    ctx.lineTo(x - size, y + size);
    return;
  }
  const tip = value > 0 ? -size : size;
  ctx.moveTo(x - size, y - tip / 2);
  ctx.lineTo(x, y + tip / 2);
  ctx.lineTo(x + size, y - tip / 2);
}

/** A small flag on top of each alert's line, with its sentence as the tooltip; flags on one place share theirs. */
export class Flags {
  private readonly pool: HTMLElement[] = [];

  constructor(private readonly over: HTMLElement) {}

  place(plot: uPlot, marks: readonly ChartMark[]): void {
    const places = this.places(plot, marks);
    while (this.pool.length < places.length) {
      const flag = el("div", "mkg-metric-flag");
      flag.setAttribute("aria-hidden", "true"); // the list of alerts says the same
      this.over.append(flag);
      this.pool.push(flag);
    }
    this.pool.forEach((flag, i) => {
      flag.hidden = i >= places.length;
      if (flag.hidden) return;
      const { x, texts } = places[i];
      const title = texts.join("\n");
      if (flag.title !== title) flag.title = title;
      flag.style.transform = `translate(${Math.round(x)}px, 0)`;
    });
  }

  private places(plot: uPlot, marks: readonly ChartMark[]): { x: number; texts: string[] }[] {
    const places: { x: number; texts: string[] }[] = [];
    const width = this.over.clientWidth;
    for (const { step, text } of marks) {
      const x = plot.valToPos(step, "x");
      if (x < 0 || x > width) continue;
      const near = places.find(place => Math.abs(place.x - x) < APART);
      if (near) near.texts.push(text);
      else if (places.length < MAX_FLAGS) places.push({ x, texts: [text] });
    }
    return places;
  }
}

/** The sentences of the alerts beside a place on the chart. */
export function textsNear(plot: uPlot, marks: readonly ChartMark[], x: number): string[] {
  const near = marks.filter(({ step }) => Math.abs(plot.valToPos(step, "x") - x) < APART);
  return near.slice(0, 3).map(({ text }) => text);
}
