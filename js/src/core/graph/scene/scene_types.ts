// A scene: the nodes and edges that there are to draw, and their boxes and lines once a layout has placed them.

import type { LayoutGroup, LayoutResult, Size } from "../../layout/types";
import type { Box, Point } from "../../shared/stage/viewport";
import type { Scene as PlainScene } from "../../export/scene";

export type NodeKind = "module" | "group" | "fold" | "pseudo" | "operator";

export interface SceneNode {
  id: string; // dotted path, or one that starts with "\u0000"
  index: number; // node of the hierarchy; -1 for pseudo nodes
  path: string | null; // dotted path, null for pseudo nodes
  target?: number; // of a slot whose module has its place elsewhere: that module
  unit?: number; // in a data-flow view: the call that is drawn
  step?: number; // the operator that is drawn, or the first of several
  steps?: readonly number[]; // all of them
  isGlyph?: boolean; // a small card, with its text in the middle
  owner?: number; // the module that called it
  opens?: boolean; // whether there is an inside to open, where the hierarchy does not tell
  parent: number; // place in `nodes` of the frame around it; -1 on the canvas
  kind: NodeKind;
  name?: string; // of the slot
  title: string;
  subtitle: string;
  detail: string;
  badge: string; // "×35", "≈ ×47"
  size: Size;
}

/** One line of a layout: the frame whose inside it lies in, the net and the end. */
export type Piece = readonly [frame: number, net: number, end: number];

export interface SceneEdge {
  id: string;
  source: number; // places in `nodes`
  target: number;
  kind: "order" | "data";
  values?: readonly number[]; // of the data flow
  label: string;
  way?: readonly Piece[]; // the lines of the layouts that it is made of
}

export interface Scene {
  nodes: SceneNode[];
  edges: SceneEdge[];
  groups: LayoutGroup[]; // inner groups first, the canvas last
  count: number; // modules drawn
  capped: boolean; // something open is drawn closed
}

export const INPUT = "\u0000input";
export const OUTPUT = "\u0000output";
export const BEFORE = "\u0000before:"; // pages of a container with very many children
export const AFTER = "\u0000after:";

// The lines that edges take, from border to border: the pieces that the layouts of their frames have given.

export interface Route {
  edge: SceneEdge;
  points: Point[]; // from the source's border, over the bends, to the target's
  label?: Point; // the middle of its label, where that has room
}

/** A scene with places for everything in it. */
export interface PlacedScene {
  scene: Scene;
  boxes: Box[];
  routes: Route[];
  bounds: Box; // of boxes and lines
}

export function positionScene(scene: Scene, layout: LayoutResult): PlacedScene {
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

// What is on the canvas as plain data, for the exporters.

export function plainScene({ scene, boxes }: PlacedScene, color: (node: number) => string | null): PlainScene {
  const nodes = scene.nodes.map((node, place) => {
    const [x, y, width, height] = boxes[place];
    const parts = [node.subtitle, node.detail, node.badge].filter(text => text !== "");
    return {
      id: node.id,
      label: node.title,
      sublabel: parts.join(" · "),
      x: x + width / 2,
      y: y + height / 2,
      width,
      height,
      color: node.index < 0 ? null : color(node.index),
      kind: node.kind
    };
  });
  const edges = scene.edges.map(({ source, target, kind, label }) => {
    return { source: scene.nodes[source].id, target: scene.nodes[target].id, kind, label };
  });
  return { nodes, edges };
}
