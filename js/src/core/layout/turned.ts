// Drawings from top to bottom: those from left to right with both axes exchanged. Lines still enter and leave frames at
// their sides, below what is written on top of them.

import { settled, straightened } from "./geometry";
import { BORDER, type Drawing, type GroupLayout, type Line, type Pin, type Room, type RoutedNet } from "./types";
import type { Point } from "../shared/stage/viewport";

const TRACK = 10; // between lines beside a frame
const BESIDE = 12; // from a frame to the nearest
const LINES = 14; // between lines that come in at the border
const LABEL = { height: 18, around: 8 };

/** The sides of an item: room on both, and the heights at which lines go on in it, from the top. */
interface Sides {
  room: number;
  into: number[];
  outOf: number[];
}

export class Turned {
  readonly drawing: Drawing;
  private readonly sides: Sides[];

  constructor(private readonly original: Drawing) {
    const { items, nets, room } = original;
    this.sides = items.map(() => ({ room: 0, into: [], outOf: [] }));
    for (const { start, ends } of nets) {
      if (start.below === undefined) this.enter(start, "outOf");
      ends.forEach(end => this.enter(end, "into"));
    }
    this.sides.forEach(sides => {
      for (const heights of [sides.into, sides.outOf]) heights.sort((a, b) => a - b);
      const most = Math.max(sides.into.length, sides.outOf.length);
      if (most > 0) sides.room = BESIDE + TRACK * most;
    });
    for (const { start, label } of nets) {
      if (start.item === BORDER || label === 0) continue;
      const sides = this.sides[start.item];
      sides.room = Math.max(sides.room, (label + LABEL.around - items[start.item][0]) / 2);
    }
    this.drawing = {
      items: items.map(([width, height], item) => [height, width + 2 * this.sides[item].room]),
      nets: nets.map(net => this.net(net)),
      room: turnedRoom(room),
      isTurned: true,
      insets: this.sides.map(sides => sides.room)
    };
  }

  /** A layout of `drawing`, turned back. */
  back(laid: GroupLayout): GroupLayout {
    const { items, nets } = this.original;
    const corners = laid.corners.map(([y, x], item): Point => [x + this.sides[item].room, y]);
    const bottom = Math.max(laid.width, ...corners.map(([, y], item) => y + items[item][1]));
    const starts = this.levels(laid.starts, heights => -LINES * heights);
    const exits = this.levels(laid.exits, heights => bottom + LINES * (heights - 1));
    const lines = laid.lines.map((ends, net) =>
      ends.map((line, end) => {
        const { start, ends } = nets[net];
        const way = line.map(([y, x]): Point => [x, y]);
        if (way.length === 0) return way;
        const [first, last] = [way[0], way[way.length - 1]];
        const before = start.item === BORDER ? aside(first, starts[net], 0) : this.beside(start, first, corners, true);
        const { item } = ends[end];
        const behind =
          item === BORDER ? aside(last, exits[net], laid.height) : this.beside(ends[end], last, corners, false);
        return straightened([...before, ...way, ...behind.reverse()]);
      })
    );
    const labels = laid.labels.map((label): Point | null => label && [label[1], label[0]]);
    return settled({ corners, lines, labels, starts, exits, below: laid.exits, width: 0, height: 0 }, this.original);
  }

  private enter({ item, y }: Pin, side: "into" | "outOf"): void {
    if (item === BORDER || Number.isNaN(y)) return;
    const heights = this.sides[item][side];
    if (!heights.includes(y)) heights.push(y);
  }

  private net({ start, ends, label }: RoutedNet): RoutedNet {
    return {
      start: { item: start.item, y: this.across(start, true) },
      ends: ends.map(end => ({ item: end.item, y: this.across(end, false) })),
      label: label > 0 ? LABEL.height : 0
    };
  }

  /** Where a line runs beside its frame, from the left of the room around it: without crossings. */
  private across({ item, y, below }: Pin, isOut: boolean): number {
    if (item === BORDER || Number.isNaN(y)) return NaN;
    const { room, into, outOf } = this.sides[item];
    if (below !== undefined) return room + below;
    if (!isOut) return room - BESIDE - TRACK * into.indexOf(y);
    return room + this.original.items[item][0] + BESIDE + TRACK * (outOf.length - 1 - outOf.indexOf(y));
  }

  /** The way between the border of a frame and where the line passes along it. */
  private beside({ item, y, below }: Pin, [x]: Point, corners: readonly Point[], isOut: boolean): Line {
    if (Number.isNaN(y) || below !== undefined) return [];
    const [left, top] = corners[item];
    return [
      [isOut ? left + this.original.items[item][0] : left, top + y],
      [x, top + y]
    ];
  }

  /** The heights at which lines pass the border: what is farther to the right is higher, so that none cross; each its own. */
  private levels(places: readonly number[], height: (from: number) => number): number[] {
    const nets = places.flatMap((x, net) => (Number.isNaN(x) ? [] : [net])).sort((a, b) => places[b] - places[a]);
    const isEntry = height(1) < 0;
    return places.map((x, net) => {
      if (Number.isNaN(x)) return NaN;
      const at = nets.indexOf(net);
      return height(isEntry ? nets.length - at : at + 1);
    });
  }
}

export const turnedRoom = (room: Room): Room => ({
  ...room,
  width: room.height,
  height: room.width,
  most: Infinity
});

/** From the border at a height to above, or below, a point. */
function aside([x]: Point, y: number, border: number): Line {
  return [
    [border, y],
    [x, y]
  ];
}
