// The whole picture as a PNG.

import { contextOf, type Measure } from "../shared/canvas";
import { Painter } from "./paint";
import type { Theme } from "../shared/theme";
import type { PaintItem, EdgePaint } from "./paint_items";
import { boundsOf } from "../shared/viewport";

const SCALE = 2;
const LONGEST = 8000; // pixels that every browser's canvas takes
const MARGIN = 24;
const CANNOT = "This browser cannot draw the picture.";

export function exportPng(
  items: readonly PaintItem[],
  edges: readonly EdgePaint[],
  measure: Measure,
  theme: Theme
): Promise<Blob> {
  const [x, y, w, h] = boundsOf(items.map(({ box }) => box));
  const zoom = Math.min(SCALE, LONGEST / Math.max(w + 2 * MARGIN, h + 2 * MARGIN));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((w + 2 * MARGIN) * zoom);
  canvas.height = Math.ceil((h + 2 * MARGIN) * zoom);
  const context = contextOf(canvas);
  if (!context) {
    return Promise.reject(new Error(CANNOT));
  }
  const painter = new Painter(measure);
  const camera = { x: (MARGIN - x) * zoom, y: (MARGIN - y) * zoom, zoom };
  painter.setPicture(items, edges);
  painter.paint(context, { ...camera, width: canvas.width, height: canvas.height, ratio: 1 }, theme);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.globalCompositeOperation = "destination-over"; // the ground comes last, under what is painted
  context.fillStyle = theme.canvas;
  context.fillRect(0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob(blob => (blob ? resolve(blob) : reject(new Error(CANNOT))), "image/png");
  });
}
