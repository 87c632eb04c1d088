// The lines that edges take, from border to border.

import type { Bends, Between, LayoutResult } from "./layout_types";
import type { Box, Point } from "../shared/viewport";
import { framesBetween, parting } from "./scene_groups";
import type { Scene, SceneEdge } from "./scene_types";

const FAR = 60; // from where a label has room: there it would stand on something else

export interface Route {
  edge: SceneEdge;
  points: Point[]; // from the source's border, over the bends, to the target's
  label?: Point; // the middle of its label, where that has room
}

/** A scene with places for everything in it. */
export interface Placed {
  scene: Scene;
  boxes: Box[];
  routes: Route[];
}

export function placed(scene: Scene, layout: LayoutResult): Placed {
  const bends = new Map(layout.bends);
  const labels = new Map(layout.labels.map(([edge, x, y]) => [edge, [x, y] as Point]));
  const ways = new Map(layout.between.map(way => [`${way.from} ${way.to}`, way]));
  const passages = new Map(
    layout.passages.map(({ frame, item, isEntry, points }) => [`${frame} ${item} ${isEntry ? "in" : "out"}`, points])
  );
  const labelled = new Set<Between>();
  const routes = scene.edges.map((edge, index) => {
    const [source, target] = [layout.boxes[edge.source], layout.boxes[edge.target]];
    const [a, b] = parting(scene.nodes, edge.source, edge.target);
    if (a === edge.source && b === edge.target) {
      return { edge, points: route(source, target, bends.get(index) ?? []), label: labels.get(index) };
    }
    const way = ways.get(`${a} ${b}`);
    const out = framesBetween(scene.nodes, edge.source, a).flatMap(
      ([frame, item]) => passages.get(`${frame} ${item} out`) ?? []
    );
    const inside = framesBetween(scene.nodes, edge.target, b)
      .reverse()
      .flatMap(([frame, item]) => passages.get(`${frame} ${item} in`) ?? []);
    const [start, end] = [out[out.length - 1] ?? centre(source), inside[0] ?? centre(target)];
    const points = route(source, target, [...out, ...aligned(way?.bends ?? [], start, end), ...inside]);
    // of the edges that go the same way one is written on
    const label = way?.label && !labelled.has(way) ? onLine(points, way.label) : undefined;
    if (way && label) {
      labelled.add(way);
    }
    return { edge, points, label };
  });
  return { scene, boxes: layout.boxes, routes };
}

/** A way through a gutter, with its turns above and below the points that it connects. */
function aligned(bends: Bends, start: Point, end: Point): Bends {
  const [first, last] = [bends[0], bends[bends.length - 1]];
  const isGutter = bends.length === 2 && first[1] === last[1];
  return isGutter
    ? [
        [start[0], first[1]],
        [end[0], last[1]]
      ]
    : bends;
}

/** Where the label goes: the middle of the gutter that has room for it, else the point of the line nearest to its room. */
function onLine(points: readonly Point[], room: Point): Point | undefined {
  let best: { at: Point; distance: number } | undefined;
  for (let i = 1; i < points.length; i++) {
    const [from, to] = [points[i - 1], points[i]];
    if (from[1] === to[1] && from[1] === room[1]) {
      return [(from[0] + to[0]) / 2, room[1]];
    }
    const at = nearest(from, to, room);
    const distance = Math.hypot(at[0] - room[0], at[1] - room[1]);
    if (!best || distance < best.distance) {
      best = { at, distance };
    }
  }
  return best && best.distance < FAR ? best.at : undefined;
}

function nearest([x0, y0]: Point, [x1, y1]: Point, [x, y]: Point): Point {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const share = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1);
  const along = Math.min(1, Math.max(0, share));
  return [x0 + along * dx, y0 + along * dy];
}

function route(source: Box, target: Box, bends: Bends): Point[] {
  const first = bends[0] ?? centre(target);
  const last = bends[bends.length - 1] ?? centre(source);
  return [border(source, first), ...bends, border(target, last)];
}

export function centre([x, y, width, height]: Box): Point {
  return [x + width / 2, y + height / 2];
}

/** Where the line from the middle of a box to `point` leaves the box. */
function border(box: Box, point: Point): Point {
  const [x, y] = centre(box);
  const [dx, dy] = [point[0] - x, point[1] - y];
  const reach = Math.max(Math.abs(dx) / (box[2] / 2), Math.abs(dy) / (box[3] / 2)) || 1;
  return [x + dx / reach, y + dy / reach];
}
