// The cells of an axis: their colors, layout and drawing, and the box that says what one is.

import { canDraw, pixelRatio } from "../shared/base/canvas";
import { PALETTE } from "../../generated/palette";
import { mix, readable, readTheme } from "../shared/stage/theme";
import type { Scope, Scores } from "./draft/scores";
import { el, setText } from "../shared/ui/dom";

// The lightness of a cell: the place of its score between the least and the greatest, without the outermost ones.

export const COLOR_LEVELS = 64;
export const UNSCORED = 255; // without a score
const OUTSIDE = 0.01; // of the scores lie beyond each end of the scale

type Ends = readonly [low: number, high: number];

/** Levels of the cells of every axis: within the axis, or for a common ranking on one scale for all. */
export class ScoreScale {
  private readonly levels = new Map<number, Uint8Array>();
  private common: Ends | null = null;

  constructor(
    private readonly scores: Scores | null,
    private readonly sizes: readonly number[],
    private readonly free: readonly number[],
    private readonly scope: Scope
  ) {}

  of(axis: number): Uint8Array {
    let found = this.levels.get(axis);
    if (!found) {
      found = this.make(axis);
      this.levels.set(axis, found);
    }
    return found;
  }

  private make(axis: number): Uint8Array {
    const { scores } = this;
    if (!scores) return new Uint8Array(this.sizes[axis]).fill(UNSCORED);
    if (this.scope === "local") return levels(scores.of(axis), endsOf(scores.of(axis)));
    this.common ??= endsOf(joined(this.free.map(own => scores.normalised(own))));
    return levels(scores.normalised(axis), this.common);
  }
}

function endsOf(values: Float64Array): Ends {
  const sorted = values.filter(Number.isFinite).sort();
  if (!sorted.length) return [0, 0];
  const spare = Math.floor(sorted.length * OUTSIDE);
  return [sorted[spare], sorted[sorted.length - 1 - spare]];
}

function levels(values: Float64Array, [low, high]: Ends): Uint8Array {
  return Uint8Array.from(values, value => {
    if (!Number.isFinite(value)) return UNSCORED;
    const place = high > low ? (value - low) / (high - low) : 0.5;
    return Math.round(Math.min(1, Math.max(0, place)) * (COLOR_LEVELS - 1));
  });
}

function joined(parts: readonly Float64Array[]): Float64Array {
  const whole = new Float64Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const SEEN = 3; // least contrast to the ground of what has to be found

export interface CellColors {
  readonly dark: boolean;
  readonly ground: string;
  readonly fills: readonly string[]; // by level, from near the ground to far from it
  readonly dots: readonly string[]; // by level, of indices that go: small, so they are never near the ground
  readonly frame: string; // around every cell that stays: the least important ones are seen by it
  readonly unscored: string;
  readonly kept: string; // marks of the dry run
  readonly taken: string;
  readonly stale: string; // marks of an earlier draft
  readonly range: string;
}

/** From the color of the least important index, near the ground in either theme, to that of the most important one. */
export function rampColor(share: number, dark: boolean): string {
  const anchors = dark ? PALETTE.mask.dark : PALETTE.mask.light;
  const place = Math.min(1, Math.max(0, share)) * (anchors.length - 1);
  const low = Math.min(Math.floor(place), anchors.length - 2);
  return mix(anchors[low], anchors[low + 1], place - low);
}

export function readCellColors(element: HTMLElement): CellColors {
  const { surface, text, muted, accent, axis, dark } = readTheme(element);
  const fills = Array.from({ length: COLOR_LEVELS }, (_, level) => rampColor(level / (COLOR_LEVELS - 1), dark));
  const seen = (color: string) => readable(color, text, surface, SEEN);
  return {
    dark,
    ground: surface,
    fills,
    dots: fills.map(seen),
    frame: seen(mix(surface, text, 0.4)),
    unscored: seen(muted),
    kept: seen(axis),
    taken: text,
    stale: seen(muted),
    range: seen(accent)
  };
}

// The layout: lines of groups of eight, smaller the more there are; and the moves of the cursor.

export interface CellLayout {
  readonly size: number;
  readonly pitch: number; // px from one cell to the next
  readonly cell: number; // px
  readonly columns: number;
  readonly lines: number;
  readonly width: number;
  readonly height: number;
}

const GROUP = 8;
const GAP = 3; // px between groups
const PITCHES: readonly [most: number, pitch: number][] = [
  [96, 16],
  [384, 12],
  [1024, 10],
  [4096, 8],
  [16384, 6]
];
const MIN_PITCH = 5;

export function pitchFor(size: number): number {
  return PITCHES.find(([most]) => size <= most)?.[1] ?? MIN_PITCH;
}

export function cellLayout(size: number, room: number): CellLayout {
  const pitch = pitchFor(size);
  const groups = Math.max(1, Math.floor((room + GAP) / (GROUP * pitch + GAP)));
  const columns = Math.min(size, groups * GROUP);
  const lines = Math.ceil(size / columns);
  return {
    size,
    pitch,
    cell: pitch - (pitch > 8 ? 2 : 1),
    columns,
    lines,
    width: left(columns - 1, pitch) + pitch,
    height: lines * pitch
  };
}

function left(column: number, pitch: number): number {
  return column * pitch + Math.floor(column / GROUP) * GAP;
}

/** The corner of a cell. */
export function corner({ columns, pitch }: CellLayout, index: number): readonly [x: number, y: number] {
  return [left(index % columns, pitch), Math.floor(index / columns) * pitch];
}

/** The index at a place; -1 where there is none. */
export function indexAt({ size, columns, lines, pitch }: CellLayout, x: number, y: number): number {
  const group = Math.floor(x / (GROUP * pitch + GAP));
  const inGroup = Math.min(GROUP - 1, Math.floor((x - group * (GROUP * pitch + GAP)) / pitch));
  const column = group * GROUP + inGroup;
  const line = Math.floor(y / pitch);
  if (x < 0 || column >= columns || line < 0 || line >= lines) return -1;
  const index = line * columns + column;
  return index < size ? index : -1;
}

/** The indices on the straight way between two places. */
export function indicesBetween(
  layout: CellLayout,
  from: readonly [number, number],
  to: readonly [number, number]
): number[] {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const steps = Math.max(1, Math.ceil(Math.hypot(dx, dy) / (layout.pitch / 3)));
  const found = new Set<number>();
  for (let step = 0; step <= steps; step += 1) {
    const share = step / steps;
    const index = indexAt(layout, from[0] + dx * share, from[1] + dy * share);
    if (index >= 0) found.add(index);
  }
  return [...found];
}

// Where a key takes the cursor of a strip.

export type RowMove = "above" | "below"; // to the row before or after

/** The new index, a leap to another row, or null for a key that does not move. */
export function moveCursor(key: string, index: number, { size, columns }: CellLayout): number | RowMove | null {
  switch (key) {
    case "ArrowLeft":
      return Math.max(0, index - 1);
    case "ArrowRight":
      return Math.min(size - 1, index + 1);
    case "ArrowUp":
      return index < columns ? "above" : index - columns;
    case "ArrowDown":
      return lineOf(index, columns) === lineOf(size - 1, columns) ? "below" : Math.min(size - 1, index + columns);
    case "Home":
      return 0;
    case "End":
      return size - 1;
    default:
      return null;
  }
}

function lineOf(index: number, columns: number): number {
  return Math.floor(index / columns);
}

// The canvas: of a change only the cells that look different are drawn.

/** How a cell looks, as one number: its level and these. What is added here needs an entry in the legend: cell_legend.ts. */
export const CELL_FLAGS = {
  goes: 0x100,
  kept: 0x200, // the dry run keeps it
  taken: 0x400, // the dry run takes it
  stale: 0x800, // by a dry run of an earlier draft
  range: 0x1000
} as const;

export class CellPainter {
  private painted = new Uint16Array(0); // 0xffff: nothing
  private layout: CellLayout | null = null;
  private ratio = 1;
  private context: CanvasRenderingContext2D | null = null;

  constructor(readonly canvas: HTMLCanvasElement) {}

  /** A new size, or new colors: all cells are drawn with the next `paint`. */
  reset(layout: CellLayout): void {
    this.layout = layout;
    this.ratio = pixelRatio();
    this.painted = new Uint16Array(layout.size).fill(0xffff);
    const { canvas, ratio } = this;
    canvas.width = Math.ceil(layout.width * ratio);
    canvas.height = Math.ceil(layout.height * ratio);
    canvas.style.width = `${layout.width}px`;
    canvas.style.height = `${layout.height}px`;
    this.context ??= canDraw() ? canvas.getContext("2d") : null;
    this.context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Returns how many cells were drawn. */
  paint(looks: Uint16Array, colors: CellColors): number {
    const { layout, painted, context } = this;
    if (!layout) return 0;
    let count = 0;
    for (let index = 0; index < painted.length; index += 1) {
      if (painted[index] === looks[index]) continue;
      painted[index] = looks[index];
      count += 1;
      if (context) paintCell(context, layout, index, looks[index], colors);
    }
    return count;
  }
}

type Square = readonly [x: number, y: number, side: number];

export function paintCell(
  context: CanvasRenderingContext2D,
  layout: CellLayout,
  index: number,
  look: number,
  colors: CellColors
): void {
  const [x, y] = corner(layout, index);
  const { cell, pitch } = layout;
  const square: Square = [x, y, cell];
  const level = look & 0xff;
  context.clearRect(x, y, pitch, pitch);
  if (look & CELL_FLAGS.goes) paintDot(context, square, level === UNSCORED ? colors.unscored : colors.dots[level]);
  else if (level === UNSCORED) paintUnscored(context, square, colors);
  else paintFull(context, square, colors.frame, colors.fills[level]);
  const isStale = (look & CELL_FLAGS.stale) !== 0;
  if (look & CELL_FLAGS.kept) paintFrame(context, square, isStale ? colors.stale : colors.kept);
  else if (look & CELL_FLAGS.taken) paintCross(context, square, isStale ? colors.stale : colors.taken, colors.ground);
  if (look & CELL_FLAGS.range) {
    context.fillStyle = colors.range;
    context.fillRect(x, y + pitch - 2, pitch, 2);
  }
}

function paintFull(context: CanvasRenderingContext2D, [x, y, side]: Square, frame: string, fill: string) {
  context.fillStyle = frame;
  context.fillRect(x, y, side, side);
  context.fillStyle = fill;
  context.fillRect(x + 1, y + 1, side - 2, side - 2);
}

/** What goes has the least ink: a dot in the shade of the index, without a frame. */
function paintDot(context: CanvasRenderingContext2D, [x, y, side]: Square, dot: string) {
  const size = Math.max(2, Math.round(side / 3));
  const inset = Math.floor((side - size) / 2);
  context.fillStyle = dot;
  context.fillRect(x + inset, y + inset, size, size);
}

/** A frame with a stroke along its middle. */
function paintUnscored(
  context: CanvasRenderingContext2D,
  [x, y, side]: Square,
  { frame, ground, unscored }: CellColors
) {
  paintFull(context, [x, y, side], frame, ground);
  context.fillStyle = unscored;
  context.fillRect(x + 2, y + Math.floor(side / 2) - (side > 8 ? 1 : 0), side - 4, side > 8 ? 2 : 1);
}

function paintFrame(context: CanvasRenderingContext2D, [x, y, side]: Square, color: string) {
  context.strokeStyle = color;
  context.lineWidth = 2;
  context.strokeRect(x + 1, y + 1, side - 2, side - 2);
}

/** On a bed in the color of the ground: it is seen on every shade. */
function paintCross(context: CanvasRenderingContext2D, [x, y, side]: Square, color: string, ground: string) {
  const [low, high] = [1, side - 1];
  for (const [style, width] of [
    [ground, 4],
    [color, 2]
  ] as const) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x + low, y + low);
    context.lineTo(x + high, y + high);
    context.moveTo(x + high, y + low);
    context.lineTo(x + low, y + high);
    context.stroke();
  }
}

// The box beside the pointer: what a cell is.

const TIP_GAP = 14;

export class CellTooltip {
  private readonly box = el("div", "mkg-mask-tip");

  constructor(private readonly host: HTMLElement) {
    this.box.setAttribute("aria-hidden", "true"); // the strip says the same to those who do not see it
    this.box.hidden = true;
    host.append(this.box);
  }

  /** At a place in the window, on the side where there is room. */
  show(clientX: number, clientY: number, text: string): void {
    setText(this.box, text);
    this.box.style.maxWidth = "";
    this.place(clientX, clientY);
  }

  private place(clientX: number, clientY: number): void {
    this.box.hidden = false;
    const { left, top, width, height } = this.host.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.box;
    const [x, y] = [clientX - left, clientY - top];
    const across = x + TIP_GAP + offsetWidth <= width ? x + TIP_GAP : Math.max(0, x - TIP_GAP - offsetWidth);
    const down = y + TIP_GAP + offsetHeight <= height ? y + TIP_GAP : Math.max(0, y - TIP_GAP - offsetHeight);
    this.box.style.transform = `translate(${Math.round(across)}px, ${Math.round(down)}px)`;
  }

  /** Below a control, whatever else stands beside it. */
  showBelow(control: Element, text: string): void {
    const { left, bottom, width } = control.getBoundingClientRect();
    setText(this.box, text);
    this.box.style.maxWidth = `${width - 16}px`; // without its padding
    this.place(left - TIP_GAP, bottom - TIP_GAP + 2);
  }

  hide(): void {
    this.box.hidden = true;
  }

  dispose(): void {
    this.box.remove();
  }
}
