// The layouter, in a worker and in plain calls alike: every open group is laid out on its own, inner groups first.

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
import { MIN_WHOLE_ZOOM, boundsOf, type Box, LEGIBLE_ZOOM, type Point } from "../shared/stage/viewport";
import {
  type Arc,
  arcsOf,
  type BackEdge,
  backward,
  type Joints,
  jointsOf,
  Layers,
  orderLayers,
  ranksOf
} from "./layers";
import { breakRows, type Column, spreadTall } from "./wrapping";
import { Geometry } from "./geometry";
import { uLayout } from "./u_layout";

// One group as a layered drawing: data flows from left to right, and on in the next row; lines are orthogonal.

const CHANNEL = 40; // what a way between columns takes, roughly
const LINE = 14; // and a line that passes a column
const GAP = 22;

function layeredLayout(drawing: Drawing): RowedLayout {
  const { items, nets } = drawing;
  const arcs = arcsOf(drawing);
  const isBack = backward(items.length, arcs);
  const forward = arcs.filter(({ from, to }) => !isBack(from, to));
  const narrow = ranksOf(items.length, [...forward, ...looseArcs(drawing)]);
  const asU = forward.length === arcs.length ? uLayout(drawing, narrow, arcs) : null;
  if (asU) return { ...asU, rows: [] };
  const joints = jointsOf(drawing, isBack);
  const ranks = spreadTall(drawing, narrow, joints);
  const columns = columnsOf(drawing, ranks, isBack, joints);
  const before = (drawing.rows ?? []).map(item => ranks[item]);
  const firsts = breakRows(columns, drawing.room, before);
  const spread = spreadRanks(
    columns.length,
    firsts,
    nets.some(({ start }) => start.item === BORDER)
  );
  const isLeaving = nets.some(({ ends }) => ends.some(({ item }) => item === BORDER));
  const count = spread.ranks[columns.length - 1] + (isLeaving ? 2 : 1);
  const layers = new Layers(
    drawing,
    ranks.map(rank => spread.ranks[rank]),
    count,
    isBack,
    joints
  );
  orderLayers(layers);
  const rows = firsts.map(first => ranks.indexOf(first)).filter(item => item >= 0);
  return { ...new Geometry(drawing, layers, spread.firsts, backEdges(drawing, isBack)).layout(), rows };
}

/** What nothing leads to or from stands behind what comes before it. */
function looseArcs({ items, nets }: Drawing): Arc[] {
  const linked = new Set(nets.flatMap(({ start, ends }) => [start.item, ...ends.map(({ item }) => item)]));
  return items.flatMap((_, item) => (item > 0 && !linked.has(item) ? [{ from: item - 1, to: item }] : []));
}

function backEdges({ nets }: Drawing, isBack: (from: number, to: number) => boolean): BackEdge[] {
  return nets.flatMap(({ start, ends }, net) =>
    ends.flatMap(({ item }, end) =>
      start.item !== BORDER && item !== BORDER && isBack(start.item, item) ? [{ net, end }] : []
    )
  );
}

/** What each rank will take, roughly: known before there is an order. */
function columnsOf(
  drawing: Drawing,
  ranks: readonly number[],
  isBack: (a: number, b: number) => boolean,
  joints: Joints
): Column[] {
  const count = Math.max(0, ...ranks) + 1;
  const columns = Array.from({ length: count }, () => ({ width: 0, height: 0, crossing: 0 }));
  drawing.items.forEach(([width, height], item) => {
    const column = columns[ranks[item]];
    column.width = Math.max(column.width, width);
    column.height += height + GAP;
  });
  const labels = new Array<number>(count).fill(0);
  const starting = new Int32Array(count + 1); // lines that begin to pass a rank, less those that end
  for (const { start, ends, label } of drawing.nets) {
    const from = start.item === BORDER ? 0 : ranks[start.item];
    const forward = ends.filter(
      ({ item }) => item === BORDER || (!joints.has(item) && (start.item === BORDER || !isBack(start.item, item)))
    );
    const last = Math.max(from, ...forward.map(({ item }) => (item === BORDER ? count - 1 : ranks[item])));
    starting[from]++;
    starting[last]--;
    if (start.item !== BORDER) labels[from] = Math.max(labels[from], label);
  }
  joints.forEach((nets, item) => {
    const sources = nets.map(net => drawing.nets[net].start.item);
    starting[sources.reduce((first, source) => Math.min(first, source === BORDER ? 0 : ranks[source]), ranks[item])]++;
    starting[ranks[item]]--;
  });
  let passing = 0;
  columns.forEach((column, rank) => {
    column.height += LINE * Math.max(0, passing - 1);
    passing += starting[rank];
    column.crossing = passing;
    column.width += Math.max(CHANNEL, labels[rank] + 26) + 5 * Math.min(6, Math.max(0, passing - 1));
  });
  return columns;
}

/** Room for two layers between rows, in which lines leave the one and enter the other, and for one at the left border. */
function spreadRanks(count: number, firsts: readonly number[], isEntered: boolean) {
  const ranks: number[] = [];
  const found: number[] = [0];
  let next = isEntered ? 1 : 0;
  for (let rank = 0; rank < count; rank++) {
    if (rank > 0 && firsts.includes(rank)) {
      found.push(next + 1);
      next += 2;
    }
    ranks.push(next++);
  }
  return { ranks, firsts: found };
}

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
    if (!isKnown || fits(kept.bounds, request.room, LEGIBLE_ZOOM) || isFarTooLarge(kept.bounds, request.room))
      return kept;
    const fresh = this.best({ ...request, groups: request.groups.map(group => ({ ...group, rows: undefined })) });
    return fits(fresh.bounds, request.room, LEGIBLE_ZOOM) ? fresh : kept;
  }

  /** Flat frames and labels on lines, or what gives up as little of that as lets everything fit the canvas. */
  private best(request: LayoutRequest): LayoutResult {
    const shapes = request.groups.length > 1 ? NESTED : NESTED.slice(0, 1);
    const most = request.sizes.length > MANY ? 1 : 2;
    let [first, small]: (LayoutResult | undefined)[] = [];
    for (const isLabelled of [true, false].slice(0, most)) {
      for (const aspect of shapes.slice(0, most === 1 ? 1 : shapes.length)) {
        const result = this.runWith(request, aspect, isLabelled);
        if (fits(result.bounds, request.room, LEGIBLE_ZOOM)) return result;
        first ??= result;
        if (fits(result.bounds, request.room, MIN_WHOLE_ZOOM)) small ??= result;
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
  return width * height * LEGIBLE_ZOOM ** 2 > HOPELESS * room[0] * room[1];
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
