// Layers of a drawing: the column of each item, points at which lines pass in between, and an order of few crossings.

import type { Bundle } from "./channels";
import { BORDER, type Drawing, type Pin } from "./types";
import { push } from "../shared/base/multimap";

// Which column each item stands in: behind all that it reads.

export interface Arc {
  from: number;
  to: number;
}

/** The arcs between items, once each. */
export function arcsOf({ nets, items }: Drawing): Arc[] {
  const seen = new Set<number>();
  const arcs: Arc[] = [];
  for (const { start, ends } of nets) {
    for (const { item } of ends) {
      const key = start.item * items.length + item;
      if (start.item !== BORDER && item !== BORDER && start.item !== item && !seen.has(key)) {
        seen.add(key);
        arcs.push({ from: start.item, to: item });
      }
    }
  }
  return arcs;
}

/** Whether an arc leads back: within a cycle, from a later item to an earlier one, in an order with few of these. */
export function backward(count: number, arcs: readonly Arc[]): (from: number, to: number) => boolean {
  const component = components(count, arcs);
  const inCycles = arcs.filter(({ from, to }) => component[from] === component[to]);
  const place = inCycles.length > 0 ? sift(count, inCycles) : [];
  return (from, to) => component[from] === component[to] && (from === to || place[from] > place[to]);
}

/** The place of each item: in the order of time, but that of a cycle where fewer arcs lead back. */
function sift(count: number, arcs: readonly Arc[]): number[] {
  const order = Array.from({ length: count }, (_, item) => item);
  const place = [...order];
  const before: number[][] = order.map(() => []);
  const behind: number[][] = order.map(() => []);
  arcs.forEach(({ from, to }) => {
    behind[from].push(to);
    before[to].push(from);
  });
  for (const item of [...order]) {
    const at = place[item];
    const gains = new Map<number, number>(); // of passing a place: two items may have arcs both ways
    const add = (gain: number) => (other: number) => gains.set(place[other], (gains.get(place[other]) ?? 0) + gain);
    before[item].forEach(add(1));
    behind[item].forEach(add(-1));
    const passed = [...gains].sort(([a], [b]) => Math.abs(a - at) - Math.abs(b - at));
    let [best, to] = [0, at];
    for (const step of [1, -1]) {
      let sum = 0;
      for (const [other, gain] of passed) {
        if (step * (other - at) <= 0) continue;
        sum += step * gain;
        if (sum > best) [best, to] = [sum, other];
      }
    }
    if (to === at) continue;
    order.splice(at, 1);
    order.splice(to, 0, item);
    for (let moved = Math.min(at, to); moved <= Math.max(at, to); moved++) place[order[moved]] = moved;
  }
  return place;
}

/** The number of the strongly connected component of each item (Tarjan, without recursion). */
function components(count: number, arcs: readonly Arc[]): Int32Array {
  const next = successors(count, arcs);
  const index = new Int32Array(count).fill(-1);
  const low = new Int32Array(count);
  const component = new Int32Array(count).fill(-1);
  const at = new Int32Array(count);
  const stack: number[] = [];
  let [clock, found] = [0, 0];
  for (let root = 0; root < count; root++) {
    const path = index[root] < 0 ? [root] : [];
    while (path.length > 0) {
      const node = path[path.length - 1];
      if (index[node] < 0) {
        index[node] = low[node] = clock++;
        stack.push(node);
      }
      if (at[node] < next[node].length) {
        const to = next[node][at[node]++];
        if (index[to] < 0) path.push(to);
        else if (component[to] < 0) low[node] = Math.min(low[node], index[to]);
        continue;
      }
      path.pop();
      const above = path[path.length - 1];
      if (above !== undefined) low[above] = Math.min(low[above], low[node]);
      if (low[node] === index[node]) {
        for (let member = stack.pop(); member !== undefined; member = stack.pop()) {
          component[member] = found;
          if (member === node) break;
        }
        found++;
      }
    }
  }
  return component;
}

function successors(count: number, arcs: readonly Arc[]): number[][] {
  const next: number[][] = Array.from({ length: count }, () => []);
  arcs.forEach(({ from, to }) => next[from].push(to));
  return next;
}

/** The longest way to each item; what reads nothing stands just before its first reader. `arcs` have no cycle. */
export function ranksOf(count: number, arcs: readonly Arc[]): number[] {
  const next = successors(count, arcs);
  const waiting = new Int32Array(count);
  arcs.forEach(({ to }) => waiting[to]++);
  const isSource = Array.from(waiting, left => left === 0);
  const ranks = new Array<number>(count).fill(0);
  const ready = ranks.map((_, item) => item).filter(item => isSource[item]);
  for (let item = ready.pop(); item !== undefined; item = ready.pop()) {
    for (const to of next[item]) {
      ranks[to] = Math.max(ranks[to], ranks[item] + 1);
      if (--waiting[to] === 0) ready.push(to);
    }
  }
  ranks.forEach((_, item) => {
    if (isSource[item] && item > 0 && next[item].length > 0) {
      ranks[item] = Math.max(0, Math.min(...next[item].map(to => ranks[to])) - 1);
    }
  });
  return ranks;
}

const MAX_PINS = 6; // nets that a card shows one by one on its side; more come together before it

export interface Segment {
  from: number; // vertices of neighbouring layers
  to: number;
  fromY: number; // from the top of the vertex; NaN until there is an order
  toY: number;
  isJoint: boolean; // several nets come together in it
  bundle?: Bundle; // where it changes its height
}

export interface BackEdge {
  net: number;
  end: number;
}

/** Cards that very many nets end at, with these: they come together before the card. */
export type Joints = ReadonlyMap<number, readonly number[]>;

export function jointsOf({ nets }: Drawing, isBack: (from: number, to: number) => boolean): Joints {
  const found = new Map<number, number[]>();
  nets.forEach(({ start, ends }, net) =>
    ends.forEach(({ item, y }) => {
      if (item === BORDER || !Number.isNaN(y) || (start.item !== BORDER && isBack(start.item, item))) return;
      push(found, item, net);
    })
  );
  found.forEach((several, item) => several.length <= MAX_PINS && found.delete(item));
  return found;
}

const NONE: never[] = [];

/** Most vertices have one link on each side: a list that is made for it is a tenth of one that grows. */
export function appendTo<T>(lists: T[][], at: number, value: T): void {
  if (lists[at].length === 0) lists[at] = [value];
  else lists[at].push(value);
}

/** Paths lead over segments; of a net that leads back there is none. */
export class Layers {
  readonly item: number[] = []; // of each vertex, or -1 where a line passes
  readonly rank: number[] = [];
  readonly height: number[] = [];
  readonly layers: number[][] = [];
  readonly segments: Segment[] = [];
  readonly into: number[][] = []; // segments, by vertex
  readonly outOf: number[][] = [];
  readonly paths: (Segment[] | null)[][] = []; // of each net and each of its ends
  readonly entries = new Map<number, number>(); // net -> vertex on the left border
  readonly exits = new Map<number, number>(); // net -> vertex on the right border

  constructor(
    private readonly drawing: Drawing,
    ranks: readonly number[], // of the items
    private readonly count: number, // of layers
    private readonly isBack: (from: number, to: number) => boolean,
    joints: Joints
  ) {
    for (let rank = 0; rank < count; rank++) this.layers.push([]);
    drawing.items.forEach(([, height], item) => this.add(item, ranks[item], height));
    this.addPorts();
    drawing.nets.forEach((_, net) => this.addNet(net, joints));
    joints.forEach((nets, item) => this.addJoint(item, nets));
  }

  startOf(net: number): number {
    const { item } = this.drawing.nets[net].start;
    return item === BORDER ? (this.entries.get(net) ?? -1) : item;
  }

  private add(item: number, rank: number, height: number): number {
    const vertex = this.item.length;
    this.item.push(item);
    this.rank.push(rank);
    this.height.push(height);
    this.into.push(NONE);
    this.outOf.push(NONE);
    this.layers[rank].push(vertex);
    return vertex;
  }

  private addPorts(): void {
    this.drawing.nets.forEach(({ start, ends }, net) => {
      if (start.item === BORDER) this.entries.set(net, this.add(-1, 0, 0));
      if (ends.some(({ item }) => item === BORDER)) this.exits.set(net, this.add(-1, this.count - 1, 0));
    });
  }

  private leadsBack({ item: from }: Pin, to: number): boolean {
    return from !== BORDER && to !== BORDER && this.isBack(from, to);
  }

  private addNet(net: number, joints: Joints): void {
    const { start, ends } = this.drawing.nets[net];
    const from = this.startOf(net);
    const plain = ends.map(({ item }) => !this.leadsBack(start, item) && !(joints.has(item) && item !== BORDER));
    const targets = ends.map(({ item }) => (item === BORDER ? (this.exits.get(net) ?? -1) : item));
    const last = Math.max(...targets.map((to, end) => (plain[end] ? this.rank[to] : -1)));
    const trunk: Segment[] = [];
    let [at, y] = [from, start.y];
    for (let rank = this.rank[from] + 1; rank < last; rank++) {
      const vertex = this.add(-1, rank, 0);
      trunk.push(this.link(at, vertex, y, 0, false));
      [at, y] = [vertex, 0];
    }
    this.paths.push(
      targets.map((to, end) => {
        if (!plain[end]) return null;
        const way = trunk.slice(0, this.rank[to] - this.rank[from] - 1);
        const toY = ends[end].item === BORDER ? 0 : ends[end].y;
        const before = way.length > 0 ? way[way.length - 1].to : from;
        way.push(this.link(before, to, way.length > 0 ? 0 : start.y, toY, false));
        return way;
      })
    );
  }

  private addJoint(item: number, nets: readonly number[]): void {
    const first = Math.min(...nets.map(net => this.rank[this.startOf(net)]));
    const vertices: number[] = [];
    for (let rank = first + 1; rank < this.rank[item]; rank++) vertices.push(this.add(-1, rank, 0));
    const middle = this.height[item] / 2;
    const common = vertices.map((vertex, at) => {
      const isLast = at === vertices.length - 1;
      return this.link(vertex, isLast ? item : vertices[at + 1], 0, isLast ? middle : 0, true);
    });
    for (const net of nets) {
      const { start, ends } = this.drawing.nets[net];
      const from = this.startOf(net);
      const behind = common.slice(this.rank[from] - first);
      const to = behind.length > 0 ? behind[0].from : item;
      const path = [this.link(from, to, start.y, behind.length > 0 ? 0 : middle, true), ...behind];
      ends.forEach((end, k) => {
        if (end.item === item) this.paths[net][k] = path;
      });
    }
  }

  /** The segment between two vertices of neighbouring layers: one where there is one already. */
  private link(from: number, to: number, fromY: number, toY: number, isJoint: boolean): Segment {
    const y = this.item[from] < 0 ? 0 : Number.isNaN(fromY) ? this.height[from] / 2 : fromY;
    for (const link of this.outOf[from]) {
      const known = this.segments[link];
      if (known.to === to && known.fromY === y) return known;
    }
    const segment: Segment = { from, to, fromY: y, toY, isJoint, bundle: undefined };
    appendTo(this.outOf, from, this.segments.length);
    appendTo(this.into, to, this.segments.length);
    this.segments.push(segment);
    return segment;
  }
}

// The order within each layer that has few crossings: barycenters, swept forth and back.

const SWEEPS = 8;
const MAX_WORK = 400_000; // segments times sweeps; beyond it fewer sweeps have to do

export function orderLayers(layers: Layers): void {
  const order = new Order(layers);
  const sweeps = Math.max(2, Math.min(SWEEPS, Math.floor(MAX_WORK / (layers.segments.length + 1))));
  order.arrange(true);
  let best = { crossings: order.crossings(Infinity), layers: copy(layers.layers) };
  for (let sweep = 0; sweep < sweeps && best.crossings > 0; sweep++) {
    order.arrange(sweep % 2 === 1);
    const crossings = order.crossings(best.crossings);
    if (crossings < best.crossings) best = { crossings, layers: copy(layers.layers) };
  }
  best.layers.forEach((layer, rank) => (layers.layers[rank] = layer));
}

const copy = (layers: readonly number[][]): number[][] => layers.map(layer => [...layer]);

class Order {
  private readonly at: Float64Array; // place of each vertex in its layer
  private readonly place: Float64Array; // that it wants, or NaN
  private readonly from: Float64Array; // of each segment: the share of its vertex's height
  private readonly to: Float64Array;
  private readonly toY: Float64Array;

  constructor(private readonly layers: Layers) {
    const { item, segments, height } = layers;
    this.at = new Float64Array(item.length);
    this.place = new Float64Array(item.length);
    this.from = Float64Array.from(segments, ({ from, fromY }) => share(fromY, height[from]));
    this.to = Float64Array.from(segments, ({ to, toY }) => share(toY, height[to]));
    this.toY = Float64Array.from(segments, ({ toY }) => (Number.isNaN(toY) ? 0 : toY));
    layers.layers.forEach(layer => this.number(layer));
  }

  /** One sweep: every layer by what it is linked to in the layer before, or behind it. */
  arrange(forward: boolean): void {
    const { layers } = this.layers;
    const last = layers.length - 1;
    for (let i = 1; i <= last; i++) {
      const layer = layers[forward ? i : last - i];
      for (const vertex of layer) this.place[vertex] = this.wanted(vertex, forward);
      this.sort(layer);
      this.number(layer);
    }
  }

  /** Counted no further than `most`. */
  crossings(most: number): number {
    let sum = 0;
    for (const layer of this.layers.layers.slice(1)) {
      sum += this.crossingsInto(layer);
      if (sum >= most) break;
    }
    return sum;
  }

  /** The mean place of its neighbours; NaN without any. */
  private wanted(vertex: number, forward: boolean): number {
    const { into, outOf, segments } = this.layers;
    const links = (forward ? into : outOf)[vertex];
    let sum = 0;
    for (const link of links) {
      sum += forward ? this.at[segments[link].from] + this.from[link] : this.at[segments[link].to] + this.to[link];
    }
    return sum / links.length;
  }

  /** Those that want nothing stay where they are, the others are sorted around them. */
  private sort(layer: number[]): void {
    const { place, at } = this;
    const moving = layer.filter(vertex => !Number.isNaN(place[vertex]));
    moving.sort((a, b) => place[a] - place[b] || at[a] - at[b]);
    let next = 0;
    layer.forEach((vertex, k) => {
      if (!Number.isNaN(place[vertex])) layer[k] = moving[next++];
    });
  }

  private number(layer: readonly number[]): void {
    layer.forEach((vertex, place) => (this.at[vertex] = place));
  }

  private crossingsInto(layer: readonly number[]): number {
    const { into, segments } = this.layers;
    const starts: number[] = [];
    const startOf = (link: number) => this.at[segments[link].from] + this.from[link];
    for (const vertex of layer) {
      const links = into[vertex];
      if (links.length === 1) {
        starts.push(startOf(links[0]));
      } else {
        const here = links.map(link => ({ start: startOf(link), y: this.toY[link] }));
        here.sort((a, b) => a.y - b.y || a.start - b.start);
        here.forEach(({ start }) => starts.push(start));
      }
    }
    return inversions(Float64Array.from(starts), new Float64Array(starts.length), 0, starts.length);
  }
}

/** How far down the side of a vertex, from -0.4 to 0.4. */
function share(y: number, height: number): number {
  return height > 0 && !Number.isNaN(y) ? 0.8 * (y / height - 0.5) : 0;
}

/** Pairs in the wrong order (merge sort of `values` from `start` to `end`). */
function inversions(values: Float64Array, spare: Float64Array, start: number, end: number): number {
  if (end - start < 2) return 0;
  const middle = (start + end) >> 1;
  let count = inversions(values, spare, start, middle) + inversions(values, spare, middle, end);
  if (values[middle - 1] <= values[middle]) return count;
  let [i, j] = [start, middle];
  for (let k = start; k < end; k++) {
    if (j >= end || (i < middle && values[i] <= values[j])) {
      spare[k] = values[i++];
    } else {
      spare[k] = values[j++];
      count += middle - i;
    }
  }
  values.set(spare.subarray(start, end), start);
  return count;
}
