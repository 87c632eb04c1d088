// What stands beside the rows of a heat map: their names on the left, and marks of values beyond the colors on the right.

import { ABOVE, BELOW } from "./heat_cells";
import { type HeatLayout, HEADING, topOf } from "./heat_layout";
import type { HeatPicture } from "./heat_picture";
import type { ChartTheme } from "./chart_theme";

export const FONT = 11;
const LEAST_WIDTH = 60;
const ROOM = 12; // a name needs so much height
const BOLDER = 1.1; // a name in bold needs so much more width
const MARK = 3; // half of a mark

/** The rows that are painted, and the heights from which to which they are seen. */
export interface LabelPlace {
  readonly layout: HeatLayout;
  readonly width: number;
  readonly rows: readonly [first: number, end: number];
  readonly from: number;
  readonly to: number;
}

export function labelWidth(context: CanvasRenderingContext2D, { rows }: HeatPicture, width: number): number {
  // of very many rows the longest names are enough
  const longest = [...rows].sort((a, b) => b.label.length - a.label.length).slice(0, 20);
  const widest = longest.reduce((most, { label }) => Math.max(most, context.measureText(label).width), 0);
  return Math.round(Math.max(LEAST_WIDTH, Math.min(widest * BOLDER + 16, width * 0.35)));
}

/** Where not all names have room, that of the selected row comes first, then those of the rows that differ most. */
export function paintLabels(context: CanvasRenderingContext2D, picture: HeatPicture, place: LabelPlace): void {
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
export function paintBeyond(
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
function shortened(context: CanvasRenderingContext2D, text: string, room: number): string {
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

export function paintHeading(context: CanvasRenderingContext2D, text: string, top: number, theme: ChartTheme): void {
  context.font = `600 ${FONT}px ${theme.font}`;
  context.fillStyle = theme.text;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(text, 4, top - HEADING / 2);
}
