// The whole picture as a PNG.

import type { Measure } from "./cards";
import { Painter, type PaintItem } from "./paint";
import type { Theme } from "./style";
import type { EdgePaint } from "./paint_edges";
import { boundsOf } from "./routes";

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
  const context = typeof CanvasRenderingContext2D === "undefined" ? null : canvas.getContext("2d");
  if (!context) {
    return Promise.reject(new Error(CANNOT));
  }
  const painter = new Painter(context, measure);
  const camera = { x: (MARGIN - x) * zoom, y: (MARGIN - y) * zoom, zoom };
  painter.setPicture(items, edges);
  painter.paint({ ...camera, width: canvas.width, height: canvas.height, ratio: 1 }, theme);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.globalCompositeOperation = "destination-over"; // the ground comes last, under what is painted
  context.fillStyle = theme.canvas;
  context.fillRect(0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob(blob => (blob ? resolve(blob) : reject(new Error(CANNOT))), "image/png");
  });
}
