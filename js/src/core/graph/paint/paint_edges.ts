// Edges on a canvas: one path for all lines of a sort, one for their arrowheads.

import { fontOf } from "../../shared/base/canvas";
import type { Theme } from "../../shared/stage/theme";
import type { Route } from "../scene/scene";
import { LABEL_SIZE } from "../scene/edge_labels";
import type { Box, Point } from "../../shared/stage/viewport";

export interface EdgePaint {
  route: Route;
  lit: boolean; // belongs to the selected card
  onAxis: boolean; // the chosen axis runs through what it carries
  depth: number; // of the frame that it runs in; 0 is the canvas
}

const ROUNDING = 10;
const ARROW = { length: 8, half: 4 };

/** `pixel`: one of the screen, in the picture's units; `size`: of what is written on lines, 0 for nothing. */
export function paintEdges(
  context: CanvasRenderingContext2D,
  edges: readonly EdgePaint[],
  theme: Theme,
  pixel: number,
  size: number
): void {
  const width = Math.max(1.5, 1.75 * pixel); // a thinner line pales where it lies between two rows of pixels
  const sort = (keep: (paint: EdgePaint) => boolean) => edges.filter(keep).map(({ route }) => route);
  const plain = (paint: EdgePaint) => !paint.lit && !paint.onAxis && paint.route.edge.kind === "data";
  stroke(
    context,
    sort(({ route: { edge } }) => edge.kind === "order"),
    theme.edge,
    width,
    [5, 4]
  );
  stroke(context, sort(plain), theme.edge, width, []);
  stroke(
    context,
    sort(paint => paint.onAxis && !paint.lit),
    theme.axis,
    2.4,
    []
  );
  const lit = edges.filter(paint => paint.lit && paint.route.edge.kind === "data");
  stroke(
    context,
    lit.map(({ route }) => route),
    theme.accent,
    2,
    []
  );
  if (size > 0) {
    const plainly = edges.filter(({ lit, route }) => !lit && hasRoomFor(route, size));
    [...plainly, ...lit].forEach(paint => label(context, paint, theme, size));
  }
}

/** Lines with their arrowheads. */
export function stroke(
  context: CanvasRenderingContext2D,
  routes: readonly Route[],
  color: string,
  width: number,
  dash: number[]
): void {
  if (routes.length === 0) {
    return;
  }
  context.beginPath();
  routes.forEach(({ points }) => line(context, points));
  context.strokeStyle = color;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  routes.forEach(({ points }) => arrow(context, points));
  context.fillStyle = color;
  context.fill();
}

function line(context: CanvasRenderingContext2D, points: readonly Point[]): void {
  const last = points.length - 1;
  context.moveTo(points[0][0], points[0][1]);
  for (let i = 1; i < last; i++) {
    const [x, y] = points[i];
    const room = Math.min(distance(points[i - 1], points[i]), distance(points[i], points[i + 1])) / 2;
    if (turnsBack(points[i - 1], points[i], points[i + 1])) {
      context.lineTo(x, y); // an arc would make a loop of it
    } else {
      context.arcTo(x, y, points[i + 1][0], points[i + 1][1], Math.min(ROUNDING, room));
    }
  }
  const [x, y] = backedOff(points);
  context.lineTo(x, y);
}

function turnsBack(before: Point, at: Point, after: Point): boolean {
  return (at[0] - before[0]) * (after[0] - at[0]) + (at[1] - before[1]) * (after[1] - at[1]) < -1;
}

/** The end of the line, under the arrowhead. */
function backedOff(points: readonly Point[]): Point {
  const [end, before] = [points[points.length - 1], points[points.length - 2]];
  const length = distance(before, end) || 1;
  const share = Math.max(0, length - ARROW.length + 1) / length;
  return [before[0] + (end[0] - before[0]) * share, before[1] + (end[1] - before[1]) * share];
}

function arrow(context: CanvasRenderingContext2D, points: readonly Point[]): void {
  const [end, before] = [points[points.length - 1], points[points.length - 2]];
  const length = distance(before, end) || 1;
  const [dx, dy] = [(end[0] - before[0]) / length, (end[1] - before[1]) / length];
  const [x, y] = [end[0] - dx * ARROW.length, end[1] - dy * ARROW.length];
  context.moveTo(end[0], end[1]);
  context.lineTo(x - dy * ARROW.half, y + dx * ARROW.half);
  context.lineTo(x + dy * ARROW.half, y - dx * ARROW.half);
  context.closePath();
}

/** On the ground that the line runs over. */
export function label(
  context: CanvasRenderingContext2D,
  { route, lit, depth }: EdgePaint,
  theme: Theme,
  size: number
): void {
  const { edge } = route;
  if (edge.label === "") {
    return;
  }
  context.font = fontOf(size, lit);
  context.textAlign = "center";
  context.textBaseline = "middle";
  const box = labelBox(route, context.measureText(edge.label).width, size);
  if (!box) return;
  const [left, top, width, height] = box;
  context.beginPath();
  context.roundRect(left, top, width, height, 4);
  const ground = depth > 0 ? theme.frame(depth - 1) : theme.ground;
  context.fillStyle = ground;
  context.fill();
  context.fillStyle = lit ? theme.text : theme.quiet(ground);
  context.fillText(edge.label, left + width / 2, top + height / 2 + 0.5);
}

/** Whether a line has a place for what is written on it, in letters of this size. */
export function hasRoomFor({ label, large }: Route, size: number): boolean {
  return label !== undefined && size <= Math.max(LABEL_SIZE, large?.size ?? 0);
}

/** Around a label of this width: at its place, without one where the line runs level for as long; else cards would cover it. */
export function labelBox({ points, label, large }: Route, textWidth: number, size = LABEL_SIZE): Box | null {
  const [width, height] = [textWidth + 6, size + 4];
  const place = (size > LABEL_SIZE && large?.at) || label || levelMiddle(points, width);
  return place && [place[0] - width / 2, place[1] - height / 2, width, height];
}

/** The middle of the longest level piece of a line, if it is no shorter than that. */
function levelMiddle(points: readonly Point[], least: number): Point | null {
  let [longest, middle]: [number, Point | null] = [least, null];
  for (let i = 1; i < points.length; i++) {
    const [[from, y], [to, end]] = [points[i - 1], points[i]];
    if (y === end && Math.abs(to - from) >= longest) {
      [longest, middle] = [Math.abs(to - from), [(from + to) / 2, y]];
    }
  }
  return middle;
}

function distance(a: Point, b: Point): number {
  return Math.hypot(b[0] - a[0], b[1] - a[1]);
}
