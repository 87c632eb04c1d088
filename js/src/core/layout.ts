// Positions: every open group is laid out on its own, inner groups first. Runs in a worker and in plain calls alike.

import { Graph, layout as dagre } from "@dagrejs/dagre";
import { columnLayout } from "./columns";
import { flowLayout } from "./flow";

export type Size = [width: number, height: number];
export type Box = [x: number, y: number, width: number, height: number];
export type Bends = [x: number, y: number][];
type Direction = "LR" | "TB";

export interface LayoutGroup {
  node: number; // the group's own place in `sizes`; -1 for the canvas
  items: number[]; // its direct children, places in `sizes`
  edges: [from: number, to: number, edge: number][]; // places in `items`; the number of the edge, or NO_EDGE
  ranks?: number[]; // of the items: laid out in columns, without dagre
}

export interface LayoutRequest {
  sizes: Size[]; // of open groups: the least size of the frame
  groups: LayoutGroup[]; // inner groups first, the canvas last
  aspect: number; // width / height that the canvas would like
  maxWidth: number; // of a row, where that can be chosen
}

export interface LayoutResult {
  boxes: Box[]; // absolute, by place in `sizes`
  bends: [edge: number, points: Bends][];
}

/** One group's children relative to its content corner. */
export interface GroupLayout {
  corners: [x: number, y: number][];
  bends: Bends[]; // one entry an edge
  width: number;
  height: number;
}

export const NO_EDGE = -1; // places things, but is not drawn here
export const FRAME = { side: 16, top: 42, bottom: 16 };
const NESTED_ASPECT = 3.2; // frames inside frames read best when they are flat
const MOST_PIECES = 700; // nodes, and ranks that edges cross: with more, dagre takes seconds
const SECOND_TRY = 250; // pieces that may be laid out in both directions to compare
const CACHE_LIMIT = 2000;

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
    const key = JSON.stringify([items, edges, aspect, request.maxWidth, group.ranks]);
    let laid = this.cache.get(key);
    if (!laid) {
      laid = layoutGroup(items, edges, aspect, request.maxWidth, group.ranks);
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

function layoutGroup(
  items: Size[],
  edges: [number, number][],
  aspect: number,
  maxWidth: number,
  ranks?: number[]
): GroupLayout {
  if (ranks) {
    return columnLayout(items, ranks, edges.length, aspect);
  }
  if (isChain(items.length, edges) || edges.length === 0) {
    return flowLayout(items, edges.length > 0, aspect, maxWidth);
  }
  const depth = longestPaths(items.length, edges);
  const pieces = edges.reduce((sum, [from, to]) => sum + Math.abs(depth[to] - depth[from]), items.length);
  if (pieces > MOST_PIECES) {
    return columnLayout(items, depth, edges.length, aspect);
  }
  const down = dagreLayout(items, edges, "TB");
  if (down.width / down.height > aspect / 3 || pieces > SECOND_TRY) {
    return down;
  }
  const across = dagreLayout(items, edges, "LR");
  return misfit(across, aspect) < misfit(down, aspect) ? across : down;
}

const misfit = (laid: GroupLayout, aspect: number) => Math.abs(Math.log(laid.width / laid.height / aspect));

function dagreLayout(items: Size[], edges: [number, number][], direction: Direction): GroupLayout {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: 24, edgesep: 14, ranksep: 44 });
  items.forEach(([width, height], i) => graph.setNode(String(i), { width, height }));
  edges.forEach(([from, to], k) => graph.setEdge(String(from), String(to), {}, String(k)));
  dagre(graph);
  const corners = items.map(([width, height], i) => {
    const { x = 0, y = 0 } = graph.node(String(i));
    return [x - width / 2, y - height / 2] as [number, number];
  });
  const bends = edges.map(([from, to], k) => {
    const points: { x: number; y: number }[] = graph.edge(String(from), String(to), String(k)).points ?? [];
    return points.slice(1, -1).map(({ x, y }) => [x, y] as [number, number]);
  });
  return settle(items, corners, bends.map(straightened));
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
function settle(items: Size[], corners: [number, number][], bends: Bends[]): GroupLayout {
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
  bends.flat().forEach(([x, y]) => grow(x, y));
  return {
    corners: corners.map(([x, y]) => [x - left, y - top]),
    bends: bends.map(points => points.map(([x, y]) => [x - left, y - top])),
    width: right - left,
    height: bottom - top
  };
}

/** Absolute positions, outermost group first. */
function place(groups: LayoutGroup[], layouts: GroupLayout[], sizes: Size[]): LayoutResult {
  const boxes: Box[] = sizes.map(([width, height]) => [0, 0, width, height]);
  const bends: LayoutResult["bends"] = [];
  for (let g = groups.length - 1; g >= 0; g--) {
    const { node, items, edges } = groups[g];
    const frame: Box = node < 0 ? [0, 0, 0, 0] : boxes[node];
    const left = frame[0] + (node < 0 ? 0 : Math.max(FRAME.side, (frame[2] - layouts[g].width) / 2));
    const top = frame[1] + (node < 0 ? 0 : FRAME.top);
    items.forEach((item, i) => {
      const [x, y] = layouts[g].corners[i];
      boxes[item] = [left + x, top + y, sizes[item][0], sizes[item][1]];
    });
    edges.forEach(([, , edge], k) => {
      const points = layouts[g].bends[k].map(([x, y]) => [left + x, top + y] as [number, number]);
      if (edge !== NO_EDGE && points.length > 0) {
        bends.push([edge, points]);
      }
    });
  }
  return { boxes, bends };
}
