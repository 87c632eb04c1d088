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
import {
  breakRows,
  type Column,
  columnsOf,
  driftOf,
  plannedExtent,
  HARMLESS,
  misfitOf,
  skipsBroken,
  spreadTall
} from "./wrapping";
import { Geometry, TURNED_CHANNEL } from "./geometry";
import { Turned, turnedRoom } from "./turned";
import { uLayout } from "./u_layout";

// One group as a layered drawing: data flows from left to right, and on in the next row; lines are orthogonal.

const STACKED = 1.5; // times the widest rank: items farther aside of each other no longer stand one below the other
const MOST_STACKED = 150; // items: more are too tall for any canvas

/** How a group is to be drawn, what it will take, roughly, and how: once that is asked for. */
interface Plan {
  extent: Size;
  layout(): RowedLayout;
}

/** A drawing in whatever room: how its items follow each other, and what was drawn of it. */
class Ranking {
  readonly narrow: readonly number[];
  readonly asU: GroupLayout | null; // as a U, where it is one
  readonly joints: Joints;
  readonly turned: Turned | null; // from top to bottom, where it may be drawn so
  readonly stack: readonly Column[] | null; // the columns of that
  readonly isLow: boolean; // that fits the canvas
  private readonly isBack: (from: number, to: number) => boolean;
  private readonly columns = new Map<string, readonly Column[]>();
  private readonly drawings = new Map<string, GroupLayout>();

  /** Of the room of `drawing` counts what it is, and what the canvas holds. */
  constructor(private readonly drawing: Drawing) {
    const { items, room } = drawing;
    const arcs = arcsOf(drawing);
    this.isBack = backward(items.length, arcs);
    const forward = arcs.filter(({ from, to }) => !this.isBack(from, to));
    this.narrow = ranksOf(items.length, [...forward, ...looseArcs(drawing)]);
    this.asU = forward.length === arcs.length ? uLayout(drawing, this.narrow, arcs) : null;
    this.joints = jointsOf(drawing, this.isBack);
    this.turned = !this.asU && items.length <= MOST_STACKED ? new Turned(drawing) : null;
    this.stack = this.turned && stackOf(this.turned.drawing, this.narrow, this.isBack, this.joints);
    this.isLow = this.stack !== null && leastHeight(drawing, this.narrow) <= room.holds[1];
  }

  columnsIn(ranks: readonly number[]): readonly Column[] {
    return found(this.columns, String(ranks), () => {
      return columnsOf(this.drawing, ranks, this.isBack, this.joints, this.isLow);
    });
  }

  /** `firsts`: the first rank of each row. */
  drawn(ranks: readonly number[], firsts: readonly number[]): GroupLayout {
    return found(this.drawings, `${ranks} ${firsts}`, () => {
      return drawn(this.drawing, ranks, firsts, this.isBack, this.joints);
    });
  }

  drawnTurned(turned: Turned): GroupLayout {
    return found(this.drawings, "turned", () => {
      return turned.back(drawn(turned.drawing, this.narrow, [0], this.isBack, this.joints));
    });
  }
}

function found<T>(known: Map<string, T>, key: string, make: () => T): T {
  let value = known.get(key);
  if (value === undefined) known.set(key, (value = make()));
  return value;
}

function planOf(ranking: Ranking, drawing: Drawing): Plan {
  const { narrow, asU, turned, stack } = ranking;
  if (asU) {
    const laid = { ...asU, rows: [], isTurned: false, brokenSkips: 0 };
    return { extent: [asU.width, asU.height], layout: () => laid };
  }
  const ranks = spreadTall(drawing, narrow, ranking.joints);
  const columns = ranking.columnsIn(ranks);
  const before = (drawing.rows ?? []).map(item => ranks[item]);
  const { rows: firsts, misfit } = breakRows(columns, drawing.room, before);
  const inertia = drawing.rows === undefined ? 0 : before.length > 0 ? HARMLESS : -HARMLESS;
  if (turned && stack && misfitOf(stack, [0], turnedRoom(drawing.room)) + inertia < misfit) {
    const [height, width] = plannedExtent(stack, [0]);
    return {
      extent: [width, height],
      layout: () => ({ ...ranking.drawnTurned(turned), rows: [], isTurned: true, brokenSkips: 0 })
    };
  }
  const rows = firsts.map(first => ranks.indexOf(first)).filter(item => item >= 0);
  const brokenSkips = skipsBroken(columns, firsts);
  return {
    extent: plannedExtent(columns, firsts),
    layout: () => ({ ...ranking.drawn(ranks, firsts), rows, isTurned: false, brokenSkips })
  };
}

function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => (made ??= make());
}

/** The ranks of a drawing from top to bottom; null where they would not stand one below the other. */
function stackOf(
  drawing: Drawing,
  ranks: readonly number[],
  isBack: (from: number, to: number) => boolean,
  joints: Joints
): Column[] | null {
  const columns = columnsOf(drawing, ranks, isBack, joints);
  const drift = driftOf(drawing, ranks, isBack);
  const widest = Math.max(...columns.map(({ height }) => height));
  if (columns.length < 2 || drift > STACKED * widest) return null;
  columns[0].height = Math.max(columns[0].height, drift);
  return columns;
}

/** Of all ranks one below the other, with nothing written on lines. */
function leastHeight({ items }: Drawing, ranks: readonly number[]): number {
  const highest: number[] = [];
  items.forEach(([, height], item) => (highest[ranks[item]] = Math.max(highest[ranks[item]] ?? 0, height)));
  return highest.reduce((sum, height) => sum + height + TURNED_CHANNEL, -TURNED_CHANNEL);
}

/** `firsts`: the first rank of each row. */
function drawn(
  drawing: Drawing,
  ranks: readonly number[],
  firsts: readonly number[],
  isBack: (from: number, to: number) => boolean,
  joints: Joints
): GroupLayout {
  const { nets } = drawing;
  const ranked = Math.max(0, ...ranks) + 1;
  const isEntered = nets.some(({ start }) => start.item === BORDER);
  const isLeft = nets.some(({ ends }) => ends.some(({ item }) => item === BORDER));
  const spread = spreadRanks(ranked, firsts, isEntered);
  const count = spread.ranks[ranked - 1] + (isLeft ? 2 : 1);
  const places = ranks.map(rank => spread.ranks[rank]);
  const layers = new Layers(drawing, places, count, isBack, joints);
  orderLayers(layers);
  return new Geometry(drawing, layers, spread.firsts, backEdges(drawing, isBack)).layout();
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
export const NESTED = [3.2, 1.8, 1, 0.6]; // width / height of frames: they read best when flat
const AROUND = 1; // width / height of frames around flat ones
const WIDEST = 2; // canvases that a frame may take
const HOPELESS = 2.5; // times the room
const MANY = 120; // cards that fit no canvas, so that nothing else is tried
const CACHE_LIMIT = 2000;
const NEARLY = 1.1; // canvases: what is planned so large may come out smaller, which is seldom
const NEARLY_LABELLED = 1.05; // the same, with labels on lines
const NOTHING: ReadonlyMap<number, GroupLayout> = new Map();

export class Layouter {
  private readonly cache = new Map<string, Plan>();
  private readonly rankings = new Map<string, Ranking>(); // by drawings without their rooms
  misses = 0; // drawings made, not found

  /** With the rows of the drawing before, unless all could be read at once with others alone, or has them by itself. */
  run(request: LayoutRequest): LayoutResult {
    const kept = this.best(request);
    const isKnown = request.groups.some(({ rows }) => rows !== undefined);
    if (!isKnown || isFarTooLarge(kept.bounds, request.room)) return kept;
    const fresh = this.best({ ...request, groups: request.groups.map(group => ({ ...group, rows: undefined })) });
    const canvas = request.groups.length - 1;
    const isAlike = String(fresh.groups[canvas].rows) === String(request.groups[canvas].rows);
    const isBetter = isAlike || !fits(kept.bounds, request.room, LEGIBLE_ZOOM);
    return isBetter && fits(fresh.bounds, request.room, LEGIBLE_ZOOM) ? fresh : kept;
  }

  /** Whether all of it fits the canvas at a zoom in some shape, and, if asked for, with labels on lines or without. */
  canFit(request: LayoutRequest, zoom: number, isLabelled?: boolean): boolean {
    const [labelled, bare = labelled] = triesOf(request);
    // without labels there is nearly always more room
    const tries = isLabelled === undefined ? [...new Set([...bare, ...labelled])] : isLabelled ? labelled : bare;
    return tries.some(one => this.fitting(request, one, zoom, isLabelled ? NEARLY_LABELLED : 1) !== undefined);
  }

  /** Whether it is planned to fit with labels on lines: nothing is drawn for that. */
  mayFit(request: LayoutRequest, zoom: number): boolean {
    return triesOf(request)[0].some(one => isWithin(this.planned(request, one), request.room, zoom));
  }

  /** Labels on lines, or what gives up as little as lets everything fit the canvas; of several shapes the clearest. */
  private best(request: LayoutRequest): LayoutResult {
    const tries = triesOf(request);
    const isOne = tries.flat().length === 1;
    for (const alike of isOne ? [] : tries) {
      const fitting = alike.flatMap(one => this.fitting(request, one, request.zoom ?? LEGIBLE_ZOOM) ?? []);
      if (fitting.length > 0) return fitting.reduce(clearer).result;
    }
    let [first, small]: (Tried | undefined)[] = [];
    for (const one of tries.flat()) {
      const tried = this.runWith(request, one);
      const { bounds } = tried.result;
      first ??= tried;
      if (fits(bounds, request.room, MIN_WHOLE_ZOOM)) small = small ? clearer(small, tried) : tried;
      if (isFarTooLarge(first.result.bounds, request.room)) break;
    }
    return (small ?? (first as Tried)).result;
  }

  /** The drawing, where it fits; not drawn, or not to its end, is what is planned larger than `most` canvases. */
  private fitting(
    request: LayoutRequest,
    one: Try,
    zoom: number,
    most = one.isLabelled ? NEARLY_LABELLED : NEARLY
  ): Tried | undefined {
    const isNear = (extent: Size) => isWithin(extent, request.room, zoom / most);
    const tried = isNear(this.planned(request, one)) ? this.runWith(request, one, isNear) : undefined;
    return tried && fits(tried.result.bounds, request.room, zoom) ? tried : undefined;
  }

  /** About what all of it will take. */
  private planned(request: LayoutRequest, one: Try): Size {
    const sizes = request.sizes.map(size => [...size] as Size);
    const rooms = roomsOf(request, one);
    let extent: Size = [0, 0];
    for (const group of request.groups) {
      ({ extent } = this.group(group, sizes, NOTHING, rooms(group), one.isLabelled));
      if (group.node >= 0) sizes[group.node] = framed(sizes[group.node], extent);
    }
    return extent;
  }

  private runWith(request: LayoutRequest, one: Try): Tried;
  private runWith(request: LayoutRequest, one: Try, isNear: (extent: Size) => boolean): Tried | undefined;
  private runWith(request: LayoutRequest, one: Try, isNear?: (extent: Size) => boolean): Tried | undefined {
    const sizes = request.sizes.map(size => [...size] as Size);
    const rooms = roomsOf(request, one);
    const inner = new Map<number, GroupLayout>(); // by place
    const layouts: RowedLayout[] = [];
    for (const group of request.groups) {
      const plan = this.group(group, sizes, inner, rooms(group), one.isLabelled);
      // by now with what is inside as large as it has come out
      if (isNear && !isNear(plan.extent)) return undefined;
      const laid = plan.layout();
      if (group.node >= 0) {
        sizes[group.node] = framed(sizes[group.node], [laid.width, laid.height]);
        inner.set(group.node, laid);
      }
      layouts.push(laid);
    }
    const brokenSkips = layouts.reduce((sum, laid) => sum + Math.floor(laid.brokenSkips), 0);
    const result = place(request.groups, layouts, sizes);
    const changed = request.groups.filter(({ rows }, at) => rows && String(rows) !== String(result.groups[at].rows));
    return { result, changed: changed.length, brokenSkips };
  }

  private group(
    group: LayoutGroup,
    sizes: readonly Size[],
    inner: ReadonlyMap<number, GroupLayout>,
    room: Room,
    isLabelled: boolean
  ): Plan {
    const pin =
      (side: "starts" | "exits") =>
      ([item, net]: Terminal): Pin => {
        const laid = item === BORDER || net < 0 ? undefined : inner.get(group.items[item]);
        if (!laid) return { item, y: NaN };
        const pin = { item, y: laid[side][net] + FRAME.top };
        const below = side === "exits" ? laid.below[net] : undefined;
        return below === undefined ? pin : { ...pin, below: below + besideContent(sizes[group.items[item]][0], laid) };
      };
    const drawing: Drawing = {
      items: group.items.map(item => sizes[item]),
      nets: group.nets.map(({ start, ends, label }) => {
        return { start: pin("exits")(start), ends: ends.map(pin("starts")), label: isLabelled ? label : 0 };
      }),
      room,
      rows: group.rows?.map(place => group.items.indexOf(place)).filter(item => item >= 0)
    };
    const { items, nets, rows } = drawing;
    const shape = JSON.stringify([items, nets, room.isFixed, room.holds]);
    const key = JSON.stringify([room.width, room.height, room.most, rows, shape]);
    let plan = this.cache.get(key);
    if (!plan) {
      const { extent, layout } = planOf(this.rankingOf(shape, drawing), drawing);
      const draw = () => {
        this.misses++;
        return layout();
      };
      plan = { extent, layout: once(draw) };
      this.remember(key, plan);
    }
    return plan;
  }

  private rankingOf(shape: string, drawing: Drawing): Ranking {
    return found(this.rankings, shape, () => new Ranking(drawing));
  }

  private remember(key: string, plan: Plan): void {
    if (this.cache.size >= CACHE_LIMIT) {
      this.cache.clear(); // rebuilt in milliseconds, so no finer rule is worth its code
      this.rankings.clear();
    }
    this.cache.set(key, plan);
  }
}

interface Try {
  aspect: number; // of frames
  around: number; // the same, of frames that hold frames
  isLabelled: boolean;
}

/** In each shape of its frames with labels on lines; then in each without. Frames in frames may be flatter than those. */
function triesOf({ sizes, groups }: LayoutRequest): Try[][] {
  const isMany = sizes.length > MANY;
  const shapes = groups.length > 1 && !isMany ? NESTED : NESTED.slice(0, 1);
  const isWritten = groups.some(({ nets }) => nets.some(({ label }) => label > 0));
  const labellings = isMany || !isWritten ? [true] : [true, false];
  const alike = shapes.map(aspect => ({ aspect, around: aspect }));
  const isDeep = shapes.length > 1 && outerFrames(groups).size > 0;
  const frames = isDeep ? [...alike, { aspect: NESTED[0], around: AROUND }] : alike;
  return labellings.map(isLabelled => frames.map(each => ({ ...each, isLabelled })));
}

/** Frames that hold other frames. */
function outerFrames(groups: readonly LayoutGroup[]): Set<number> {
  const frames = new Set(groups.map(({ node }) => node));
  const holds = ({ node, items }: LayoutGroup) => node >= 0 && items.some(item => frames.has(item));
  return new Set(groups.filter(holds).map(({ node }) => node));
}

/** What each group is to fill. */
function roomsOf({ room: canvas, groups }: LayoutRequest, { aspect, around }: Try): (group: LayoutGroup) => Room {
  const room = fixed(canvas);
  const outer = outerFrames(groups);
  const frame = { height: 1, isFixed: false, most: WIDEST * room.width, holds: room.holds };
  return ({ node }) => (node < 0 ? room : { ...frame, width: outer.has(node) ? around : aspect });
}

const framed = ([least, low]: Size, [width, height]: Size): Size => [
  Math.max(least, width + 2 * FRAME.side),
  Math.max(low, height + FRAME.top + FRAME.bottom)
];

interface Tried {
  result: LayoutResult;
  changed: number; // groups with other rows than in the drawing before
  brokenSkips: number;
}

/** With more rows that the reader knows, then with fewer lines broken, then with shorter ones. */
function clearer(one: Tried, other: Tried): Tried {
  const more =
    one.changed - other.changed || one.brokenSkips - other.brokenSkips || lengthOf(one.result) - lengthOf(other.result);
  return more > 0 ? other : one;
}

/** Of all lines; those of one source count once where they run together. */
function lengthOf({ groups }: LayoutResult): number {
  let sum = 0;
  for (const [first, ...others] of groups.flatMap(({ lines }) => lines)) {
    sum += stretch(first, 1);
    for (const line of others)
      sum += stretch(
        line,
        line.findIndex((point, at) => !isSame(point, first[at]))
      );
  }
  return sum;
}

const isSame = ([x, y]: Point, other?: Point): boolean => other?.[0] === x && other[1] === y;

/** The length of a line to its end, from before a point of it. */
function stretch(line: Line, from: number): number {
  return line.reduce((sum, [x, y], at) => {
    const [beforeX, beforeY] = line[Math.max(0, at - 1)];
    return at < from ? sum : sum + Math.abs(x - beforeX) + Math.abs(y - beforeY);
  }, 0);
}

/** Absolute positions, outermost group first. */
function place(groups: readonly LayoutGroup[], layouts: readonly RowedLayout[], sizes: readonly Size[]): LayoutResult {
  const boxes: Box[] = sizes.map(([width, height]) => [0, 0, width, height]);
  const inTurned = new Set(groups.flatMap(({ items }, g) => (layouts[g].isTurned ? items : [])));
  const placed: LayoutResult["groups"] = groups.map(() => ({ lines: [], labels: [], rows: [], isTurned: false }));
  for (let g = groups.length - 1; g >= 0; g--) {
    const { node, items, nets } = groups[g];
    const laid = layouts[g];
    const frame: Box = node < 0 ? [0, 0, 0, 0] : boxes[node];
    const left = frame[0] + (node < 0 ? 0 : besideContent(frame[2], laid));
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
        const entered = toBorder(line.map(moved), isFrom ? frame[0] : NaN);
        if (!isTo) return entered;
        return laid.isTurned && inTurned.has(node)
          ? toBottom(entered, frame[1] + frame[3])
          : toBorder(entered.reverse(), frame[0] + frame[2]).reverse();
      })
    );
    placed[g] = {
      lines,
      labels: laid.labels.map(label => label && moved(label)),
      rows: laid.rows.map(item => items[item]),
      isTurned: laid.isTurned
    };
  }
  return { boxes, groups: placed, bounds: boundsOf([...boxes, ...placed.flatMap(around)]) };
}

function around({ lines }: PlacedGroup): Box[] {
  return lines.flat(2).map(([x, y]) => [x, y, 0, 0]);
}

const fixed = ([width, height]: Size): Room => ({
  width,
  height,
  isFixed: true,
  most: Infinity,
  holds: [width / LEGIBLE_ZOOM, height / LEGIBLE_ZOOM]
});

/** So large that no other shape of its frames could make it fit. */
function isFarTooLarge([, , width, height]: Box, room: Size): boolean {
  return width * height * LEGIBLE_ZOOM ** 2 > HOPELESS * room[0] * room[1];
}

const fits = ([, , width, height]: Box, room: Size, zoom: number): boolean => isWithin([width, height], room, zoom);

const isWithin = ([width, height]: Size, room: Size, zoom: number): boolean =>
  width * zoom <= room[0] && height * zoom <= room[1];

/** The content is in the middle of its frame. */
function besideContent(width: number, laid: GroupLayout): number {
  return Math.max(FRAME.side, (width - laid.width) / 2);
}

/** A line through the border begins on it. */
function toBorder(line: Line, x: number): Line {
  return line.length === 0 || Number.isNaN(x) ? line : [[x, line[0][1]], ...line];
}

/** A line that goes on down out of its frame needs no way to the side of it. */
function toBottom(line: Line, y: number): Line {
  const [[x, before], [, last]] = line.slice(-2);
  const isAside = before === last;
  return [...line.slice(0, isAside ? -2 : -1), [x, y]];
}
