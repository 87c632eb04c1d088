// The lines that edges take, from border to border: the pieces that the layouts of their frames have given.

import type { Box, Point } from "../shared/viewport";
import type { LayoutResult } from "../layout/types";
import type { Scene, SceneEdge } from "./scene_types";

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
  bounds: Box; // of boxes and lines
}

export function placed(scene: Scene, layout: LayoutResult): Placed {
  const byNode = new Map(scene.groups.map(({ node }, at) => [node, layout.groups[at]]));
  const written = new Set<string>();
  const routes = scene.edges.flatMap(edge => {
    const way = edge.way ?? [];
    const points = joined(way.map(([frame, net, end]) => byNode.get(frame)?.lines[net]?.[end] ?? []));
    if (points.length < 2) return [];
    const [frame, net] = way[0];
    const key = `${frame} ${net}`;
    // edges of one source share the beginning of their line, and what is written there
    const label = written.has(key) ? null : byNode.get(frame)?.labels[net];
    if (label) written.add(key);
    return [{ edge, points, label: label ?? undefined }];
  });
  return { scene, boxes: layout.boxes, routes, bounds: layout.bounds };
}

function joined(lines: readonly (readonly Point[])[]): Point[] {
  const points: Point[] = [];
  for (const point of lines.flat()) {
    const [a, b] = [points[points.length - 2], points[points.length - 1]];
    if (b && near(b[0], point[0]) && near(b[1], point[1])) continue;
    if (a && b && ((near(a[0], b[0]) && near(b[0], point[0])) || (near(a[1], b[1]) && near(b[1], point[1])))) {
      points.pop();
    }
    points.push(point);
  }
  return points;
}

const near = (a: number, b: number): boolean => Math.abs(a - b) < 0.6;

export function centre([x, y, width, height]: Box): Point {
  return [x + width / 2, y + height / 2];
}
