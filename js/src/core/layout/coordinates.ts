// Heights of the vertices of a row of layers, so that lines are straight where they can be (Brandes and Köpf 2002, with
// heights and pins as in Rüegg et al. 2016).

import type { Layers } from "./layers";

const GAP = { items: 22, besideLine: 16, lines: 14 };

/** The top of each vertex in `rows` (layers in order); others stay undefined. */
export function heightsOf(layers: Layers, rows: readonly (readonly number[])[]): Map<number, number> {
  const graph = rowGraph(layers, rows);
  const passes = [true, false].flatMap(forward => [true, false].map(down => onePass(graph, forward, down)));
  return balanced(graph, passes);
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
  const place = new Map(ids.map((vertex, at) => [vertex, at]));
  const position = new Float64Array(ids.length);
  rows.forEach(row => row.forEach((vertex, at) => (position[place.get(vertex) ?? 0] = at)));
  const isLine = ids.map(vertex => layers.item[vertex] < 0);
  const before: Link[][] = ids.map(() => []);
  const behind: Link[][] = ids.map(() => []);
  ids.forEach((vertex, at) => {
    for (const link of layers.into[vertex]) {
      const { from, fromY, toY } = layers.segments[link];
      const other = place.get(from);
      if (other === undefined) continue;
      const isInner = isLine[at] && isLine[other];
      before[at].push({ other, here: toY, there: fromY, isInner, isCrossed: false });
      behind[other].push({ other: at, here: fromY, there: toY, isInner, isCrossed: false });
    }
  });
  const sort = (links: Link[]) => links.sort((a, b) => position[a.other] - position[b.other] || a.here - b.here);
  [...before, ...behind].forEach(sort);
  const graph = {
    rows: rows.map(row => row.map(vertex => place.get(vertex) ?? 0)),
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
  const links = forward ? graph.before : graph.behind;
  for (const row of rows.slice(1)) {
    let limit = down ? -1 : Infinity;
    for (const vertex of down ? row : [...row].reverse()) {
      const near = links[vertex];
      if (near.length === 0) continue;
      const [low, high] = [(near.length - 1) >> 1, near.length >> 1];
      for (const link of down ? [near[low], near[high]] : [near[high], near[low]]) {
        const at = place[link.other];
        const isFree = down ? at > limit : at < limit;
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

/** Blocks as near to the top (or bottom) as their order allows, then drawn together. */
function packed(graph: RowGraph, root: Int32Array, shift: Float64Array, down: boolean): Float64Array {
  const count = root.length;
  const next: { to: number; room: number }[][] = Array.from({ length: count }, () => []);
  const before: { to: number; room: number }[][] = Array.from({ length: count }, () => []);
  const waiting = new Int32Array(count);
  for (const row of graph.rows) {
    for (let at = 1; at < row.length; at++) {
      const [upper, lower] = [row[at - 1], row[at]];
      const room = shift[upper] + graph.height[upper] + gapBetween(graph, upper, lower) - shift[lower];
      next[root[upper]].push({ to: root[lower], room });
      before[root[lower]].push({ to: root[upper], room });
      waiting[root[lower]]++;
    }
  }
  const order: number[] = [];
  const ready = Array.from(root.keys()).filter(vertex => root[vertex] === vertex && waiting[vertex] === 0);
  for (let block = ready.pop(); block !== undefined; block = ready.pop()) {
    order.push(block);
    for (const { to } of next[block]) if (--waiting[to] === 0) ready.push(to);
  }
  const top = new Float64Array(count);
  if (down) {
    for (const block of order) top[block] = before[block].reduce((y, { to, room }) => Math.max(y, top[to] + room), 0);
    for (const block of [...order].reverse()) {
      const room = next[block].reduce((y, link) => Math.min(y, top[link.to] - link.room), Infinity);
      if (room < Infinity) top[block] = Math.max(top[block], room);
    }
  } else {
    for (const block of [...order].reverse()) {
      top[block] = next[block].reduce((y, { to, room }) => Math.min(y, top[to] - room), 0);
    }
    for (const block of order) {
      const room = before[block].reduce((y, link) => Math.max(y, top[link.to] + link.room), -Infinity);
      if (room > -Infinity) top[block] = Math.min(top[block], room);
    }
  }
  return Float64Array.from(root, (block, vertex) => top[block] + shift[vertex]);
}

function gapBetween({ isLine }: RowGraph, upper: number, lower: number): number {
  return isLine[upper] && isLine[lower] ? GAP.lines : isLine[upper] || isLine[lower] ? GAP.besideLine : GAP.items;
}

/** Of the four passes, lined up with the smallest, the mean of the two in the middle. */
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
    const four = moved.map(tops => tops[at]).sort((a, b) => a - b);
    found.set(vertex, (four[1] + four[2]) / 2);
  });
  return found;
}
