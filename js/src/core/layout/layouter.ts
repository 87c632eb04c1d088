// Positions: every open group is laid out on its own, inner groups first. Runs in a worker and in plain calls alike.

import { layeredLayout } from "./layered";
import {
  BORDER,
  type Drawing,
  type GroupLayout,
  type LayoutGroup,
  type LayoutRequest,
  type LayoutResult,
  type Line,
  type Pin,
  type PlacedGroup,
  type Room,
  type RowedLayout,
  type Size,
  type Terminal
} from "./types";
import { AT_ONCE, type Box, boundsOf, LEGIBLE, type Point } from "../shared/viewport";

export const FRAME = { side: 16, top: 42, bottom: 16 };
const NESTED = [3.2, 1.8, 1]; // width / height of frames: they read best when flat
const WIDEST = 2; // canvases that a frame may take
const HOPELESS = 2.5; // times the room
const MANY = 120; // cards that fit no canvas, so that nothing else is tried
const CACHE_LIMIT = 2000;

export class Layouter {
  private readonly cache = new Map<string, RowedLayout>();
  misses = 0;

  /** With the rows of the drawing before, unless everything could be read at once with others alone. */
  run(request: LayoutRequest): LayoutResult {
    const kept = this.best(request);
    const isKnown = request.groups.some(({ rows }) => rows !== undefined);
    if (!isKnown || fits(kept.bounds, request.room, LEGIBLE) || isFarTooLarge(kept.bounds, request.room)) return kept;
    const fresh = this.best({ ...request, groups: request.groups.map(group => ({ ...group, rows: undefined })) });
    return fits(fresh.bounds, request.room, LEGIBLE) ? fresh : kept;
  }

  /** Flat frames and labels on lines, or what gives up as little of that as lets everything fit the canvas. */
  private best(request: LayoutRequest): LayoutResult {
    const shapes = request.groups.length > 1 ? NESTED : NESTED.slice(0, 1);
    const most = request.sizes.length > MANY ? 1 : 2;
    let [first, small]: (LayoutResult | undefined)[] = [];
    for (const isLabelled of [true, false].slice(0, most)) {
      for (const aspect of shapes.slice(0, most === 1 ? 1 : shapes.length)) {
        const result = this.runWith(request, aspect, isLabelled);
        if (fits(result.bounds, request.room, LEGIBLE)) return result;
        first ??= result;
        if (fits(result.bounds, request.room, AT_ONCE)) small ??= result;
        if (isFarTooLarge(first.bounds, request.room)) return first;
      }
    }
    return (small ?? first) as LayoutResult;
  }

  private runWith(request: LayoutRequest, aspect: number, isLabelled: boolean): LayoutResult {
    const sizes = request.sizes.map(size => [...size] as Size);
    const room = fixed(request.room);
    const nested = { width: aspect, height: 1, isFixed: false, most: WIDEST * room.width };
    const inner = new Map<number, GroupLayout>(); // by place
    const layouts = request.groups.map(group => {
      const laid = this.group(group, sizes, inner, group.node < 0 ? room : nested, isLabelled);
      if (group.node >= 0) {
        const [width, height] = sizes[group.node];
        sizes[group.node] = [
          Math.max(width, laid.width + 2 * FRAME.side),
          Math.max(height, laid.height + FRAME.top + FRAME.bottom)
        ];
        inner.set(group.node, laid);
      }
      return laid;
    });
    return place(request.groups, layouts, sizes);
  }

  private group(
    group: LayoutGroup,
    sizes: readonly Size[],
    inner: ReadonlyMap<number, GroupLayout>,
    room: Room,
    isLabelled: boolean
  ): RowedLayout {
    const pin =
      (side: "starts" | "exits") =>
      ([item, net]: Terminal): Pin => {
        const laid = item === BORDER || net < 0 ? undefined : inner.get(group.items[item]);
        return { item, y: laid ? laid[side][net] + FRAME.top : NaN };
      };
    const drawing: Drawing = {
      items: group.items.map(item => sizes[item]),
      nets: group.nets.map(({ start, ends, label }) => {
        return { start: pin("exits")(start), ends: ends.map(pin("starts")), label: isLabelled ? label : 0 };
      }),
      room,
      rows: group.rows?.map(place => group.items.indexOf(place)).filter(item => item >= 0)
    };
    const key = JSON.stringify(drawing);
    let laid = this.cache.get(key);
    if (!laid) {
      laid = layeredLayout(drawing);
      this.misses++;
      this.remember(key, laid);
    }
    return laid;
  }

  private remember(key: string, laid: RowedLayout): void {
    if (this.cache.size >= CACHE_LIMIT) {
      this.cache.clear(); // rebuilt in milliseconds, so no finer rule is worth its code
    }
    this.cache.set(key, laid);
  }
}

/** Absolute positions, outermost group first. */
function place(groups: readonly LayoutGroup[], layouts: readonly RowedLayout[], sizes: readonly Size[]): LayoutResult {
  const boxes: Box[] = sizes.map(([width, height]) => [0, 0, width, height]);
  const placed: LayoutResult["groups"] = groups.map(() => ({ lines: [], labels: [], rows: [] }));
  for (let g = groups.length - 1; g >= 0; g--) {
    const { node, items, nets } = groups[g];
    const laid = layouts[g];
    const frame: Box = node < 0 ? [0, 0, 0, 0] : boxes[node];
    const left = frame[0] + (node < 0 ? 0 : Math.max(FRAME.side, (frame[2] - laid.width) / 2));
    const top = frame[1] + (node < 0 ? 0 : FRAME.top);
    items.forEach((item, i) => {
      const [x, y] = laid.corners[i];
      boxes[item] = [left + x, top + y, sizes[item][0], sizes[item][1]];
    });
    const moved = ([x, y]: Point): Point => [left + x, top + y];
    const lines = laid.lines.map((ends, net) =>
      ends.map((line, end) => {
        const isFrom = nets[net].start[0] === BORDER;
        const isTo = nets[net].ends[end][0] === BORDER;
        return toBorder(line.map(moved), isFrom ? frame[0] : NaN, isTo ? frame[0] + frame[2] : NaN);
      })
    );
    placed[g] = {
      lines,
      labels: laid.labels.map(label => label && moved(label)),
      rows: laid.rows.map(item => items[item])
    };
  }
  return { boxes, groups: placed, bounds: boundsOf([...boxes, ...placed.flatMap(around)]) };
}

function around({ lines }: PlacedGroup): Box[] {
  return lines.flat(2).map(([x, y]) => [x, y, 0, 0]);
}

const fixed = ([width, height]: Size): Room => ({ width, height, isFixed: true, most: Infinity });

/** So large that no other shape of its frames could make it fit. */
function isFarTooLarge([, , width, height]: Box, room: Size): boolean {
  return width * height * LEGIBLE ** 2 > HOPELESS * room[0] * room[1];
}

function fits([, , width, height]: Box, room: Size, zoom: number): boolean {
  return width * zoom <= room[0] && height * zoom <= room[1];
}

/** Lines through the border begin or end on it. */
function toBorder(line: Line, from: number, to: number): Line {
  const [first, last] = [line[0], line[line.length - 1]];
  const before: Point[] = first && !Number.isNaN(from) ? [[from, first[1]]] : [];
  const behind: Point[] = last && !Number.isNaN(to) ? [[to, last[1]]] : [];
  return [...before, ...line, ...behind];
}
