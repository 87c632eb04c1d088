// Heights of the vertices of a row of layers, so that lines are straight where they can be (Brandes and Köpf 2002, with
// heights and pins as in Rüegg et al. 2016).

import { appendTo, type Layers } from "./layers";

const GAP = { items: 22, besideLine: 16, lines: 14 };

const MANY = 40_000; // vertices of one row: two passes have to do

/** The top of each vertex in `rows` (layers in order); others stay undefined. */
export function heightsOf(layers: Layers, rows: readonly (readonly number[])[]): Map<number, number> {
  const graph = rowGraph(layers, rows);
  const all = [true, false].flatMap(forward => [true, false].map(down => [forward, down]));
  const some = graph.ids.length > MANY ? [all[0], all[3]] : all;
  return balanced(
    graph,
    some.map(([forward, down]) => onePass(graph, forward, down))
  );
}

interface RowGraph {
  rows: number[][]; // of vertices 0 … count − 1
  ids: number[];
  height: number[];
  isLine: boolean[];
  before: Link[][]; // sorted by where they come from
  behind: Link[][];
}

interface Link {
  other: number;
  here: number; // pin on this vertex, from its top
  there: number;
  isInner: boolean; // between two points of a line
  isCrossed: boolean; // by such a one
}

function rowGraph(layers: Layers, rows: readonly (readonly number[])[]): RowGraph {
  const ids = rows.flat();
  const position = new Float64Array(ids.length);
  let next = 0;
  const numbered = rows.map(row =>
    row.map((_, at) => {
      position[next] = at;
      return next++;
    })
  );
  const isLine = ids.map(vertex => layers.item[vertex] < 0);
  const none: Link[] = [];
  const before: Link[][] = ids.map(() => none);
  const behind: Link[][] = ids.map(() => none);
  const placeOf = new Int32Array(layers.item.length).fill(-1);
  ids.forEach((vertex, at) => (placeOf[vertex] = at));
  ids.forEach((vertex, at) => {
    for (const link of layers.into[vertex]) {
      const { from, fromY, toY } = layers.segments[link];
      const other = placeOf[from];
      if (other < 0) continue;
      const isInner = isLine[at] && isLine[other];
      appendTo(before, at, { other, here: toY, there: fromY, isInner, isCrossed: false });
      appendTo(behind, other, { other: at, here: fromY, there: toY, isInner, isCrossed: false });
    }
  });
  const sort = (links: Link[]) => links.sort((a, b) => position[a.other] - position[b.other] || a.here - b.here);
  for (const links of [before, behind]) links.forEach(several => several.length > 1 && sort(several));
  const graph = {
    rows: numbered,
    ids,
    height: ids.map(vertex => layers.height[vertex]),
    isLine,
    before,
    behind
  };
  markCrossed(graph, position);
  return graph;
}

/** Links that cross a line between two of its points: the line stays straight. */
function markCrossed({ rows, before, behind }: RowGraph, position: Float64Array): void {
  for (let rank = 1; rank < rows.length; rank++) {
    const row = rows[rank];
    let [left, start] = [-1, 0];
    row.forEach((vertex, at) => {
      const inner = before[vertex].find(link => link.isInner);
      if (!inner && at < row.length - 1) return;
      const right = inner ? position[inner.other] : Infinity;
      for (; start <= at; start++) {
        for (const link of before[row[start]]) {
          const from = position[link.other];
          if (!link.isInner && (from < left || from > right)) {
            link.isCrossed = true;
            behind[link.other].filter(({ other }) => other === row[start]).forEach(twin => (twin.isCrossed = true));
          }
        }
      }
      left = right;
    });
  }
}

/** Tops of all vertices; `forward`: lined up with the layer before; `down`: packed towards the top. */
function onePass(graph: RowGraph, forward: boolean, down: boolean): Float64Array {
  const { root, shift } = aligned(graph, forward, down);
  return packed(graph, root, shift, down);
}

function aligned(graph: RowGraph, forward: boolean, down: boolean) {
  const count = graph.ids.length;
  const root = Int32Array.from({ length: count }, (_, vertex) => vertex);
  const shift = new Float64Array(count); // top of a vertex behind the top of its root
  const place = new Int32Array(count);
  graph.rows.forEach(row => row.forEach((vertex, at) => (place[vertex] = at)));
  const taken = new Uint8Array(count); // something is lined up with it on this side
  const rows = forward ? graph.rows : [...graph.rows].reverse();
  const [links, opposite] = forward ? [graph.before, graph.behind] : [graph.behind, graph.before];
  const goesOn = opposite.map(near => near.some(({ isInner }) => isInner)); // as a line: nothing else may be level with it
  for (const row of rows.slice(1)) {
    let limit = down ? -1 : Infinity;
    for (const vertex of down ? row : [...row].reverse()) {
      const inner = links[vertex].find(({ isInner }) => isInner);
      const near = inner ? [inner] : links[vertex];
      if (near.length === 0) continue;
      const [low, high] = [(near.length - 1) >> 1, near.length >> 1];
      for (const link of down ? [near[low], near[high]] : [near[high], near[low]]) {
        const at = place[link.other];
        const isFree = (down ? at > limit : at < limit) && (link.isInner || !goesOn[link.other]);
        if (root[vertex] === vertex && !link.isCrossed && isFree && !taken[link.other]) {
          taken[link.other] = 1;
          root[vertex] = root[link.other];
          shift[vertex] = shift[link.other] + link.there - link.here;
          limit = at;
        }
      }
    }
  }
  return { root, shift };
}

/** Which blocks stand below which, and how far at least. */
class Stacks {
  private readonly first: Int32Array; // of each block: of its places in `to` and `room`
  private readonly to: Int32Array;
  private readonly room: Float64Array;
  readonly order: Int32Array; // of the blocks, from top to bottom

  constructor(graph: RowGraph, root: Int32Array, shift: Float64Array) {
    const { rows, height } = graph;
    const count = root.length;
    const waiting = new Int32Array(count);
    const first = new Int32Array(count + 1);
    for (const row of rows) {
      for (let at = 1; at < row.length; at++) {
        first[root[row[at - 1]] + 1]++;
        waiting[root[row[at]]]++;
      }
    }
    for (let block = 0; block < count; block++) first[block + 1] += first[block];
    this.first = first;
    this.to = new Int32Array(first[count]);
    this.room = new Float64Array(first[count]);
    const next = first.slice();
    for (const row of rows) {
      for (let at = 1; at < row.length; at++) {
        const [upper, lower] = [row[at - 1], row[at]];
        const place = next[root[upper]]++;
        this.to[place] = root[lower];
        this.room[place] = shift[upper] + height[upper] + gapBetween(graph, upper, lower) - shift[lower];
      }
    }
    this.order = this.sorted(root, waiting);
  }

  private sorted(root: Int32Array, waiting: Int32Array): Int32Array {
    const order = new Int32Array(root.length);
    let [done, found] = [0, 0];
    root.forEach((above, block) => {
      if (above === block && waiting[block] === 0) order[found++] = block;
    });
    while (done < found) {
      this.below(order[done++], to => {
        if (--waiting[to] === 0) order[found++] = to;
      });
    }
    return order.subarray(0, found);
  }

  below(block: number, each: (to: number, room: number) => void): void {
    for (let at = this.first[block]; at < this.first[block + 1]; at++) each(this.to[at], this.room[at]);
  }
}

/** Blocks as near to the top (or bottom) as their order allows, then drawn together. */
function packed(graph: RowGraph, root: Int32Array, shift: Float64Array, down: boolean): Float64Array {
  const stacks = new Stacks(graph, root, shift);
  const { order } = stacks;
  const upwards = order.slice().reverse();
  const top = new Float64Array(root.length);
  const bound = new Float64Array(root.length).fill(down ? Infinity : -Infinity);
  if (down) {
    for (const block of order) stacks.below(block, (to, room) => (top[to] = Math.max(top[to], top[block] + room)));
    for (const block of upwards) {
      stacks.below(block, (to, room) => (bound[block] = Math.min(bound[block], top[to] - room)));
      if (bound[block] < Infinity) top[block] = Math.max(top[block], bound[block]);
    }
  } else {
    for (const block of upwards) {
      stacks.below(block, (to, room) => (top[block] = Math.min(top[block], top[to] - room)));
    }
    for (const block of order) {
      if (bound[block] > -Infinity) top[block] = Math.min(top[block], bound[block]);
      stacks.below(block, (to, room) => (bound[to] = Math.max(bound[to], top[block] + room)));
    }
  }
  return top.map((_, vertex) => top[root[vertex]] + shift[vertex]);
}

function gapBetween({ isLine }: RowGraph, upper: number, lower: number): number {
  return isLine[upper] && isLine[lower] ? GAP.lines : isLine[upper] || isLine[lower] ? GAP.besideLine : GAP.items;
}

/** Of the passes, lined up with the smallest, the mean; of four that of the two in the middle. */
function balanced(graph: RowGraph, passes: Float64Array[]): Map<number, number> {
  const extents = passes.map(tops => {
    const bottom = tops.reduce((most, y, vertex) => Math.max(most, y + graph.height[vertex]), -Infinity);
    const top = tops.reduce((least, y) => Math.min(least, y), Infinity);
    return { top, bottom, size: bottom - top };
  });
  const best = extents.reduce((a, b) => (b.size < a.size ? b : a));
  const moved = passes.map((tops, pass) => {
    const isDown = pass % 2 === 0;
    const by = isDown ? best.top - extents[pass].top : best.bottom - extents[pass].bottom;
    return tops.map(y => y + by);
  });
  const found = new Map<number, number>();
  graph.ids.forEach((vertex, at) => {
    let [sum, least, most] = [0, Infinity, -Infinity];
    for (const tops of moved) {
      sum += tops[at];
      least = Math.min(least, tops[at]);
      most = Math.max(most, tops[at]);
    }
    found.set(vertex, moved.length > 2 ? (sum - least - most) / (moved.length - 2) : sum / moved.length);
  });
  return found;
}
