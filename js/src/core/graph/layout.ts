// Positions: every open group is laid out on its own, inner groups first. Runs in a worker and in plain calls alike.

import type { Box, Point } from "../shared/viewport";
import {
  type Bends,
  type Between,
  type GroupLayout,
  type LayoutGroup,
  type LayoutRequest,
  type LayoutResult,
  NO_EDGE,
  type Passage,
  type Ports,
  type Size
} from "./layout_types";
import { Graph, layout as dagre } from "@dagrejs/dagre";
import { columnLayout } from "./column_layout";
import { flowLayout } from "./row_layout";

type Direction = "LR" | "TB";

export const FRAME = { side: 16, top: 42, bottom: 16 };
const NESTED_ASPECT = 3.2; // frames inside frames read best when they are flat
const MOST_PIECES = 700; // nodes, and ranks that edges cross: with more, dagre takes seconds
const SECOND_TRY = 250; // pieces that may be laid out in both directions to compare
const CACHE_LIMIT = 2000;
const LABEL_HEIGHT = 14;

export class Layouter {
  private readonly cache = new Map<string, GroupLayout>();
  misses = 0;

  run(request: LayoutRequest): LayoutResult {
    const sizes = request.sizes.map(size => [...size] as Size);
    const layouts = request.groups.map(group => {
      const laid = this.group(group, sizes, request);
      if (group.node >= 0) {
        const [width, height] = sizes[group.node];
        sizes[group.node] = [
          Math.max(width, laid.width + 2 * FRAME.side),
          Math.max(height, laid.height + FRAME.top + FRAME.bottom)
        ];
      }
      return laid;
    });
    return place(request.groups, layouts, sizes);
  }

  private group(group: LayoutGroup, sizes: Size[], request: LayoutRequest): GroupLayout {
    const items = group.items.map(item => sizes[item]);
    const edges = group.edges.map(([from, to]) => [from, to] as [number, number]);
    const aspect = group.node < 0 ? request.aspect : NESTED_ASPECT;
    const key = JSON.stringify([items, edges, aspect, request.maxWidth, group.ranks, group.labels, group.ports]);
    let laid = this.cache.get(key);
    if (!laid) {
      laid = layoutGroup(
        { items, edges, labels: group.labels, ports: group.ports },
        aspect,
        request.maxWidth,
        group.ranks
      );
      this.misses++;
      this.remember(key, laid);
    }
    return laid;
  }

  private remember(key: string, laid: GroupLayout): void {
    if (this.cache.size >= CACHE_LIMIT) {
      this.cache.clear(); // rebuilt in milliseconds, so no finer rule is worth its code
    }
    this.cache.set(key, laid);
  }
}

/** Whether each item leads to the next and to nothing else. */
export function isChain(count: number, edges: readonly (readonly number[])[]): boolean {
  return edges.length === count - 1 && edges.every(([from, to], i) => from === i && to === i + 1);
}

/** One group as the layouts see it; edges by place in `items`. */
interface Drawing {
  items: Size[];
  edges: [number, number][];
  labels?: number[];
  ports?: Ports;
}

function layoutGroup(drawing: Drawing, aspect: number, maxWidth: number, ranks?: number[]): GroupLayout {
  const { items, edges, labels, ports } = drawing;
  if (ranks) {
    return columnLayout(items, ranks, edges.length, aspect);
  }
  if (!ports && (isChain(items.length, edges) || edges.length === 0)) {
    return flowLayout(items, edges.length > 0, aspect, maxWidth, labels);
  }
  const depth = longestPaths(items.length, edges);
  const pieces = edges.reduce((sum, [from, to]) => sum + Math.abs(depth[to] - depth[from]), items.length);
  if (pieces > MOST_PIECES) {
    return columnLayout(items, depth, edges.length, aspect);
  }
  const down = dagreLayout(drawing, "TB");
  if (down.width / down.height > aspect / 3 || pieces > SECOND_TRY) {
    return down;
  }
  const across = dagreLayout(drawing, "LR");
  return misfit(across, aspect, maxWidth) < misfit(down, aspect, maxWidth) ? across : down;
}

/** How far the shape is from the one that is wanted; pages scroll down, not across. */
function misfit({ width, height }: GroupLayout, aspect: number, maxWidth: number): number {
  const tooWide = width > maxWidth ? 10 * Math.log(width / maxWidth) : 0;
  return Math.abs(Math.log(width / height / aspect)) + tooWide;
}

const PORT = { width: 2, height: 2 };

function dagreLayout({ items, edges, labels, ports }: Drawing, direction: Direction): GroupLayout {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 24, edgesep: 14, ranksep: 44 });
  items.forEach(([width, height], i) => graph.setNode(String(i), { width, height }));
  const room = (k: number) => (labels?.[k] ? { width: labels[k], height: LABEL_HEIGHT, labelpos: "c" } : {});
  edges.forEach(([from, to], k) => graph.setEdge(String(from), String(to), room(k), String(k)));
  if (ports) {
    addPorts(graph, ports, items.length, edges);
  }
  dagre(graph);
  const corners = items.map(([width, height], i) => {
    const { x = 0, y = 0 } = graph.node(String(i));
    return [x - width / 2, y - height / 2] as Point;
  });
  const laid = edges.map(([from, to], k) => graph.edge(String(from), String(to), String(k)) as LaidEdge);
  const bends = laid.map(({ points = [] }) => points.slice(1, -1).map(({ x, y }) => [x, y] as Point));
  const middles = labels && laid.map(({ x = 0, y = 0 }) => [x, y] as Point);
  const entries = ports?.entries.map(item => [middle(graph, "in"), ...innerPoints(graph, "in", String(item))]);
  const exits = ports?.exits.map(item => [...innerPoints(graph, String(item), "out"), middle(graph, "out")]);
  return settle(items, { corners, bends: bends.map(straightened), labels: middles, entries, exits });
}

/** A point before all items that entries come from, and one behind all that exits lead to. */
function addPorts(graph: Graph, { entries, exits }: Ports, count: number, edges: [number, number][]): void {
  const [reached, left] = [1, 0].map(end => new Set(edges.map(edge => edge[end])));
  const link = (from: string, to: string, weight: number) => graph.setEdge(from, to, { weight }, "port");
  for (let item = 0; item < count; item++) {
    const isEntry = entries.includes(item);
    if (entries.length > 0 && (isEntry || !reached.has(item))) {
      graph.setNode("in", { ...PORT });
      link("in", String(item), isEntry ? 1 : 0);
    }
    const isExit = exits.includes(item);
    if (exits.length > 0 && (isExit || !left.has(item))) {
      graph.setNode("out", { ...PORT });
      link(String(item), "out", isExit ? 1 : 0);
    }
  }
}

function middle(graph: Graph, node: string): Point {
  const { x = 0, y = 0 } = graph.node(node);
  return [x, y];
}

function innerPoints(graph: Graph, from: string, to: string): Bends {
  const { points = [] } = graph.edge(from, to, "port") as LaidEdge;
  return straightened(points.slice(1, -1).map(({ x, y }) => [x, y] as Point));
}

interface LaidEdge {
  points?: { x: number; y: number }[];
  x?: number; // middle of its label
  y?: number;
}

/** Drops bends that lie on the line between their neighbours. */
function straightened(points: Bends): Bends {
  return points.filter((point, i) => {
    const before = points[i - 1];
    const after = points[i + 1];
    return !before || !after || Math.abs(cross(before, point, after)) > 1;
  });
}

function cross(a: readonly number[], b: readonly number[], c: readonly number[]): number {
  return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
}

/** Edges against the order of a cycle are ignored. */
function longestPaths(count: number, edges: [number, number][]): number[] {
  const next: number[][] = Array.from({ length: count }, () => []);
  const waiting = new Int32Array(count);
  for (const [from, to] of edges) {
    if (from !== to) {
      next[from].push(to);
      waiting[to]++;
    }
  }
  const ranks = new Array<number>(count).fill(0);
  const ready = ranks.map((_, i) => i).filter(i => waiting[i] === 0);
  for (let node = ready.pop(); node !== undefined; node = ready.pop()) {
    for (const to of next[node]) {
      ranks[to] = Math.max(ranks[to], ranks[node] + 1);
      if (--waiting[to] === 0) {
        ready.push(to);
      }
    }
  }
  return ranks;
}

/** Moves everything so that the corner of the content, bends included, is the origin. */
function settle(items: Size[], laid: Omit<GroupLayout, "width" | "height">): GroupLayout {
  const { corners, bends, labels, entries, exits } = laid;
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const grow = (x: number, y: number) => {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x);
    bottom = Math.max(bottom, y);
  };
  corners.forEach(([x, y], i) => {
    grow(x, y);
    grow(x + items[i][0], y + items[i][1]);
  });
  [bends, entries ?? [], exits ?? []].flat(2).forEach(([x, y]) => grow(x, y));
  const moved = ([x, y]: Point): Point => [x - left, y - top];
  const all = (lines?: Bends[]) => lines?.map(points => points.map(moved));
  return {
    corners: corners.map(moved),
    bends: bends.map(points => points.map(moved)),
    labels: labels?.map(moved),
    entries: all(entries),
    exits: all(exits),
    width: right - left,
    height: bottom - top
  };
}

/** Absolute positions, outermost group first. */
function place(groups: LayoutGroup[], layouts: GroupLayout[], sizes: Size[]): LayoutResult {
  const boxes: Box[] = sizes.map(([width, height]) => [0, 0, width, height]);
  const bends: LayoutResult["bends"] = [];
  const middles: LayoutResult["labels"] = [];
  const between: Between[] = [];
  const passages: Passage[] = [];
  for (let g = groups.length - 1; g >= 0; g--) {
    const { node, items, edges, labels, ports } = groups[g];
    const frame: Box = node < 0 ? [0, 0, 0, 0] : boxes[node];
    const left = frame[0] + (node < 0 ? 0 : Math.max(FRAME.side, (frame[2] - layouts[g].width) / 2));
    const top = frame[1] + (node < 0 ? 0 : FRAME.top);
    items.forEach((item, i) => {
      const [x, y] = layouts[g].corners[i];
      boxes[item] = [left + x, top + y, sizes[item][0], sizes[item][1]];
    });
    const moved = ([x, y]: Point): Point => [left + x, top + y];
    const pass = (at: number[] | undefined, lines: Bends[] | undefined, isEntry: boolean) =>
      lines?.forEach((points, k) => {
        passages.push({ frame: node, item: items[at?.[k] ?? 0], isEntry, points: points.map(moved) });
      });
    pass(ports?.entries, layouts[g].entries, true);
    pass(ports?.exits, layouts[g].exits, false);
    edges.forEach(([from, to, edge], k) => {
      const points = layouts[g].bends[k].map(moved);
      const middle = labels?.[k] ? layouts[g].labels?.[k] : undefined;
      const label = middle && moved(middle);
      if (edge === NO_EDGE) {
        between.push({ from: items[from], to: items[to], bends: points, label });
        return;
      }
      if (points.length > 0) {
        bends.push([edge, points]);
      }
      if (label) {
        middles.push([edge, ...label]);
      }
    });
  }
  return { boxes, bends, labels: middles, between, passages };
}
