// Items and the points at which lines pass the columns between their ends, as layers that only neighbours connect.

import type { Bundle } from "./channels";
import { BORDER, type Drawing, type Pin } from "./types";

const MOST_PINS = 6; // nets that a card shows one by one on its side; more come together before it

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
      const known = found.get(item);
      if (known) known.push(net);
      else found.set(item, [net]);
    })
  );
  found.forEach((several, item) => several.length <= MOST_PINS && found.delete(item));
  return found;
}

const NONE: never[] = [];

/** Most vertices have one link on each side: a list that is made for it is a tenth of one that grows. */
export function append<T>(lists: T[][], at: number, value: T): void {
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
    append(this.outOf, from, this.segments.length);
    append(this.into, to, this.segments.length);
    this.segments.push(segment);
    return segment;
  }
}
