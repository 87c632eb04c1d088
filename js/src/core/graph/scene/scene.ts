// A scene: the nodes and edges that there are to draw, and their boxes and lines once a layout has placed them.

import * as words from "../../words/graph";
import type { LayoutGroup, LayoutResult, Size } from "../../layout/types";
import { type Box, LEGIBLE_ZOOM, type Point, sizeAt } from "../../shared/stage/viewport";
import type { GraphPicture } from "../../export/graph_picture";
import { addLabels } from "./edge_labels";
import { FONT, type Measure, oneLine } from "../../shared/base/canvas";
import { rangeText, shortNumber, hyperLine } from "../../shared/base/format";
import { type Fold, foldBadge, type Hierarchy, type Link } from "../../shared/model/hierarchy";
import type { GraphStore } from "../../shared/model/graph_store";

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
  labelRoom?: number; // that the label takes on the line
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
  large?: { size: number; at: Point }; // and up to which size of letters there
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
  const routes = scene.edges.flatMap((edge): Route[] => {
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
  addLabels(routes, scene.nodes, layout.boxes);
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

export function pictureOf({ scene, boxes }: PlacedScene, color: (node: number) => string | null): GraphPicture {
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

// The cards of a scene: their text, their size, and the nodes that the hierarchy and a data flow both draw.

export interface CardText {
  name?: string; // slot, where there is one: what a small card says
  title: string; // slot; of the root, and where each structure is drawn once, the class
  subtitle: string; // class, or what kind of module it is
  detail: string; // a few hyper-parameters, or what is inside
}

const FLAG = 24; // width of the sign of a block that can go
export const CARD = { minWidth: 116, maxWidth: 236, padding: 14, short: 46, tall: 62, chevron: 18 };

/** `fold`: the run that the card stands for; of similar modules it says what they have from the least to the most. */
export function cardText(h: Hierarchy, node: number, fold?: Fold): CardText {
  const text = h.isKind(node) ? kindText(h, node) : classText(h, node);
  return fold?.kind === "family" ? { ...text, detail: oneLine(foldParams(h, fold)) } : text;
}

/** With FLOPs behind what the card says, where that is asked for. */
export function withFlops(h: Hierarchy, store: GraphStore, node: number, text: CardText): CardText {
  const flops = store.get("withFlops") ? h.column("flops")?.[node] : undefined;
  if (flops === undefined || flops === null) return text;
  return { ...text, detail: [text.detail, words.flops(shortNumber(flops))].filter(Boolean).join(" · ") };
}

function classText(h: Hierarchy, node: number): CardText {
  const name = node === 0 ? "" : oneLine(h.name(node) || '""');
  const cls = oneLine(h.className(node));
  return {
    name,
    title: name || cls,
    subtitle: name && cls,
    detail: oneLine(h.isContainer(node) ? inside(h, node) : hyperLine(h.hyper(node)))
  };
}

/** Where no class is told, the name says most. */
function kindText(h: Hierarchy, node: number): CardText {
  const own = h.tensors(node);
  const [, , shape] = own.find(([name]) => name === "weight") ?? (own.length === 1 ? own[0] : []);
  const name = oneLine(h.name(node) || '""');
  return {
    name,
    title: name,
    subtitle: oneLine(h.word(node)),
    detail: oneLine(h.isContainer(node) ? inside(h, node) : (shape?.join("×") ?? ""))
  };
}

/** "4 modules · 1.2 M" */
function inside(h: Hierarchy, node: number): string {
  const count = h.children(node).length;
  const params = paramsText(h, node);
  return `${count} module${count === 1 ? "" : "s"}${params ? ` · ${params}` : ""}`;
}

/** Parameters as short text; "" without the column or without parameters. */
function paramsText(h: Hierarchy, node: number): string {
  const params = h.column("params")?.[node] ?? 0;
  return params === 0 ? "" : shortNumber(params);
}

/** What each module of a run has: "each 1.2 M", or of similar ones "304 – 295 k parameters". */
export function foldParams(h: Hierarchy, fold: Fold): string {
  if (fold.kind === "exact") return paramsText(h, fold.first) && `each ${paramsText(h, fold.first)}`;
  let [least, most] = [Infinity, 0];
  for (const member of fold.members) {
    const params = h.column("params")?.[member] ?? 0;
    [least, most] = [Math.min(least, params), Math.max(most, params)];
  }
  return most === 0 ? "" : `${rangeText(least, most)} parameters`;
}

/** Width and height of a closed card. */
export function cardSize(text: CardText, badge: string, container: boolean, measure: Measure): [number, number] {
  const [title, small] = [FONT.title, FONT.text].map(size => sizeAt(size, LEGIBLE_ZOOM)); // names are never cut
  const extra = (badge ? measure(badge, small, true) + 14 : 0) + (container ? CARD.chevron + FLAG : 0);
  const widest = Math.max(
    measure(text.title, title, true) + extra,
    measure(text.subtitle, FONT.text, false),
    measure(text.detail, FONT.text, false)
  );
  const width = Math.min(CARD.maxWidth, Math.max(CARD.minWidth, Math.ceil(widest) + 2 * CARD.padding));
  return [width, text.detail && text.subtitle ? CARD.tall : CARD.short];
}

// The cards of a scene that both the hierarchy and a data flow draw: modules, slots, pills, and the headers of frames.

export const MAX_LINKS = 20; // slots drawn in one container whose modules are elsewhere
const PILL: Size = [76, 34];

/** The id of a node in the graph: its path, told apart where two modules have the same one. */
export function idOf(h: Hierarchy, node: number): string {
  const path = h.path(node);
  return path !== "" && h.find(path) === node ? path : `\u0000node:${node}:${path}`;
}

/** A closed module, or a folded run of modules. */
export function moduleCard(h: Hierarchy, store: GraphStore, measure: Measure, node: number, parent: number): SceneNode {
  const fold = h.fold(node);
  const folded = fold !== undefined && !store.get("unfolded").has(fold.first);
  const text = withFlops(h, store, node, cardText(h, node, folded ? fold : undefined));
  const badge = folded ? foldBadge(fold) : "";
  return {
    id: idOf(h, node),
    index: node,
    path: h.path(node),
    parent,
    kind: folded ? "fold" : "module",
    ...text,
    badge,
    size: cardSize(text, badge, h.isContainer(node), measure)
  };
}

/** A slot whose module is drawn elsewhere. */
export function linkCard(h: Hierarchy, measure: Measure, container: number, link: Link, parent: number): SceneNode {
  const { slot, target, kind } = link;
  const where = h.path(target) || words.ROOT;
  const name = oneLine(slot);
  const text = {
    name,
    title: name,
    subtitle: oneLine(h.className(target)),
    detail: oneLine(kind === "cycle" ? words.backTo(where) : words.sharedWith(where))
  };
  const size = cardSize(text, "", false, measure);
  const id = `\u0000link:${h.path(container)}\u0000${slot}`;
  return { id, index: -1, path: null, target, parent, kind: "pseudo", ...text, badge: "", size };
}

export function pillCard(measure: Measure, id: string, title: string, parent: number): SceneNode {
  const short = oneLine(title);
  const width = Math.max(PILL[0], Math.ceil(measure(short, FONT.title, false)) + 28);
  const text = { title: short, subtitle: "", detail: "", badge: "" };
  return { id, index: -1, path: null, parent, kind: "pseudo", ...text, size: [width, PILL[1]] };
}

/** The frame's header is one line: slot · class · what is inside. */
export function headerWidth(node: SceneNode, measure: Measure): number {
  const text = measure(`${node.subtitle}${node.title}`, FONT.title, true) + measure(node.detail, FONT.text, false);
  return Math.min(420, Math.ceil(text) + (node.badge ? 50 : 0) + 80);
}
