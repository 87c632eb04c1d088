// The cells of a large overlap matrix as a bitmap, a pixel each, so that scrolling draws one picture.

import type { Knowledge } from "./data";
import type { MatrixOrder } from "./matrix_order";

export const LARGEST = 4096; // models: such a bitmap has 64 MiB

/** Undefined where there is nothing to draw on. `shades` are "#rrggbb", from nothing in common to the same. */
export function matrixBitmap(
  data: Knowledge,
  { models }: MatrixOrder,
  shades: readonly string[]
): HTMLCanvasElement | undefined {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = models.length;
  const context = canvas.getContext("2d");
  if (!context) return undefined;
  const picture = context.createImageData(models.length, models.length);
  const colors = shades.map(shade => Number.parseInt(shade.slice(1), 16));
  let at = 0;
  for (const row of models) {
    for (const column of models) {
      const color = colors[Math.round((colors.length - 1) * data.overlap(row, column))];
      picture.data[at] = color >> 16;
      picture.data[at + 1] = (color >> 8) & 255;
      picture.data[at + 2] = color & 255;
      picture.data[at + 3] = 255;
      at += 4;
    }
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}
