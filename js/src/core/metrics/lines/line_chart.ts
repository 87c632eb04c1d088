// The line chart over steps: uPlot has the axes, the cursor and the drag; paths and marks are drawn here.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Debounced, Disposers, el, listen, setText } from "../../shared/ui/dom";
import {
  bindChartKeys,
  type ChartLine,
  type ChartPicture,
  nearestReading,
  nearestStep,
  type Reading,
  readingsAt,
  type ChartMark
} from "./chart_picture";
import { polylineStroke, tracePath } from "../data/polyline";
import { severalTicks, stepText, stepTicks, tickTexts, valueText } from "../base/value_axis";
import type { Span } from "../base/state";
import { type ChartTheme, sameTheme } from "../base/chart_theme";
import { Tooltip } from "../../shared/ui/tooltip";
import { canDraw, pixelRatio } from "../../shared/base/canvas";
import { NOT_FINITE_COLOR } from "../../shared/stage/color";
import { labelRoom, paintEndLabels, scaled } from "./end_labels";
import * as words from "../../words/metrics";

interface ChartEvents {
  zoom(span: Span | null): void;
  hover(step: number | null): void;
  pick(module: string): void;
}

/** A chart among others: small, with the names of its lines at their ends; a click opens it. */
interface SmallChart {
  readonly tipHost: HTMLElement; // around the chart, with room for the box at the pointer
  open(): void;
}

const FADED = 0.15; // of the lines beside the one that is pointed at
const NEAR = 24; // pixels from a line that still count as a click on it
const DOUBLE_CLICK = 250; // ms; a click that may be the first of two waits so long
const VERY_MANY = 20_000; // points of all lines that are drawn less finely
const TIP_ROWS = 10;
const DOT = 2.4;
const AXIS_FONT = 11;
const SMALL_FONT = 10;
const MIN_WIDTH = 80;
const NAME_ROOM = 15; // CSS pixels above the plot for the name of its scale

export class LineChart {
  private readonly disposers = new Disposers();
  private readonly tip: Tooltip;
  private readonly dots: HTMLElement[] = [];
  private readonly message = el("div", "mkg-metric-message");
  private plot?: uPlot;
  private flags?: Flags;
  private picture?: ChartPicture;
  private pointed: number | null = null;
  private axisWidth = 0;
  private keyStep: number | null = null; // where the keyboard has put the cursor
  private readonly clicked = new Debounced(() => this.click(), DOUBLE_CLICK);

  constructor(
    private readonly host: HTMLElement,
    private readonly events: ChartEvents,
    private readonly small?: SmallChart
  ) {
    host.classList.add("mkg-metric-chart");
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    this.tip = new Tooltip(small?.tipHost ?? host);
    if (!canDraw()) host.prepend(el("canvas"));
    host.append(this.message);
    this.disposers.add(
      bindChartKeys(host, {
        picture: () => this.picture,
        cursorStep: () => this.keyStep ?? this.cursorStep(),
        moveTo: step => this.moveTo(step),
        zoom: events.zoom
      }),
      listen(host, "blur", () => this.moveTo(null)),
      listen(host, "mousemove", () => void (this.keyStep = null)),
      listen(host, "keydown", event => {
        if (event.key === "Enter") small?.open();
      })
    );
  }

  get canvas(): HTMLCanvasElement | null {
    return this.host.querySelector("canvas");
  }

  dispose(): void {
    this.clicked.cancel();
    this.disposers.dispose();
    this.plot?.destroy();
    this.plot = undefined;
    this.tip.dispose();
    this.host.replaceChildren();
  }

  draw(picture: ChartPicture): void {
    const before = this.picture;
    this.picture = picture;
    setText(this.message, picture.message);
    this.message.hidden = picture.message === "";
    this.host.classList.toggle("mkg-has-message", picture.message !== "");
    if (!canDraw()) return;
    if (!this.plot || !before || !isSameKind(before, picture)) this.create(picture);
    const { plot } = this;
    if (!plot) return;
    const { clientWidth, clientHeight } = this.host;
    const [width, height] = [Math.max(MIN_WIDTH, clientWidth), Math.max(MIN_WIDTH, clientHeight)];
    plot.batch(() => {
      if (plot.width !== width || plot.height !== height) plot.setSize({ width, height });
      plot.setData(ends(picture), false);
      plot.setScale("x", { min: picture.span[0], max: picture.span[1] });
      plot.setScale("y", { min: picture.axis.low, max: picture.axis.high });
    });
    this.flags?.place(plot, picture.marks);
    if (this.keyStep !== null) this.moveTo(this.keyStep);
    else if (this.tip.isShown) this.followCursor();
  }

  /** Fades the lines beside the series that is pointed at in the legend. */
  point(series: number | null): void {
    this.pointed = series;
    if (!this.plot || !this.picture) return;
    this.fade(this.plot, this.picture.lines);
    this.plot.redraw(false);
  }

  private fade(plot: uPlot, lines: readonly ChartLine[]): void {
    const isThere = lines.some(({ series }) => series === this.pointed);
    lines.forEach(({ series }, i) => {
      plot.series[i + 1].alpha = isThere && series !== this.pointed ? FADED : 1;
    });
  }

  private create(picture: ChartPicture): void {
    this.plot?.destroy();
    const target = el("div", "mkg-metric-plot");
    this.host.querySelector(".mkg-metric-plot")?.remove();
    this.host.prepend(target);
    this.dots.length = 0;
    this.plot = new uPlot(this.options(picture), ends(picture), target);
    this.flags = new Flags(this.plot.over);
    this.fade(this.plot, picture.lines);
    this.plot.over.addEventListener("click", () => (this.small ? this.small.open() : this.clicked.call()));
  }

  private options(picture: ChartPicture): uPlot.Options {
    const { theme } = picture;
    return {
      width: Math.max(MIN_WIDTH, this.host.clientWidth),
      height: Math.max(MIN_WIDTH, this.host.clientHeight),
      padding: [
        picture.axis.log ? NAME_ROOM + 2 : this.small ? 8 : 14,
        this.small ? plot => labelRoom(plot, this.picture, this.font) : 16,
        0,
        0
      ],
      legend: { show: false },
      scales: { x: { time: false, auto: false }, y: { auto: false } },
      cursor: {
        x: true,
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        bind: { dblclick: () => () => this.showAll() }
      },
      axes: [this.stepAxis(theme), this.valueAxis(theme)],
      series: [{}, ...picture.lines.map((line, i) => this.series(line, i))],
      hooks: {
        setSelect: [plot => this.select(plot)],
        setCursor: [() => this.followCursor()],
        draw: [plot => this.drawOver(plot)]
      }
    };
  }

  private series({ color, dash, width }: ChartLine, i: number): uPlot.Series {
    return {
      auto: false,
      pxAlign: 0,
      stroke: color,
      fill: color,
      width,
      dash: dash.map(part => part * pixelRatio()),
      points: { show: false },
      paths: plot => this.path(plot, i)
    };
  }

  private get font(): string {
    return `${this.small ? SMALL_FONT : AXIS_FONT}px ${this.picture?.theme.font ?? ""}`;
  }

  private stepAxis(theme: ChartTheme): uPlot.Axis {
    const label = { label: words.STEP, labelSize: 16, labelGap: 0, labelFont: this.font };
    return {
      ...axisColors(theme, this.font),
      size: this.small ? 22 : 30,
      ...(this.small ? {} : label),
      splits: (plot, _axis, min, max) =>
        onlyStep(this.picture) ?? stepTicks(min, max, Math.max(2, plot.bbox.width / pixelRatio() / 90)),
      values: (_plot, ticks) => tickTexts(ticks)
    };
  }

  private valueAxis(theme: ChartTheme): uPlot.Axis {
    const ticks = (plot: uPlot, min: number, max: number) =>
      severalTicks(
        most => this.picture?.axis.ticks(min, max, most) ?? [],
        plot.bbox.height / pixelRatio() / (this.small ? 30 : 44)
      );
    return {
      ...axisColors(theme, this.font),
      size: (plot, texts) => this.widthFor(plot, texts ?? []),
      splits: (plot, _axis, min, max) => ticks(plot, min, max),
      values: (_plot, found) => this.picture?.axis.texts(found) ?? []
    };
  }

  /** Room for the texts, in steps of 8 pixels and never less than before, so that the chart does not shake. */
  private widthFor(plot: uPlot, texts: readonly string[]): number {
    plot.ctx.font = this.font;
    const widest = Math.max(0, ...texts.map(text => plot.ctx.measureText(text).width));
    this.axisWidth = Math.max(this.axisWidth, 8 * Math.ceil((widest + 18) / 8));
    return this.axisWidth;
  }

  private path(plot: uPlot, i: number): uPlot.Series.Paths | null {
    const line = this.picture?.lines[i];
    if (!line || !this.picture) return null;
    const { data, range } = line;
    const { axis } = this.picture;
    const total = this.picture.lines.reduce((sum, { range: own }) => sum + own.end - own.start, 0);
    const x0 = plot.valToPos(0, "x", true);
    const y0 = plot.valToPos(0, "y", true);
    const projection = {
      x0,
      xs: plot.valToPos(1, "x", true) - x0,
      y0,
      ys: plot.valToPos(1, "y", true) - y0,
      plot: axis.plot,
      grain: total > VERY_MANY ? 2 : 1
    };
    const stroke = new Path2D();
    // one point more on each side, so that the line runs out of the picture
    const wide = { start: Math.max(0, range.start - 1), end: Math.min(data.length, range.end + 1) };
    const alone = tracePath(stroke, data.steps, data.values, wide, projection);
    const { path, width } = polylineStroke(stroke, wide.end - wide.start, line.width * pixelRatio(), total);
    plot.series[i + 1].width = width / pixelRatio();
    const radius = DOT * pixelRatio();
    const fill = new Path2D();
    const dot = (x: number, y: number) => {
      fill.moveTo(x + radius, y);
      fill.arc(x, y, radius, 0, 2 * Math.PI);
    };
    for (let at = 0; at < alone.length; at += 2) dot(alone[at], alone[at + 1]);
    if (line.hasDots && range.end - range.start <= plot.bbox.width / (4 * radius)) {
      for (let at = range.start; at < range.end; at += 1) {
        const place = axis.plot(data.values[at]);
        if (Number.isFinite(place)) dot(x0 + data.steps[at] * projection.xs, y0 + place * projection.ys);
      }
    }
    return { stroke: path, fill, clip: null, band: null, gaps: [], flags: 0 };
  }

  private drawOver(plot: uPlot): void {
    if (!this.picture) return;
    if (this.small) paintEndLabels(plot, this.picture, this.font);
    if (this.picture.axis.log) drawScaleName(plot, this.picture.theme, this.font);
    drawMarks(plot, this.picture);
    drawBroken(plot, this.picture);
  }

  private select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width <= 0) return;
    const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const span: Span = [Math.floor(from), Math.ceil(to)];
    if (span[1] > span[0]) this.events.zoom(span);
  }

  private showAll(): null {
    this.clicked.cancel();
    this.events.zoom(null);
    return null;
  }

  private click(): void {
    const found = this.atCursor();
    if (!found?.nearest || !this.plot || !this.picture) return;
    const top = this.plot.valToPos(this.picture.axis.plot(found.nearest.value), "y");
    if (Math.abs(top - (this.plot.cursor.top ?? -1)) <= NEAR) this.events.pick(found.nearest.line.module);
  }

  private cursorStep(): number | null {
    const left = this.plot?.cursor.left ?? -1;
    return left >= 0 && this.plot ? this.plot.posToVal(left, "x") : null;
  }

  /** Where the cursor is, in data. */
  private atCursor(): { step: number; readings: Reading[]; nearest: Reading | null } | null {
    const at = this.cursorStep();
    if (at === null || !this.plot || !this.picture) return null;
    const step = nearestStep(this.picture.lines, at);
    if (Number.isNaN(step)) return null;
    const readings = readingsAt(this.picture.lines, step);
    const plot = this.plot.posToVal(this.plot.cursor.top ?? 0, "y");
    return { step, readings, nearest: nearestReading(readings, this.picture.axis, plot) };
  }

  private moveTo(step: number | null): void {
    this.keyStep = step;
    if (!this.plot) return;
    const left = step === null ? -10 : this.plot.valToPos(step, "x");
    this.plot.setCursor({ left, top: step === null ? -10 : this.plot.over.clientHeight / 3 });
  }

  private followCursor(): void {
    const found = this.atCursor();
    if (!found || !this.plot) {
      this.tip.hide();
      this.placeDots([]);
      this.events.hover(null);
      return;
    }
    const { step, readings, nearest } = found;
    const rows = closest(readings, nearest, TIP_ROWS);
    const { left = 0, top = 0 } = this.plot.cursor;
    const place = this.plot.over.getBoundingClientRect();
    const box = (this.small?.tipHost ?? this.host).getBoundingClientRect();
    const more = rows.length < readings.length ? [words.moreLines(readings.length - rows.length)] : [];
    const joined = rows.filter(({ line }) => line.names.length > 1);
    const same = joined.map(({ line }) => words.sameValues(line.label, line.names));
    this.tip.show(
      left + place.left - box.left,
      top + place.top - box.top,
      words.stepAt(stepText(step)),
      rows.map(reading => ({
        name: reading.line.label,
        suffix: reading.line.suffix,
        value: valueText(reading.value) + (reading.step === step ? "" : ` (${words.stepAt(stepText(reading.step))})`),
        color: reading.line.color,
        dash: reading.line.dash,
        isNearest: reading === nearest
      })),
      [...more, ...same, ...textsNear(this.plot, this.picture?.marks ?? [], left)]
    );
    this.placeDots(rows);
    this.events.hover(step);
  }

  /** A dot on each line that the box names. */
  private placeDots(readings: readonly Reading[]): void {
    const { plot, picture, dots } = this;
    if (!plot || !picture) return;
    while (dots.length < readings.length) {
      const dot = el("div", "mkg-metric-dot");
      plot.over.append(dot);
      dots.push(dot);
    }
    dots.forEach((dot, i) => {
      const reading = readings[i];
      const place = reading ? picture.axis.plot(reading.value) : Number.NaN;
      dot.hidden = !Number.isFinite(place);
      if (dot.hidden) return;
      dot.style.borderColor = reading.line.color;
      dot.style.transform = `translate(${plot.valToPos(reading.step, "x")}px, ${plot.valToPos(place, "y")}px)`;
    });
  }
}

/** The readings nearest to the pointer, in the order of their values. */
function closest(readings: readonly Reading[], nearest: Reading | null, most: number): Reading[] {
  const byValue = [...readings].sort((a, b) => (b.value || 0) - (a.value || 0));
  if (byValue.length <= most) return byValue;
  const at = nearest ? byValue.indexOf(nearest) : 0;
  const start = Math.max(0, Math.min(at - (most >> 1), byValue.length - most));
  return byValue.slice(start, start + most);
}

function axisColors(theme: ChartTheme, font: string): uPlot.Axis {
  return {
    stroke: theme.muted,
    font,
    gap: 6,
    grid: { stroke: theme.grid, width: 1 },
    ticks: { stroke: theme.axis, width: 1, size: 4 },
    border: { show: true, stroke: theme.axis, width: 1 }
  };
}

/** The library needs data to know where the axes end; the lines come from our own arrays. */
function ends({ span, lines }: ChartPicture): uPlot.AlignedData {
  return [[span[0], span[1]], ...lines.map(() => [null, null])];
}

/** The step of all points, where they have but one: its neighbors on the axis would be invented. */
function onlyStep(picture?: ChartPicture): number[] | null {
  const drawn = (picture?.lines ?? []).filter(({ range }) => range.end > range.start);
  const steps = drawn.flatMap(({ data, range }) => [data.steps[range.start], data.steps[range.end - 1]]);
  return steps.length && steps.every(step => step === steps[0]) ? [steps[0]] : null;
}

/** Whether the chart that is there can show the other picture. */
function isSameKind(a: ChartPicture, b: ChartPicture): boolean {
  const isSame = (one: ChartLine, other: ChartLine | undefined) =>
    one.series === other?.series &&
    one.color === other.color &&
    one.label === other.label &&
    one.width === other.width &&
    one.dash.join() === other.dash.join();
  return (
    a.lines.length === b.lines.length &&
    a.axis.log === b.axis.log &&
    sameTheme(a.theme, b.theme) &&
    a.lines.every((line, i) => isSame(line, b.lines[i]))
  );
}

// Marks over the lines of a chart: alerts, and values that were not finite.

const SIZE = 4; // half of a mark, in CSS pixels
const MAX_FLAGS = 60;
const APART = 6; // CSS pixels

/** Says on the value axis that it is logarithmic. */
function drawScaleName(plot: uPlot, theme: ChartTheme, font: string): void {
  const { ctx, bbox } = plot;
  const ratio = pixelRatio();
  ctx.save();
  ctx.font = scaled(font, ratio);
  ctx.textBaseline = "top";
  ctx.textAlign = "left";
  ctx.setLineDash([]);
  ctx.fillStyle = theme.muted;
  ctx.fillText(words.LOG_AXIS, bbox.left, bbox.top - NAME_ROOM * ratio);
  ctx.restore();
}

/** A dashed line down the chart at the step of each alert. */
function drawMarks(plot: uPlot, { marks, theme, span }: ChartPicture): void {
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
function drawBroken(plot: uPlot, { lines }: ChartPicture): void {
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
class Flags {
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
function textsNear(plot: uPlot, marks: readonly ChartMark[], x: number): string[] {
  const near = marks.filter(({ step }) => Math.abs(plot.valToPos(step, "x") - x) < APART);
  return near.slice(0, 3).map(({ text }) => text);
}
