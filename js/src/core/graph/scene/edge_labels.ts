// Labels of edges for which the layout left no room: on a level stretch of the line where nothing else lies.

import type { Measure } from "../../shared/base/canvas";
import { type Box, LEGIBLE_ZOOM, type Point, sizeAt } from "../../shared/stage/viewport";

interface Route {
  readonly edge: {
    readonly source: number;
    readonly label: string;
    readonly labelRoom?: number;
    readonly way?: readonly (readonly number[])[];
  };
  readonly points: readonly Point[];
  label?: Point; // the middle of its label
  large?: { size: number; at: Point }; // of larger letters, where there is room
}

export const LABEL_SIZE = 10; // of letters of a shape on an edge, at full size
const LARGEST = sizeAt(LABEL_SIZE, LEGIBLE_ZOOM); // the same, in small pictures, for which the layout leaves room
const SIZES = [LARGEST, 13, LABEL_SIZE];
const PADDING = 8; // of a label, both sides together
const MAX_ROUTES = 300; // more are not read
const ENDS = 10; // of a line that stay free on both sides
const BORDER = 4; // around lines
const HEADER = 32; // of a frame, with its name
const SHARES = [0.5, 0.25, 0.75]; // of a stretch: where its label may stand

/** The room that a label takes on its line; 0 without one. */
export function labelWidth(text: string, measure: Measure): number {
  return text === "" ? 0 : Math.ceil(measure(text, LARGEST, false)) + PADDING;
}

/**
 * Gives each net one label, where there is room for it, in letters as large as there is room for; where edges of one net
 * have several, each where it runs alone.
 */
export function addLabels(routes: Route[], nodes: readonly { readonly kind: string }[], boxes: readonly Box[]): void {
  if (routes.length > MAX_ROUTES) return;
  const keyOf = ({ edge: { label, way } }: Route) => `${(way ?? [[NaN, NaN]])[0].slice(0, 2).join(" ")} ${label}`;
  const fixed = nodes.flatMap(({ kind }, place) => (kind === "group" ? frame(boxes[place]) : [boxes[place]]));
  const lines = routes.map(route => ({ edge: route.edge, parts: segments(route.points) }));
  const written = new Set(routes.filter(route => route.label).map(keyOf));
  const others = ({ edge: { source, label } }: Route) =>
    lines.flatMap(({ edge, parts }) => (edge.source === source && edge.label === label ? [] : parts)).concat(fixed);
  // what has its place already comes first
  for (const route of [...routes].sort((a, b) => Number(!a.label) - Number(!b.label))) {
    const width = route.edge.labelRoom ?? 0;
    if (width === 0 || (!route.label && written.has(keyOf(route)))) continue;
    const around = others(route);
    for (const size of SIZES) {
      const [across, down] = [PADDING + ((width - PADDING) * size) / LARGEST, size + 3];
      const places = route.label ? besides(route.label, width, across) : levels(route.points, across);
      const at = places.find(place => !around.some(box => meet(box, boxAt(place, across, down))));
      if (!at) continue;
      route.label ??= at;
      if (size > LABEL_SIZE) route.large = { size, at };
      written.add(keyOf(route));
      fixed.push(boxAt(at, across, down));
      break;
    }
  }
}

const boxAt = ([x, y]: Point, width: number, height: number): Box => [x - width / 2, y - height / 2, width, height];

/** Where a label may stand that has its place, but takes less room than it has there: in the middle, or at either end. */
function besides([x, y]: Point, room: number, width: number): Point[] {
  const shift = (room - width) / 2;
  return [x, x + shift, x - shift].map(at => [at, y]);
}

/** Places on level stretches that are long enough, the longest first. */
function levels(points: readonly Point[], width: number): Point[] {
  const parts = points.slice(1).flatMap(([x, y], at) => {
    const [from, level] = points[at];
    const length = Math.abs(x - from);
    return Math.abs(y - level) < 1 && length >= width + 2 * ENDS ? [{ from, to: x, y, length }] : [];
  });
  return parts
    .sort((a, b) => b.length - a.length)
    .flatMap(({ from, to, y, length }) =>
      SHARES.filter(share => Math.min(share, 1 - share) * length >= width / 2 + ENDS).map(
        share => [from + share * (to - from), y] as Point
      )
    );
}

/** The header and the border. */
function frame([x, y, width, height]: Box): Box[] {
  const corners: Point[] = [[x, y], [x + width, y], [x + width, y + height], [x, y + height], [x, y]]; // prettier-ignore
  return [[x, y, width, HEADER], ...segments(corners)];
}

const meet = ([x, y, width, height]: Box, [left, top, across, down]: Box): boolean =>
  x < left + across && left < x + width && y < top + down && top < y + height;

function segments(points: readonly Point[]): Box[] {
  return points.slice(1).map(([x, y], at) => {
    const [left, top] = [Math.min(x, points[at][0]), Math.min(y, points[at][1])];
    const [right, bottom] = [Math.max(x, points[at][0]), Math.max(y, points[at][1])];
    return [left - BORDER, top - BORDER, right - left + 2 * BORDER, bottom - top + 2 * BORDER];
  });
}
