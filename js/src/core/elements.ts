// A laid-out scene as cytoscape elements, and the smallest change that leads from one to the next.

import type { Core, ElementDefinition } from "cytoscape";
import { BORDER, GHOST } from "./graph_style";
import type { Bends, Box, LayoutResult } from "./layout";
import type { Scene } from "./scene";

export interface Placed {
  scene: Scene;
  boxes: Box[];
  bends: Map<number, Bends>;
}

export interface Paints {
  fill(place: number): string;
  stroke(place: number): string;
}

export function placed(scene: Scene, layout: LayoutResult): Placed {
  return { scene, boxes: layout.boxes, bends: new Map(layout.bends) };
}

type Data = Record<string, unknown>;

/** Brings the graph to the scene: removes, adds and updates only what differs. */
export function applyScene(cy: Core, now: Placed, paints: Paints): void {
  const wanted = new Map<string, ElementDefinition>();
  const spans = contentSpans(now);
  now.scene.nodes.forEach((_, place) => {
    const element = nodeElement(now, place, spans, paints);
    wanted.set(String(element.data.id), element);
  });
  now.scene.edges.forEach((_, edge) => {
    const element = edgeElement(now, edge);
    wanted.set(String(element.data.id), element);
  });
  cy.batch(() => {
    removeOthers(cy, wanted);
    cy.add([...wanted.values()].filter(element => cy.getElementById(String(element.data.id)).empty()));
    wanted.forEach(element => update(cy, element));
  });
}

/** Gone, or under another frame than before (then it comes back as a new element). */
function removeOthers(cy: Core, wanted: ReadonlyMap<string, ElementDefinition>): void {
  const stale = cy.elements().filter(element => {
    const next = wanted.get(element.id());
    return !next || (element.isNode() && (element.data("parent") ?? null) !== (next.data.parent ?? null));
  });
  cy.remove(stale); // a removed frame takes its children along: those still wanted are added again
}

function update(cy: Core, { data, position }: ElementDefinition): void {
  const element = cy.getElementById(String(data.id));
  const changed = Object.entries(data).filter(([key, value]) => !same(element.data(key), value));
  if (changed.length > 0) {
    element.data(Object.fromEntries(changed));
  }
  if (element.isEdge() && element.data("bends") !== undefined && data.bends === undefined) {
    element.removeData("bends");
  }
  // a frame follows its children; placing it would drag them along
  if (position && element.isNode() && element.isChildless()) {
    const before = element.position();
    if (before.x !== position.x || before.y !== position.y) {
      element.position({ ...position });
    }
  }
}

const same = (a: unknown, b: unknown) => Object.is(a, b) || (Array.isArray(a) && String(a) === String(b));

function nodeElement(now: Placed, place: number, spans: Map<number, Box>, paints: Paints): ElementDefinition {
  const node = now.scene.nodes[place];
  const [x, y, width, height] = now.boxes[place];
  const data: Data = {
    id: node.id,
    index: node.index,
    path: node.path,
    kind: node.kind,
    label: node.title,
    sublabel: node.subtitle,
    badge: node.badge,
    width,
    height,
    fill: paints.fill(place),
    stroke: paints.stroke(place),
    link: node.target !== undefined
  };
  if (node.parent >= 0) {
    data.parent = now.scene.nodes[node.parent].id;
  }
  const position = { x: x + width / 2, y: y + height / 2 };
  const span = spans.get(place);
  if (!span) {
    return { group: "nodes", data, position };
  }
  // how the frame's surplus over its content is shared out: exactly the room that the layout left
  data.left = span[0] - x;
  data.right = x + width - span[0] - span[2];
  data.top = span[1] - y;
  data.bottom = y + height - span[1] - span[3];
  return { group: "nodes", data, position }; // edges are routed once before cytoscape works out the frame itself
}

/** What cytoscape takes the children of each frame to cover: their boxes, half their borders and their ghosts. */
function contentSpans({ scene, boxes }: Placed): Map<number, Box> {
  const spans = new Map<number, Box>();
  for (const { node, items } of scene.groups) {
    const [left, top] = [0, 1].map(i => Math.min(...items.map(item => boxes[item][i])) - BORDER / 2);
    const [right, bottom] = [0, 1].map(i => {
      const ends = items.map(item => {
        return boxes[item][i] + boxes[item][i + 2] + (scene.nodes[item].kind === "fold" ? GHOST : 0);
      });
      return Math.max(...ends) + BORDER / 2;
    });
    spans.set(node, [left, top, right - left, bottom - top]);
  }
  return spans;
}

function edgeElement(now: Placed, index: number): ElementDefinition {
  const edge = now.scene.edges[index];
  const [source, target] = [now.scene.nodes[edge.source], now.scene.nodes[edge.target]];
  const data: Data = { id: edge.id, source: source.id, target: target.id, kind: edge.kind, label: edge.label };
  const points = now.bends.get(index);
  if (points) {
    Object.assign(data, route(now.boxes[edge.source], now.boxes[edge.target], points));
  }
  return { group: "edges", data };
}

/** Bend points as cytoscape wants them: along the line between the ends, and away from it. */
function route(source: Box, target: Box, points: Bends): Data {
  const from = border(source, points[0]);
  const to = border(target, points[points.length - 1]);
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy) || 1;
  const weights = points.map(([x, y]) => ((x - from[0]) * dx + (y - from[1]) * dy) / (length * length));
  const distances = points.map(([x, y]) => ((y - from[1]) * dx - (x - from[0]) * dy) / length);
  return { bends: points.length, weights, distances, from: offset(source, from), to: offset(target, to) };
}

/** Where the line from the middle of a box to `point` leaves the box. */
function border(box: Box, point: readonly number[]): [number, number] {
  const [x, y] = centre(box);
  const [dx, dy] = [point[0] - x, point[1] - y];
  const reach = Math.max(Math.abs(dx) / (box[2] / 2), Math.abs(dy) / (box[3] / 2)) || 1;
  return [x + dx / reach, y + dy / reach];
}

function offset(box: Box, [x, y]: [number, number]): string {
  const middle = centre(box);
  return `${x - middle[0]}px ${y - middle[1]}px`;
}

function centre([x, y, width, height]: Box): [number, number] {
  return [x + width / 2, y + height / 2];
}
