// Draws the cells of one axis on a canvas; of a change only the cells that look different.

import { canDraw, pixelRatio } from "../../shared/base/canvas";
import { type CellColors, NO_LEVEL } from "./score_scale";
import { type CellLayout, corner } from "./cell_layout";

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
  paint(looks: Uint16Array, ink: CellColors): number {
    const { layout, painted, context } = this;
    if (!layout) return 0;
    let count = 0;
    for (let index = 0; index < painted.length; index += 1) {
      if (painted[index] === looks[index]) continue;
      painted[index] = looks[index];
      count += 1;
      if (context) paintCell(context, layout, index, looks[index], ink);
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
  ink: CellColors
): void {
  const [x, y] = corner(layout, index);
  const { cell, pitch } = layout;
  const square: Square = [x, y, cell];
  const level = look & 0xff;
  context.clearRect(x, y, pitch, pitch);
  if (look & CELL_FLAGS.goes) paintDot(context, square, level === NO_LEVEL ? ink.unscored : ink.dots[level]);
  else if (level === NO_LEVEL) paintUnscored(context, square, ink);
  else paintFull(context, square, ink.frame, ink.fills[level]);
  const isStale = (look & CELL_FLAGS.stale) !== 0;
  if (look & CELL_FLAGS.kept) paintFrame(context, square, isStale ? ink.stale : ink.kept);
  else if (look & CELL_FLAGS.taken) paintCross(context, square, isStale ? ink.stale : ink.taken, ink.ground);
  if (look & CELL_FLAGS.range) {
    context.fillStyle = ink.range;
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
