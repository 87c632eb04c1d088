// The lines that edges take, from border to border.

import type { Bends, Box, LayoutResult } from "./layout";
import type { Scene, SceneEdge } from "./scene";

export type Point = readonly [x: number, y: number];

export interface Route {
  edge: SceneEdge;
  points: Point[]; // from the source's border, over the bends, to the target's
}

/** A scene with places for everything in it. */
export interface Placed {
  scene: Scene;
  boxes: Box[];
  routes: Route[];
}

export function placed(scene: Scene, layout: LayoutResult): Placed {
  const bends = new Map(layout.bends);
  const routes = scene.edges.map((edge, index) => {
    const [source, target] = [layout.boxes[edge.source], layout.boxes[edge.target]];
    return { edge, points: route(source, target, bends.get(index) ?? []) };
  });
  return { scene, boxes: layout.boxes, routes };
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

/** The smallest box around everything. */
export function boundsOf(boxes: readonly Box[]): Box {
  let [left, top, right, bottom] = boxes.length > 0 ? [Infinity, Infinity, -Infinity, -Infinity] : [0, 0, 1, 1];
  for (const [x, y, width, height] of boxes) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + width);
    bottom = Math.max(bottom, y + height);
  }
  return [left, top, right - left, bottom - top];
}
