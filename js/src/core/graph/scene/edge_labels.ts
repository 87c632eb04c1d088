// Labels of edges for which the layout left no room: on a level stretch of the line where nothing else lies.

import type { LayoutGroup } from "../../layout/types";
import type { Box, Point } from "../../shared/stage/viewport";

interface Route {
  readonly edge: { readonly source: number; readonly way?: readonly (readonly number[])[] };
  readonly points: readonly Point[];
  label?: Point; // the middle of its label
  large?: { size: number; at: Point }; // of larger letters, where there is room
}

export const LABEL_SIZE = 10; // pixels of a shape on an edge
const MAX_ROUTES = 300; // more are not read
const HEIGHT = 13;
const ENDS = 10; // of a line that stay free on both sides
const BORDER = 4; // around lines
const HEADER = 32; // of a frame, with its name
const LARGER = [15, 13]; // sizes of letters for small pictures
const PADDING = 8; // of a label, both sides together
const SHARES = [0.5, 0.25, 0.75]; // of a stretch: where its label may stand

/** Gives each net one label, where there is room for it. */
export function addLabels(
  routes: Route[],
  nodes: readonly { readonly kind: string }[],
  boxes: readonly Box[],
  groups: readonly LayoutGroup[]
): void {
  if (routes.length > MAX_ROUTES) return;
  const nets = new Map(groups.map(group => [group.node, group.nets]));
  const keyOf = ({ edge }: Route) => (edge.way ?? [[NaN, NaN]])[0].slice(0, 2).join(" ");
  const widthOf = ({ edge }: Route) => {
    const [frame, net] = edge.way?.[0] ?? [NaN, NaN];
    return nets.get(frame)?.[net]?.label ?? 0;
  };
  const boxAt = ([x, y]: Point, width: number, height = HEIGHT): Box => [x - width / 2, y - height / 2, width, height];
  const fixed = nodes.flatMap(({ kind }, place) => (kind === "group" ? frame(boxes[place]) : [boxes[place]]));
  const lines = routes.map(route => ({ source: route.edge.source, parts: segments(route.points) }));
  const written = new Set(routes.filter(route => route.label).map(keyOf));
  routes.forEach(route => route.label && fixed.push(boxAt(route.label, widthOf(route))));
  for (const route of routes) {
    const width = widthOf(route);
    if (route.label || width === 0 || written.has(keyOf(route))) continue;
    const around = [...fixed, ...lines.flatMap(({ source, parts }) => (source === route.edge.source ? [] : parts))];
    const free = levels(route.points, width).find(place => !around.some(box => meet(box, boxAt(place, width))));
    if (!free) continue;
    route.label = free;
    written.add(keyOf(route));
    fixed.push(boxAt(free, width));
  }
  for (const route of routes) {
    if (!route.label) continue;
    const [x, y] = route.label;
    const width = widthOf(route);
    const others = [...fixed, ...lines.flatMap(({ source, parts }) => (source === route.edge.source ? [] : parts))];
    const own = boxAt(route.label, width);
    const around = others.filter(box => !isEqual(box, own));
    for (const size of LARGER) {
      const [across, down] = [PADDING + ((width - PADDING) * size) / LABEL_SIZE, size + 3];
      const shift = (across - width) / 2;
      const at = [0, shift, -shift].map((by): Point => [x + by, y]).find(place => !around.some(box => meet(box, boxAt(place, across, down)))); // prettier-ignore
      if (!at) continue;
      route.large = { size, at };
      fixed.push(boxAt(at, across, down));
      break;
    }
  }
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

const isEqual = (one: Box, other: Box): boolean => one.every((value, at) => value === other[at]);

const meet = ([x, y, width, height]: Box, [left, top, across, down]: Box): boolean =>
  x < left + across && left < x + width && y < top + down && top < y + height;

function segments(points: readonly Point[]): Box[] {
  return points.slice(1).map(([x, y], at) => {
    const [left, top] = [Math.min(x, points[at][0]), Math.min(y, points[at][1])];
    const [right, bottom] = [Math.max(x, points[at][0]), Math.max(y, points[at][1])];
    return [left - BORDER, top - BORDER, right - left + 2 * BORDER, bottom - top + 2 * BORDER];
  });
}
