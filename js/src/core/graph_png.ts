// The whole picture as a PNG: cytoscape's drawing with the text layer over it.

import type { Core } from "cytoscape";
import type { Measure } from "./cards";
import { type PaintItem, TextLayer } from "./graph_paint";
import type { Theme } from "./graph_style";

const SCALE = 2;
const LONGEST = 8000; // pixels that every browser's canvas takes
const MARGIN = 24;

export async function exportPng(
  cy: Core,
  items: readonly PaintItem[],
  measure: Measure,
  theme: Theme
): Promise<Blob> {
  const bounds = cy.elements().boundingBox();
  const scale = Math.min(SCALE, LONGEST / Math.max(bounds.w + 2 * MARGIN, bounds.h + 2 * MARGIN));
  const graph = await loaded(cy.png({ output: "base64uri", full: true, scale, bg: theme.canvas }));
  const margin = Math.round(MARGIN * scale);
  const [picture, context] = surface(graph.width + 2 * margin, graph.height + 2 * margin);
  context.fillStyle = theme.canvas;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(graph, margin, margin);
  const [text, textContext] = surface(picture.width, picture.height);
  const layer = new TextLayer(textContext, measure);
  layer.setItems(items);
  const corner = { x: margin - bounds.x1 * scale, y: margin - bounds.y1 * scale };
  layer.paint({ ...corner, zoom: scale, width: picture.width, height: picture.height, ratio: 1 }, theme);
  context.drawImage(text, 0, 0);
  return encoded(picture);
}

function surface(width: number, height: number): [HTMLCanvasElement, CanvasRenderingContext2D] {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  if (!context) {
    throw new Error("This browser cannot draw the picture.");
  }
  return [canvas, context];
}

function loaded(address: string): Promise<HTMLImageElement> {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("This browser cannot draw the picture."));
    image.src = address;
  });
}

function encoded(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((resolve, reject) => {
    canvas.toBlob(blob => (blob ? resolve(blob) : reject(new Error("The picture is too large."))), "image/png");
  });
}
