// Helpers for drawing on canvases: a context, the pixels of the screen, and text of a known width.

import { nameEnd } from "./format";

export const FONT = {
  family: 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
  title: 13,
  text: 11
};
const MAX_LENGTH = 120; // characters that are worth measuring

/** Whether this page has canvases; a page without a screen has none. */
export function canDraw(): boolean {
  return typeof CanvasRenderingContext2D !== "undefined";
}

/** How long a page's canvas is in device pixels for one CSS pixel. */
export function pixelRatio(): number {
  return Math.max(1, Math.min(4, globalThis.devicePixelRatio || 1));
}

/** A drawn canvas, with its device pixels for one CSS pixel. */
export interface Picture {
  readonly canvas: HTMLCanvasElement;
  readonly ratio: number;
}

const MAX_SIDE = 16_000; // device pixels that every browser can draw

/** The pixels of a picture of this size, fewer than those of the screen where it is very large. */
export function fittingRatio(width: number, height: number): number {
  return Math.min(pixelRatio(), MAX_SIDE / Math.max(1, width, height));
}

/** What is on a canvas of the page. */
export const pictureOf = (canvas: HTMLCanvasElement | null): Picture | null =>
  canvas && { canvas, ratio: pixelRatio() };

export type Measure = (text: string, size: number, bold: boolean) => number;

/** Widths from a canvas where there is one, else from an average letter. */
export function measurer(): Measure {
  const context = contextOf(document.createElement("canvas"));
  const known = new Map<string, number>();
  return (text, size, bold) => {
    const key = `${size}${bold ? "b" : ""}:${text}`;
    let width = known.get(key);
    if (width === undefined) {
      width = text.length * size * 0.56;
      if (context) {
        context.font = fontOf(size, bold);
        width = context.measureText(text).width;
      }
      known.set(key, width);
    }
    return width;
  };
}

/** Null in a page without canvases: jsdom has none, and says so loudly when it is asked. */
export function contextOf(canvas: HTMLCanvasElement): CanvasRenderingContext2D | null {
  return canDraw() ? canvas.getContext("2d") : null;
}

export function fontOf(size: number, bold: boolean): string {
  return `${bold ? 600 : 400} ${size}px ${FONT.family}`;
}

/** One printable line of at most `LONGEST` characters. */
export function oneLine(text: string): string {
  const start = text.slice(0, MAX_LENGTH + 1).replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, "␣");
  return start.length > MAX_LENGTH ? `${start.slice(0, MAX_LENGTH)}…` : start;
}

/** Cut to `width` with an ellipsis before `end`, which stays. */
export function truncated(
  text: string,
  width: number,
  size: number,
  bold: boolean,
  measure: Measure,
  end = ""
): string {
  if (measure(text, size, bold) <= width) {
    return text;
  }
  let [low, high] = [0, text.length - end.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${text.slice(0, middle)}…${end}`, size, bold) <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return `${text.slice(0, low)}…${end}`;
}

/** The name of a module cut so that it is told from its siblings; `end` stands behind it where there is room for both. */
export function truncatedName(
  name: string,
  width: number,
  size: number,
  bold: boolean,
  measure: Measure,
  end = ""
): string {
  const hasRoom = (kept: string) => measure(`${name.slice(0, 1)}…${kept}`, size, bold) <= width;
  const last = nameEnd(name);
  const kept = [last + end, last].find(hasRoom) ?? "";
  return truncated(kept.endsWith(end) ? name + end : name, width, size, bold, measure, kept);
}
