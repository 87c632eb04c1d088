// Layout of U-shaped models (encoder and decoder with skip connections): down on the left, up on the right.

import type { Arc } from "./layers";
import { BORDER, type Drawing, type RoutedNet, type GroupLayout, type Line } from "./types";
import type { Point } from "../shared/stage/viewport";

const GAP = 34; // between cards
const AROUND_LABEL = 26;
const GUTTER = 40; // between rows
const TURN = 14; // from the end of a row to the line that leaves it
const MIDDLE = 70; // the least room between the two sides
const MIN_SKIPS = 2; // skips

interface Skip {
  from: number; // places in the chain
  to: number;
}

/** Null where the drawing is no chain with lines that skip ever less of it. */
export function uLayout(drawing: Drawing, ranks: readonly number[], arcs: readonly Arc[]): GroupLayout | null {
  const chain = chainOf(drawing, ranks);
  const skips = chain && nestedSkips(chain, arcs);
  return skips && isClosed(drawing, chain) ? new UGeometry(drawing, chain, skips).layout() : null;
}

/** The items in order, if each has a column of its own. */
function chainOf({ items }: Drawing, ranks: readonly number[]): number[] | null {
  const chain: number[] = [];
  items.forEach((_, item) => (chain[ranks[item]] = item));
  return chain.length === items.length && !chain.includes(undefined as never) ? chain : null;
}

/** The skips from the outermost to the innermost; null where others than these and the steps of the chain lead on. */
function nestedSkips(chain: readonly number[], arcs: readonly Arc[]): Skip[] | null {
  const place = new Map(chain.map((item, at) => [item, at]));
  const all = arcs.map(({ from, to }) => ({ from: place.get(from) ?? 0, to: place.get(to) ?? 0 }));
  const steps = new Set(all.filter(({ from, to }) => to === from + 1).map(({ from }) => from));
  const skips = all.filter(({ from, to }) => to > from + 1).sort((a, b) => a.from - b.from);
  const isNested = skips.every(({ from, to }, at) => at === 0 || (from > skips[at - 1].from && to < skips[at - 1].to));
  return skips.length >= MIN_SKIPS && steps.size === chain.length - 1 && isNested ? skips : null;
}

/** Whether lines pass the border at the ends of the chain alone. */
function isClosed({ nets }: Drawing, chain: readonly number[]): boolean {
  const [first, last] = [chain[0], chain[chain.length - 1]];
  return nets.every(({ start, ends }) =>
    start.item === BORDER
      ? ends.every(({ item }) => item === first)
      : ends.every(({ item }) => item !== BORDER || start.item === last)
  );
}

interface Row {
  from: number; // places in the chain
  to: number; // behind the last
  x: number;
  y: number; // top
  bottom: number;
  width: number;
}

class UGeometry {
  private readonly place: Map<number, number>;
  private readonly corners: [number, number][];
  private readonly out: (RoutedNet | undefined)[]; // of each item
  private readonly skipInto = new Map<number, number>(); // item -> item
  private readonly left: Row[];
  private readonly right: Row[];
  private readonly bottom: Row;

  constructor(
    private readonly drawing: Drawing,
    private readonly chain: readonly number[],
    skips: readonly Skip[]
  ) {
    const { items, nets } = drawing;
    this.place = new Map(chain.map((item, at) => [item, at]));
    this.corners = items.map(() => [0, 0]);
    this.out = items.map((_, item) => nets.find(({ start }) => start.item === item));
    skips.forEach(({ from, to }) => this.skipInto.set(chain[to], chain[from]));
    const row = (from: number, to: number): Row => ({ from, to, x: 0, y: 0, bottom: 0, width: this.widthOf(from, to) });
    this.left = skips.map(({ from }, at) => row(at === 0 ? 0 : skips[at - 1].from + 1, from + 1));
    this.right = skips.map(({ to }, at) => row(to, at === 0 ? chain.length : skips[at - 1].to));
    const innermost = skips[skips.length - 1];
    this.bottom = row(innermost.from + 1, innermost.to);
    this.placeAll();
  }

  layout(): GroupLayout {
    const { nets } = this.drawing;
    const lines = nets.map(net => net.ends.map(({ item }) => this.line(net, item)));
    const labels = nets.map(({ start, label }) => {
      if (start.item === BORDER || label === 0) return null;
      return [this.rightOf(start.item) + 3 + label / 2, this.outY(start.item)] as Point;
    });
    const starts = nets.map(({ start, ends }) => (start.item === BORDER ? this.inY(ends[0].item, false) : NaN));
    const exits = nets.map(({ start, ends }) =>
      start.item !== BORDER && ends.some(({ item }) => item === BORDER) ? this.outY(start.item) : NaN
    );
    const [top, bottom] = [
      Math.min(...this.corners.map(([, y]) => y)),
      Math.max(...this.corners.map(([, y], item) => y + this.drawing.items[item][1]))
    ];
    const xs = [...this.corners.map(([x], item) => x + this.drawing.items[item][0]), ...lines.flat(2).map(([x]) => x)];
    const down = ([x, y]: Point): Point => [x, y - top];
    return {
      corners: this.corners.map(down),
      lines: lines.map(ends => ends.map(line => line.map(down))),
      labels: labels.map(label => label && down(label)),
      starts: starts.map(y => y - top),
      exits: exits.map(y => y - top),
      below: [],
      width: Math.max(...xs),
      height: bottom - top
    };
  }

  private gapBehind(item: number): number {
    const label = this.out[item]?.label ?? 0;
    return Math.max(GAP, label > 0 ? label + AROUND_LABEL : 0);
  }

  private widthOf(from: number, to: number): number {
    const inside = this.chain.slice(from, to);
    const gaps = inside.slice(0, -1).reduce((sum, item) => sum + this.gapBehind(item), 0);
    return inside.reduce((sum, item) => sum + this.drawing.items[item][0], gaps);
  }

  private placeAll(): void {
    const { left, right, bottom, chain } = this;
    const widest = Math.max(...left.map(({ width }) => width));
    const labels = left.map(({ to }) => this.gapBehind(chain[to - 1]));
    const middle = Math.max(MIDDLE, ...labels.map(gap => gap + 2 * TURN));
    const start = TURN * 2;
    let y = 0;
    left.forEach((row, at) => {
      row.x = start + widest - row.width; // skips begin below each other
      right[at].x = start + widest + middle;
      this.placeRow(row, y);
      this.placeRow(right[at], y);
      this.level(row, right[at]);
      y = Math.max(row.bottom, right[at].bottom) + GUTTER;
    });
    bottom.x = Math.max(start, start + widest + middle / 2 - bottom.width / 2);
    this.placeRow(bottom, y);
  }

  /** Each card so that the line that comes to it is straight. */
  private placeRow(row: Row, y: number): void {
    let x = row.x;
    let line = NaN;
    const items = this.chain.slice(row.from, row.to);
    for (const item of items) {
      const [width] = this.drawing.items[item];
      const top = Number.isNaN(line) ? 0 : line - this.pinIn(item, false);
      this.corners[item] = [x, top];
      line = top + this.pinOut(item);
      x += width + this.gapBehind(item);
    }
    const least = Math.min(...items.map(item => this.corners[item][1]));
    items.forEach(item => (this.corners[item][1] += y - least));
    this.measure(row);
  }

  private measure(row: Row): void {
    const items = this.chain.slice(row.from, row.to);
    row.y = Math.min(...items.map(item => this.corners[item][1]));
    row.bottom = Math.max(...items.map(item => this.corners[item][1] + this.drawing.items[item][1]));
  }

  /** The lower of the two sides stays, so that the skip between them is straight. */
  private level(left: Row, right: Row): void {
    const [from, to] = [this.chain[left.to - 1], this.chain[right.from]];
    const by = this.outY(from) - this.inY(to, true);
    const row = by > 0 ? right : left;
    this.chain.slice(row.from, row.to).forEach(item => (this.corners[item][1] += Math.abs(by)));
    this.measure(row);
  }

  private pinOut(item: number): number {
    const y = this.out[item]?.start.y ?? NaN;
    return Number.isNaN(y) ? this.drawing.items[item][1] / 2 : y;
  }

  /** A card that a skip comes to has two pins: the upper one is the skip's. */
  private pinIn(item: number, isSkip: boolean): number {
    const source = isSkip ? this.skipInto.get(item) : this.chain[(this.place.get(item) ?? 0) - 1];
    const given = this.drawing.nets.find(({ start }) => start.item === (source ?? BORDER));
    const y = given?.ends.find(end => end.item === item)?.y ?? NaN;
    const height = this.drawing.items[item][1];
    return Number.isNaN(y) ? (this.skipInto.has(item) ? (height * (isSkip ? 1 : 2)) / 3 : height / 2) : y;
  }

  private outY(item: number): number {
    return this.corners[item][1] + this.pinOut(item);
  }

  private inY(item: number, isSkip: boolean): number {
    return this.corners[item][1] + this.pinIn(item, isSkip);
  }

  private rightOf(item: number): number {
    return this.corners[item][0] + this.drawing.items[item][0];
  }

  private line({ start, ends }: RoutedNet, to: number): Line {
    if (start.item === BORDER) {
      const [x] = this.corners[ends[0].item];
      const y = this.inY(to, false);
      return [
        [0, y],
        [x, y]
      ];
    }
    const from = [this.rightOf(start.item), this.outY(start.item)] as Point;
    if (to === BORDER) return [from, [from[0] + GAP, from[1]]];
    const isSkip = this.skipInto.get(to) === start.item;
    const end = [this.corners[to][0], this.inY(to, isSkip)] as Point;
    return isSkip || this.rowOf(start.item) === this.rowOf(to) ? bent(from, end) : this.turn(from, end, start.item, to);
  }

  private rowOf(item: number): Row {
    const at = this.place.get(item) ?? 0;
    return [...this.left, ...this.right].find(({ from, to }) => at >= from && at < to) ?? this.bottom;
  }

  /** From the end of a row to the beginning of the one below, or above. */
  private turn(from: Point, end: Point, source: number, target: number): Line {
    const [row, next] = [this.rowOf(source), this.rowOf(target)];
    const label = this.out[source]?.label ?? 0;
    const x = from[0] + (label > 0 ? label + 6 : 0) + TURN;
    const isDown = next.y > row.y;
    const upper = isDown ? row : next;
    const other = [...this.left, ...this.right].find(one => one !== upper && this.isBeside(one, upper));
    const y = Math.max(upper.bottom, other?.bottom ?? 0) + GUTTER / 2;
    return [from, [x, from[1]], [x, y], [end[0] - TURN, y], [end[0] - TURN, end[1]], end];
  }

  private isBeside(a: Row, b: Row): boolean {
    return this.left.some((row, at) => (row === a && this.right[at] === b) || (row === b && this.right[at] === a));
  }
}

/** Straight where it can be. */
function bent(from: Point, end: Point): Line {
  if (Math.abs(from[1] - end[1]) < 0.5) return [from, [end[0], from[1]]];
  const x = end[0] - 2 * TURN;
  return [from, [x, from[1]], [x, end[1]], end];
}
