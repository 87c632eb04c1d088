// The heat map of layers by steps: a canvas as large as what is seen, over rows that may be scrolled.

import { NOT_FINITE_COLOR, sample } from "../../shared/stage/color";
import { el, listen, Part } from "../../shared/ui/dom";
import {
  ABOVE,
  BELOW,
  columnCount,
  fillCells,
  type HeatInk,
  paintCells,
  groupsOf,
  HEADING,
  type HeatLayout,
  heatLayout,
  type HeatLine,
  type HeatPicture,
  rowAt,
  topOf,
  visibleRows
} from "./heat_layout";
import { stepText, stepTicks, tickTexts, valueText } from "../base/value_axis";
import type { ChartTheme } from "../base/chart_theme";
import { Tooltip } from "../../shared/ui/tooltip";
import { canDraw, pixelRatio } from "../../shared/base/canvas";
import * as words from "../../words/metrics";

// What stands beside the rows of a heat map: their names on the left, and marks of values beyond the colors on the right.

const FONT = 11;
const MIN_WIDTH = 60;
const ROOM = 12; // a name needs so much height
const BOLDER = 1.1; // a name in bold needs so much more width
const MARK = 3; // half of a mark

/** The rows that are painted, and the heights from which to which they are seen. */
interface LabelPlace {
  readonly layout: HeatLayout;
  readonly width: number;
  readonly rows: readonly [first: number, end: number];
  readonly from: number;
  readonly to: number;
}

function labelWidth(context: CanvasRenderingContext2D, { rows }: HeatPicture, width: number): number {
  // of very many rows the longest names are enough
  const longest = [...rows].sort((a, b) => b.label.length - a.label.length).slice(0, 20);
  const widest = longest.reduce((most, { label }) => Math.max(most, context.measureText(label).width), 0);
  return Math.round(Math.max(MIN_WIDTH, Math.min(widest * BOLDER + 16, width * 0.35)));
}

/** Where not all names have room, that of the selected row comes first, then those of the rows that differ most. */
function paintLabels(context: CanvasRenderingContext2D, picture: HeatPicture, place: LabelPlace): void {
  const { layout, width } = place;
  const { rowHeight } = layout;
  const { theme } = picture;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { row, y } of placed(picture, place)) {
    const { module, label } = picture.rows[row];
    const isSelected = module === picture.selected;
    const isNamed = picture.named.has(module);
    context.fillStyle = isSelected ? theme.accent : isNamed ? theme.text : theme.muted;
    context.font = `${isSelected || isNamed ? "600 " : ""}${FONT}px ${theme.font}`;
    context.fillText(shortened(context, label, width - 10), width - 6, y);
    if (isSelected) context.fillRect(width - 3, topOf(layout, row), 3, rowHeight);
  }
}

/** The rows whose names are painted, with the middle of each name; no two overlap. */
function placed(picture: HeatPicture, { layout, rows, from, to }: LabelPlace): { row: number; y: number }[] {
  const { rowHeight } = layout;
  const [first, end] = rows;
  const every = Math.max(1, Math.ceil(ROOM / rowHeight));
  const seen = Array.from({ length: end - first }, (_, i) => first + i);
  const isSelected = (row: number) => picture.rows[row].module === picture.selected;
  const isNamed = (row: number) => picture.named.has(picture.rows[row].module);
  const wanted = [...seen.filter(isSelected), ...seen.filter(isNamed), ...seen.filter(row => row % every === 0)];
  const found: { row: number; y: number }[] = [];
  for (const row of wanted) {
    // the names of the first and of the last row seen stay whole
    const y = Math.max(from + FONT / 2, Math.min(to - FONT / 2, topOf(layout, row) + rowHeight / 2 + 0.5));
    if (found.every(other => Math.abs(other.y - y) >= ROOM)) found.push({ row, y });
  }
  return found;
}

/** A triangle at the end of each row that has values beyond an end of the colors. */
function paintBeyond(
  context: CanvasRenderingContext2D,
  { scale, theme }: HeatPicture,
  { layout, rows: [first, end] }: LabelPlace,
  x: number
): void {
  context.fillStyle = theme.text;
  context.beginPath();
  for (const [side, flag] of [ABOVE, BELOW].entries()) {
    const left = x + 3 + side * (2 * MARK + 1);
    let before = -Infinity;
    for (let row = first; row < end; row += 1) {
      const y = topOf(layout, row) + layout.rowHeight / 2;
      if (!(scale.beyond[row] & flag) || y - before < 2 * MARK) continue;
      before = y;
      const tip = flag === ABOVE ? -MARK : MARK;
      context.moveTo(left, y - tip);
      context.lineTo(left + MARK, y + tip);
      context.lineTo(left + 2 * MARK, y - tip);
    }
  }
  context.fill();
}

/** The end of a path says more than its beginning. */
export function shortened(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let low = 1;
  let high = text.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText(`…${text.slice(middle)}`).width <= room) high = middle;
    else low = middle + 1;
  }
  return `…${text.slice(low)}`;
}

function paintHeading(context: CanvasRenderingContext2D, text: string, top: number, theme: ChartTheme): void {
  context.font = `600 ${FONT}px ${theme.font}`;
  context.fillStyle = theme.text;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, 4, top - HEADING / 2);
}

const FOOT = 34; // room for the steps below
const RIGHT = 16;
const TOP = 6;
const SHADES = 256;

export class Heatmap extends Part {
  private readonly canvas = el("canvas");
  private readonly scroller = el("div", "mkg-metric-scroller");
  private readonly sizer = el("div", "mkg-metric-sizer");
  private readonly frame = el("div", "mkg-metric-row-frame");
  private readonly buffer = el("canvas");
  private readonly tip: Tooltip;
  private picture?: HeatPicture;
  private layout: HeatLayout = { rowHeight: 1, height: 0, blocks: [] };
  private labels = 0; // width
  private at: { row: number; step: number } | null = null; // what the keyboard is on

  constructor(
    host: HTMLElement,
    private readonly events: { pick(module: string): void; say(text: string): void }
  ) {
    super(host);
    host.classList.add("mkg-metric-heatmap");
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    host.setAttribute("aria-keyshortcuts", "ArrowUp ArrowDown ArrowLeft ArrowRight Enter");
    this.canvas.setAttribute("aria-hidden", "true");
    this.scroller.tabIndex = -1;
    this.sizer.append(this.canvas);
    this.scroller.append(this.sizer);
    host.append(this.scroller, this.frame);
    this.frame.hidden = true;
    this.tip = new Tooltip(host);
    this.disposers.add(
      listen(this.scroller, "scroll", () => this.paint()),
      listen(this.scroller, "mousemove", event => this.point(event)),
      listen(this.scroller, "mouseleave", () => this.leave()),
      listen(this.scroller, "click", event => this.click(event)),
      listen(host, "keydown", event => this.key(event)),
      listen(host, "blur", () => this.leave())
    );
  }

  get bitmap(): HTMLCanvasElement {
    return this.canvas;
  }

  draw(picture: HeatPicture): void {
    this.picture = picture;
    const room = this.host.clientHeight - FOOT - TOP;
    this.layout = heatLayout(groupsOf(picture), room);
    this.sizer.style.height = `${this.layout.height + FOOT + TOP}px`;
    this.paint();
  }

  private get plotWidth(): number {
    return Math.max(1, this.scroller.clientWidth - this.labels - RIGHT);
  }

  private paint(): void {
    const { picture } = this;
    const context = canDraw() ? this.canvas.getContext("2d") : null;
    if (!context || !picture) return;
    const ratio = pixelRatio();
    const { clientWidth: width, clientHeight: height } = this.scroller;
    resize(this.canvas, width, height, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `${FONT}px ${picture.theme.font}`;
    this.labels = labelWidth(context, picture, width);
    const top = this.scroller.scrollTop;
    const bottom = top + height - FOOT - TOP;
    context.save();
    context.beginPath();
    context.rect(0, TOP, width, height - FOOT - TOP);
    context.clip();
    context.translate(0, TOP - top);
    this.paintBlocks(context, picture, top, bottom);
    this.paintMarks(context, picture);
    context.restore();
    this.paintFoot(context, picture, Math.min(height - FOOT, TOP + this.layout.height - top));
  }

  private paintBlocks(context: CanvasRenderingContext2D, picture: HeatPicture, from: number, to: number): void {
    const { rowHeight, blocks } = this.layout;
    const columns = columnCount(picture.rows, this.plotWidth * pixelRatio());
    for (const block of blocks) {
      if (block.heading) paintHeading(context, block.heading, block.top, picture.theme);
      const [first, end] = visibleRows(block, rowHeight, from, to);
      if (end <= first) continue;
      const rows = picture.rows.slice(first, end);
      const image = this.image(rows, first, picture, columns);
      if (!image) continue;
      context.imageSmoothingEnabled = false;
      const top = topOf(this.layout, first);
      context.drawImage(image, 0, 0, columns, rows.length, this.labels, top, this.plotWidth, rows.length * rowHeight);
      const place = { layout: this.layout, width: this.labels, rows: [first, end], from, to } as const;
      paintLabels(context, picture, place);
      paintBeyond(context, picture, place, this.labels + this.plotWidth);
    }
  }

  /** The cells of some rows, one pixel each. */
  private image(
    rows: readonly HeatLine[],
    first: number,
    picture: HeatPicture,
    columns: number
  ): HTMLCanvasElement | null {
    const cells = fillCells(rows, picture.span[0], picture.span[1], columns);
    const { buffer } = this;
    buffer.width = columns;
    buffer.height = rows.length;
    const context = buffer.getContext("2d");
    if (!context) return null;
    const data = context.createImageData(columns, rows.length);
    paintCells(cells, picture.scale, inkOf(picture.theme), new Uint32Array(data.data.buffer), first);
    context.putImageData(data, 0, 0);
    return buffer;
  }

  private paintMarks(context: CanvasRenderingContext2D, picture: HeatPicture): void {
    const { rowHeight } = this.layout;
    const size = Math.max(4, Math.min(8, rowHeight));
    for (const { row, step } of picture.marks) {
      const x = this.xOf(step + 0.5);
      if (x < this.labels || x > this.labels + this.plotWidth) continue;
      const y = topOf(this.layout, row) + rowHeight / 2;
      context.fillStyle = "#ffffff";
      context.strokeStyle = "#000000";
      context.lineWidth = 1.25;
      context.beginPath();
      context.moveTo(x, y + size / 2);
      context.lineTo(x - size / 2, y - size / 2);
      context.lineTo(x + size / 2, y - size / 2);
      context.closePath();
      context.fill();
      context.stroke();
    }
  }

  private paintFoot(context: CanvasRenderingContext2D, { span, theme }: HeatPicture, top: number): void {
    const ticks = stepTicks(span[0], span[1], Math.max(2, this.plotWidth / 90));
    context.font = `${FONT}px ${theme.font}`;
    context.textAlign = "center";
    context.textBaseline = "top";
    context.fillStyle = theme.muted;
    context.strokeStyle = theme.axis;
    context.lineWidth = 1;
    context.beginPath();
    tickTexts(ticks).forEach((text, i) => {
      const x = Math.round(this.xOf(ticks[i] + 0.5)) + 0.5;
      context.moveTo(x, top);
      context.lineTo(x, top + 4);
      context.fillText(text, x, top + 7);
    });
    context.stroke();
    context.fillText(words.STEP, this.labels + this.plotWidth / 2, top + 20);
  }

  private xOf(step: number): number {
    const [first, last] = this.picture?.span ?? [0, 1];
    return this.labels + ((step - first) / (last - first + 1)) * this.plotWidth;
  }

  private stepOf(x: number): number {
    const [first, last] = this.picture?.span ?? [0, 1];
    return first + ((x - this.labels) / this.plotWidth) * (last - first + 1);
  }

  private point(event: MouseEvent): void {
    const box = this.scroller.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const row = rowAt(this.layout, y - TOP + this.scroller.scrollTop);
    const step = this.stepOf(Math.max(x, this.labels));
    if (row < 0 || y > box.height - FOOT || x > this.labels + this.plotWidth) this.leave();
    else this.say(row, step, x, y);
  }

  private say(row: number, step: number, x: number, y: number): void {
    const { picture } = this;
    const line = picture?.rows[row];
    if (!picture || !line) return;
    const { data, range } = line;
    // the value that holds: the latest one that is not after the step
    const at = Math.min(data.before(Math.floor(step) + 1), range.end) - 1;
    const heading = picture.headings.get(line.run);
    const name = heading ? `${line.label} · ${heading}` : line.label;
    const isThere = at >= range.start;
    const own = isThere ? data.steps[at] : Math.floor(step);
    const value = isThere ? valueText(data.values[at]) : words.NO_VALUE;
    const notes = picture.marks.filter(mark => mark.row === row && mark.step === own).map(({ text }) => text);
    this.tip.show(x, y, words.stepAt(stepText(own)), [{ name, value }], notes);
    if (this.at) this.events.say(words.reading(name, stepText(own), value));
    this.frame.hidden = false;
    const top = TOP + topOf(this.layout, row) - this.scroller.scrollTop;
    this.frame.style.transform = `translate(${this.labels}px, ${top}px)`;
    this.frame.style.width = `${this.plotWidth}px`;
    this.frame.style.height = `${this.layout.rowHeight}px`;
  }

  private leave(): void {
    this.tip.hide();
    this.frame.hidden = true;
    this.at = null;
  }

  private click(event: MouseEvent): void {
    const y = event.clientY - this.scroller.getBoundingClientRect().top;
    const line = this.picture?.rows[rowAt(this.layout, y - TOP + this.scroller.scrollTop)];
    if (line) this.events.pick(line.module);
  }

  private key(event: KeyboardEvent): void {
    const { picture } = this;
    if (!picture?.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const stride = Math.max(1, Math.round((picture.span[1] - picture.span[0] + 1) / 100));
    const at = this.at ?? { row: 0, step: picture.span[1] };
    const moves: Record<string, [number, number]> = {
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -stride],
      ArrowRight: [0, stride]
    };
    const move = moves[event.key];
    if (event.key === "Enter" && this.at) this.events.pick(picture.rows[this.at.row].module);
    else if (move) this.moveTo(at.row + move[0], at.step + move[1], picture);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private moveTo(row: number, step: number, picture: HeatPicture): void {
    const [first, last] = picture.span;
    const at = {
      row: Math.min(picture.rows.length - 1, Math.max(0, row)),
      step: Math.min(last, Math.max(first, step))
    };
    const top = topOf(this.layout, at.row);
    const room = this.scroller.clientHeight - FOOT - TOP - this.layout.rowHeight;
    const { scrollTop } = this.scroller;
    if (top < scrollTop || top > scrollTop + room) this.scroller.scrollTop = top - room / 2;
    this.at = at;
    this.say(at.row, at.step + 0.5, this.xOf(at.step + 0.5), TOP + top - this.scroller.scrollTop);
  }
}

function resize(canvas: HTMLCanvasElement, width: number, height: number, ratio: number): void {
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

let known: { empty: string; ink: HeatInk } | undefined;

function inkOf({ empty }: ChartTheme): HeatInk {
  if (known?.empty !== empty) {
    const ramp = Uint32Array.from({ length: SHADES }, (_, i) => pixelOf(sample(i / (SHADES - 1))));
    known = { empty, ink: { ramp, empty: pixelOf(empty), broken: pixelOf(NOT_FINITE_COLOR) } };
  }
  return known.ink;
}

/** #rrggbb as a pixel: its bytes are red, green, blue and alpha. */
function pixelOf(color: string): number {
  const value = Number.parseInt(color.slice(1), 16);
  const bytes = new Uint8Array([value >> 16, (value >> 8) & 255, value & 255, 255]);
  return new Uint32Array(bytes.buffer)[0];
}
