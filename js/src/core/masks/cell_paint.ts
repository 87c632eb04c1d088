// Draws the cells of one axis on a canvas; of a change only the cells that look different.

import { canDraw, pixelRatio } from "../shared/canvas";
import type { CellInk } from "./cell_ink";
import { type CellLayout, corner } from "./cell_layout";
import { NO_LEVEL } from "./shades";

/** How a cell looks, as one number: its level and these. */
export const GOES = 0x100;
export const KEPT = 0x200; // the dry run keeps it
export const TAKEN = 0x400; // the dry run takes it
export const STALE = 0x800; // by a dry run of an earlier draft
export const IN_RANGE = 0x1000;

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
  paint(looks: Uint16Array, ink: CellInk): number {
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

function paintCell(
  context: CanvasRenderingContext2D,
  layout: CellLayout,
  index: number,
  look: number,
  ink: CellInk
): void {
  const [x, y] = corner(layout, index);
  const { cell, pitch } = layout;
  const level = (look & 0xff) === NO_LEVEL ? ink.fills.length - 1 : look & 0xff;
  context.clearRect(x, y, pitch, pitch);
  if (look & GOES) paintHollow(context, x, y, cell, ink.hollow, ink.edges[level]);
  else paintFull(context, x, y, cell, ink.edges[level], ink.fills[level]);
  if (look & (KEPT | TAKEN)) paintMark(context, x, y, cell, look, ink);
  if (look & IN_RANGE) {
    context.fillStyle = ink.range;
    context.fillRect(x, y + pitch - 2, pitch, 2);
  }
}

function paintFull(context: CanvasRenderingContext2D, x: number, y: number, cell: number, edge: string, fill: string) {
  context.fillStyle = edge;
  context.fillRect(x, y, cell, cell);
  if (edge === fill) return;
  context.fillStyle = fill;
  context.fillRect(x + 1, y + 1, cell - 2, cell - 2);
}

/** An empty frame with a dot in the shade of the index. */
function paintHollow(context: CanvasRenderingContext2D, x: number, y: number, cell: number, line: string, dot: string) {
  context.strokeStyle = line;
  context.lineWidth = 1;
  context.strokeRect(x + 0.5, y + 0.5, cell - 1, cell - 1);
  const side = Math.max(2, Math.round(cell / 3));
  const inset = (cell - side) / 2;
  context.fillStyle = dot;
  context.fillRect(x + Math.floor(inset), y + Math.floor(inset), side, side);
}

/** Kept: a thick frame. Taken: a stroke across. */
function paintMark(context: CanvasRenderingContext2D, x: number, y: number, cell: number, look: number, ink: CellInk) {
  context.strokeStyle = look & STALE ? ink.stale : look & KEPT ? ink.kept : ink.taken;
  context.lineWidth = 2;
  if (look & KEPT) {
    context.strokeRect(x + 1, y + 1, cell - 2, cell - 2);
    return;
  }
  context.beginPath();
  context.moveTo(x + 1, y + cell - 1);
  context.lineTo(x + cell - 1, y + 1);
  context.stroke();
}
