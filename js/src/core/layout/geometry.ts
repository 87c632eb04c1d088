// Geometry of a layered drawing: boxes of the items and polylines of the edges.

import { assignTracks, type Bundle } from "./channels";
import type { BackEdge, Layers, Segment } from "./layers";
import { heightsOf } from "./coordinates";
import { Shortcuts } from "./shortcuts";
import { BORDER, type Drawing, type GroupLayout, type Line } from "./types";
import type { Point } from "../shared/stage/viewport";
import { push } from "../shared/base/multimap";

const TRACK = 10; // between neighbouring lines that run beside each other
const CHANNEL = 34; // the least room between columns
export const TURNED_CHANNEL = 26; // from top to bottom
const APART = 14; // lines in one layer
const BEFORE_TRACKS = 12;
const ARROW = 16; // room for its head behind the last track
const BESIDE_LABEL = 6;
const FROM_CORNER = 8; // of an item, where lines end
const ROW_GAP = 40;

interface Row {
  layers: number[]; // ranks
  top: number;
  bottom: number;
  left: number; // of the first column
  right: number; // of the last channel
}

/** The nearest height where a line that ends at a frame does not run on one that goes on inside. */
function besideAll(y: number, taken: readonly number[], height: number): number {
  const isFree = (at: number) => at > 0 && at < height && taken.every(other => Math.abs(other - at) >= TRACK);
  for (let away = 0; away < height; away += TRACK / 2) {
    const found = [y - away, y + away].find(isFree);
    if (found !== undefined) return found;
  }
  return y;
}

export class Geometry {
  private readonly top: Float64Array; // of each vertex
  private readonly left: Float64Array;
  private readonly right: Float64Array;
  private readonly rows: Row[];
  private readonly rowOf: Int32Array; // of each rank
  private readonly tracks = new Map<Bundle, number>(); // x
  private readonly leaving = new Map<BackEdge, Bundle>();
  private readonly arriving = new Map<BackEdge, Bundle | null>(); // null: left of the first column
  private readonly lanes: BackEdge[][]; // below each row
  private readonly free = new Set<Segment>(); // that may end anywhere on the side of an item
  private readonly turning: number[][]; // of each row the lines that go on in the next one, from the top
  private readonly shortcuts: Shortcuts;

  /** `firsts`: the first rank of each row. */
  constructor(
    private readonly drawing: Drawing,
    private readonly layers: Layers,
    firsts: readonly number[],
    private readonly back: readonly BackEdge[]
  ) {
    const count = layers.item.length;
    [this.top, this.left, this.right] = [0, 1, 2].map(() => new Float64Array(count));
    const { length } = layers.layers;
    this.rowOf = new Int32Array(length);
    this.rows = firsts.map((first, row) => {
      const end = firsts[row + 1] ?? length;
      const ranks = Array.from({ length: end - first }, (_, at) => first + at);
      ranks.forEach(rank => (this.rowOf[rank] = row));
      return { layers: ranks, top: 0, bottom: 0, left: 0, right: 0 };
    });
    this.lanes = this.rows.map((_, row) => back.filter(edge => this.backRows(edge).includes(row)));
    this.turning = this.rows.slice(1).map(({ layers: [first] }) => [...layers.layers[first - 1]]);
    this.spreadPins();
    this.shortcuts = new Shortcuts(
      layers,
      this.rows.map(row => row.layers)
    );
    this.placeRows();
  }

  layout(): GroupLayout {
    const { drawing, layers } = this;
    const lines = drawing.nets.map((_, net) => layers.paths[net].map((path, end) => this.line(net, end, path)));
    const labels = drawing.nets.map((_, net) => this.labelOf(net));
    const height = (ports: ReadonlyMap<number, number>) => (_: unknown, net: number) => {
      const vertex = ports.get(net);
      return vertex === undefined ? NaN : this.top[vertex];
    };
    const corners = drawing.items.map((_, item) => [this.left[item], this.top[item]] as Point);
    const [starts, exits] = [layers.entries, layers.exits].map(ports => drawing.nets.map(height(ports)));
    return settled({ corners, lines, labels, starts, exits, below: [], width: 0, height: 0 }, drawing);
  }

  private backRows({ net, end }: BackEdge): [from: number, to: number] {
    const { start, ends } = this.drawing.nets[net];
    return [this.rowOf[this.layers.rank[start.item]], this.rowOf[this.layers.rank[ends[end].item]]];
  }

  /** Where lines end on cards: from top to bottom in the order in which they come; those that lead back last. */
  private spreadPins(): void {
    const { layers, back, drawing } = this;
    const place = new Float64Array(layers.item.length);
    layers.layers.forEach(layer => layer.forEach((vertex, at) => (place[vertex] = at)));
    const backInto = new Map<number, number>();
    back.forEach(({ net, end }) => {
      const { item } = drawing.nets[net].ends[end];
      backInto.set(item, (backInto.get(item) ?? 0) + 1);
    });
    drawing.items.forEach((_, item) => {
      const all = layers.into[item].map(link => layers.segments[link]);
      const free = all.filter(({ toY }) => Number.isNaN(toY));
      const taken = all.map(({ toY }) => toY).filter(toY => !Number.isNaN(toY)); // where lines go on in a frame
      free.sort((a, b) => place[a.from] - place[b.from] || a.fromY - b.fromY);
      const count = free.length + (backInto.get(item) ?? 0);
      free.forEach((segment, at) => {
        segment.toY = this.pin(item, at, count, taken);
        this.free.add(segment);
      });
    });
  }

  /** Lines that end on an item beside each other do so where they come, as far as there is room: they need no bend. */
  private slidePins(vertex: number): void {
    const { layers, top } = this;
    const { items, insets } = this.drawing;
    const item = layers.item[vertex];
    if (item < 0) return;
    const all = layers.into[vertex].map(link => layers.segments[link]).filter(({ from }) => this.isIn(from));
    const isLedBackTo = this.back.some(({ net, end }) => this.drawing.nets[net].ends[end].item === item);
    if (all.length < 2 || isLedBackTo || all.some(({ isJoint }) => isJoint)) return;
    const inset = (insets?.[item] ?? 0) + FROM_CORNER;
    const limits = [inset - TRACK, items[item][1] - inset + TRACK];
    all.sort((a, b) => a.toY - b.toY);
    const slide = (segment: Segment, at: number) => {
      const wanted = top[segment.from] + segment.fromY - top[vertex];
      const [above, below] = [all[at - 1]?.toY ?? limits[0], all[at + 1]?.toY ?? limits[1]];
      if (this.free.has(segment) && wanted >= above + TRACK && wanted <= below - TRACK) segment.toY = wanted;
    };
    for (let at = all.length - 1; at >= 0; at--) slide(all[at], at);
    all.forEach(slide);
  }

  /** The place of one of `count` pins on the side of an item. */
  private pin(item: number, at: number, count: number, taken: readonly number[]): number {
    const inset = this.drawing.insets?.[item] ?? 0;
    const height = this.drawing.items[item][1] - 2 * inset;
    const inside = taken.map(y => y - inset);
    return inset + besideAll((height * (at + 1)) / (count + 1), inside, height);
  }

  private placeRows(): void {
    const backMargin = this.back.length > 0 ? TRACK * (this.back.length + 1) : 0;
    const margin =
      Math.max(0, ...this.turning.map(lines => lines.length)) * TRACK + (this.rows.length > 1 ? TRACK : 0) + backMargin;
    let y = 0;
    this.rows.forEach((row, at) => {
      this.placeRow(row, margin, y);
      const lanes = this.turningFrom(at) + this.lanes[at].length;
      y = row.bottom + (at < this.rows.length - 1 || this.lanes[at].length > 0 ? ROW_GAP : 0) + TRACK * lanes;
    });
  }

  private turningFrom(row: number): number {
    return this.turning[row]?.length ?? 0;
  }

  private placeRow(row: Row, left: number, y: number): void {
    const { layers } = this;
    const ranks = row.layers.map(rank => layers.layers[rank]);
    const tops = heightsOf(layers, ranks);
    let least = Infinity;
    tops.forEach(top => (least = Math.min(least, top)));
    row.bottom = -Infinity;
    tops.forEach((top, vertex) => {
      this.top[vertex] = top - least + y;
      row.bottom = Math.max(row.bottom, this.top[vertex] + layers.height[vertex]);
    });
    row.top = y;
    ranks.flat().forEach(vertex => this.slidePins(vertex));
    const { isTurned = false, room } = this.drawing;
    const comesDown = row !== this.rows[0] || !room.isFixed; // from the row before, or from what is above its frame
    if (isTurned || comesDown) this.straightenInto(ranks[0]);
    if (isTurned || row !== this.rows[this.rows.length - 1]) this.straightenOutOf(ranks[ranks.length - 1]);
    row.left = left;
    let x = left;
    for (const rank of row.layers) {
      x = this.placeColumn(rank, x);
    }
    row.right = x;
  }

  /** Lines that come to a layer from above go no farther down than to the first of what they lead to. */
  private straightenInto(layer: readonly number[]): void {
    const { outOf, segments } = this.layers;
    let free = -Infinity;
    for (const vertex of this.passing(layer)) {
      const shown = outOf[vertex].map(link => segments[link]).filter(one => this.isShown(one));
      const wanted = shown.map(({ to, toY }) => this.top[to] + toY);
      this.top[vertex] = Math.max(free, Math.min(this.top[vertex], ...wanted));
      free = this.top[vertex] + APART;
    }
  }

  /** And lines that leave a layer downwards begin to do so no higher than the last of where they come from. */
  private straightenOutOf(layer: readonly number[]): void {
    const { into, segments } = this.layers;
    let free = Infinity;
    for (const vertex of this.passing(layer).reverse()) {
      const shown = into[vertex].map(link => segments[link]).filter(({ from }) => this.isIn(from));
      const wanted = shown.map(({ from, fromY }) => this.top[from] + fromY);
      this.top[vertex] = Math.min(free, Math.max(this.top[vertex], ...wanted));
      free = this.top[vertex] - APART;
    }
  }

  /** The lines in a layer of nothing else. */
  private passing(layer: readonly number[]): number[] {
    return layer.some(vertex => this.layers.item[vertex] >= 0) ? [] : [...layer];
  }

  /** Returns where the next column begins. */
  private placeColumn(rank: number, x: number): number {
    const { layers, drawing } = this;
    const layer = layers.layers[rank];
    const widthOf = (vertex: number) => (layers.item[vertex] < 0 ? 0 : drawing.items[vertex][0]);
    const width = Math.max(0, ...layer.map(widthOf));
    let room = 0; // that texts need behind the column
    for (const vertex of layer) {
      const own = widthOf(vertex);
      const isLine = layers.item[vertex] < 0;
      this.left[vertex] = isLine ? x : x + (width - own) / 2;
      this.right[vertex] = isLine ? x + width : this.left[vertex] + own;
      const label = this.labelWidth(vertex);
      if (label > 0) room = Math.max(room, this.right[vertex] + label + BESIDE_LABEL - x - width);
    }
    return this.placeChannel(rank, x + width, room);
  }

  private labelWidth(vertex: number): number {
    const { nets } = this.drawing;
    return this.netsOf(vertex).reduce((most, net) => Math.max(most, nets[net].label), 0);
  }

  private starting?: Map<number, number[]>;

  private netsOf(vertex: number): readonly number[] {
    if (!this.starting) {
      this.starting = new Map();
      for (const [net, { start }] of this.drawing.nets.entries()) {
        if (start.item === BORDER) continue;
        push(this.starting, start.item, net);
      }
    }
    return this.starting.get(vertex) ?? [];
  }

  private placeChannel(rank: number, x: number, room: number): number {
    const { layers } = this;
    const bundles = this.bundlesBehind(rank);
    const count = assignTracks(bundles);
    const first = x + room + BEFORE_TRACKS;
    bundles.forEach(bundle => bundle.track >= 0 && this.tracks.set(bundle, first + bundle.track * TRACK));
    const next = layers.layers[rank + 1];
    const isLast = !next || this.rowOf[rank + 1] !== this.rowOf[rank];
    const tracks = count > 0 ? BEFORE_TRACKS + (count - 1) * TRACK : 0;
    if (isLast) return x + room + tracks;
    const isLine = (vertex: number) => layers.item[vertex] < 0;
    const isBare = layers.layers[rank].every(isLine) || next.every(isLine); // a border, or a turn
    const { isTurned } = this.drawing;
    return x + Math.max(isBare ? TRACK : isTurned ? TURNED_CHANNEL : CHANNEL, room + tracks + ARROW);
  }

  private bundlesBehind(rank: number): Bundle[] {
    const { layers } = this;
    const found: Bundle[] = [];
    const joints = new Map<number, Bundle>();
    const { leaving, arriving } = this.shortcuts;
    const isSameRow = this.rowOf[rank + 1] === this.rowOf[rank];
    for (const vertex of isSameRow ? layers.layers[rank] : []) {
      const pins: [y: number, bundle: Bundle][] = [];
      for (const link of layers.outOf[vertex]) {
        const segment = layers.segments[link];
        if (!this.isShown(segment)) continue;
        let bundle = segment.isJoint ? joints.get(segment.to) : pins.find(([y]) => y === segment.fromY)?.[1];
        const isLeaving = leaving.has(segment);
        const left = this.top[vertex] + segment.fromY;
        const right = isLeaving ? Infinity : this.top[segment.to] + segment.toY;
        if (bundle) {
          bundle.left.push(left);
          bundle.right.push(right);
        } else {
          bundle = { left: [left], right: [right], track: -1 };
          found.push(bundle);
          if (segment.isJoint) joints.set(segment.to, bundle);
          else pins.push([segment.fromY, bundle]);
        }
        segment.bundle = bundle;
      }
    }
    for (const segment of arriving) {
      if (layers.rank[segment.from] !== rank) continue;
      segment.bundle = { left: [-Infinity], right: [this.top[segment.to] + segment.toY], track: -1 };
      found.push(segment.bundle);
    }
    return [...found, ...this.backBundles(rank)];
  }

  /** Whether a segment between two columns is drawn as such. */
  private isShown(segment: Segment): boolean {
    const { leaving, arriving } = this.shortcuts;
    return leaving.has(segment) || (this.isIn(segment.to) && !arriving.has(segment));
  }

  private isIn(vertex: number): boolean {
    return !this.shortcuts.out.has(vertex);
  }

  /** Edges that lead back go down behind their source, and up before their target. */
  private backBundles(rank: number): Bundle[] {
    const { layers, drawing } = this;
    const found: Bundle[] = [];
    for (const edge of this.back) {
      const { start, ends } = drawing.nets[edge.net];
      const to = ends[edge.end].item;
      if (layers.rank[start.item] === rank) {
        const bundle = { left: [this.startY(edge.net)], right: [Infinity], track: -1 };
        this.leaving.set(edge, bundle);
        found.push(bundle);
      }
      const before = layers.rank[to] - 1;
      if (before === rank && this.rowOf[before] === this.rowOf[before + 1]) {
        const bundle = { left: [Infinity], right: [this.endY(edge)], track: -1 };
        this.arriving.set(edge, bundle);
        found.push(bundle);
      }
    }
    return found;
  }

  private startY(net: number): number {
    const { item, y } = this.drawing.nets[net].start;
    return this.top[item] + (Number.isNaN(y) ? this.layers.height[item] / 2 : y);
  }

  private endY(edge: BackEdge): number {
    const { item, y } = this.drawing.nets[edge.net].ends[edge.end];
    if (!Number.isNaN(y)) return this.top[item] + y;
    const same = this.back.filter(({ net, end }) => this.drawing.nets[net].ends[end].item === item);
    const forward = this.layers.into[item].length;
    return this.top[item] + this.pin(item, forward + same.indexOf(edge), forward + same.length, []);
  }

  private line(net: number, end: number, path: readonly Segment[] | null): Line {
    if (!path) return this.lineBack(net, end);
    const { rank } = this.layers;
    const { leaving, arriving, past } = this.shortcuts;
    const [first, last] = [path[0], path[path.length - 1]];
    let y = this.top[first.from] + first.fromY;
    let [x, lane] = [NaN, NaN]; // of the way outside of the rows, while there is one
    const points: Point[] = [[this.right[first.from], y]];
    for (const segment of path) {
      const { from, to } = segment;
      const next = this.top[to] + segment.toY;
      if (this.rowOf[rank[from]] !== this.rowOf[rank[to]]) {
        const turn = this.turn(from);
        const goesPast = this.rowOf[rank[to]] !== this.rowOf[rank[last.to]] ? past.get(to) : undefined;
        if (Number.isNaN(x)) {
          x = turn.right;
          points.push([x, y]);
        } else if (past.get(this.rowBegin(path, from)) === "right") {
          x = Math.max(x, turn.right);
          points[points.length - 1] = [x, points[points.length - 1][1]];
        }
        if (goesPast === "right") continue;
        lane = turn.lane;
        points.push([x, lane]);
        const isArriving = arriving.has(last) && this.rowOf[rank[to]] === this.rowOf[rank[last.to]];
        if (isArriving) continue;
        x = Math.min(turn.left, x); // farther left where it has gone past a row
        points.push([x, lane]);
        if (goesPast) continue;
        points.push([x, next]);
        [x, y] = [NaN, next];
      } else if (arriving.has(segment)) {
        const down = this.tracks.get(segment.bundle as Bundle) ?? this.left[to];
        points.push([down, lane], [down, next]);
        [x, y] = [NaN, next];
      } else if (Number.isNaN(x)) {
        const bend = this.bend(segment.bundle, y, next);
        if (leaving.has(segment) && this.rowOf[rank[last.to]] !== this.rowOf[rank[from]]) {
          [[x]] = bend;
          points.push([x, y]);
        } else {
          points.push(...bend);
          if (bend.length > 0) y = next;
        }
      }
    }
    points.push([this.left[last.to], y]);
    return straightened(points);
  }

  /** The vertex at which a line comes into the row of another of its vertices. */
  private rowBegin(path: readonly Segment[], vertex: number): number {
    const { rank } = this.layers;
    const row = this.rowOf[rank[vertex]];
    return path.find(({ to }) => this.rowOf[rank[to]] === row)?.to ?? -1;
  }

  /** The points at which a line changes its height between two columns. */
  private bend(bundle: Bundle | undefined, y: number, next: number): Point[] {
    const x = bundle && this.tracks.get(bundle);
    if (!bundle || x === undefined) return [];
    const { detour } = bundle;
    const second = detour ? x + (detour.track - bundle.track) * TRACK : x;
    const by: Point[] = detour
      ? [
          [x, detour.y],
          [second, detour.y]
        ]
      : [];
    return [[x, y], ...by, [second, next]];
  }

  /** The way from the end of a row through the gutter to the beginning of the next: lines keep their order. */
  private turn(from: number): { right: number; lane: number; left: number } {
    const row = this.rowOf[this.layers.rank[from]];
    const lines = this.turning[row];
    const below = TRACK * (lines.length - lines.indexOf(from) - 1);
    return {
      right: this.rows[row].right + below,
      lane: this.rows[row].bottom + ROW_GAP / 2 + below,
      left: this.rows[row + 1].left - TRACK * (lines.indexOf(from) + 1)
    };
  }

  private lineBack(net: number, end: number): Line {
    const edge = this.back.find(other => other.net === net && other.end === end);
    if (!edge) return [];
    const { start, ends } = this.drawing.nets[net];
    const [from, to] = this.backRows(edge);
    const [startY, endY] = [this.startY(net), this.endY(edge)];
    const down = this.tracks.get(this.leaving.get(edge) as Bundle) ?? this.rows[from].right;
    const margin = TRACK * (this.back.indexOf(edge) + 1);
    const up = this.tracks.get(this.arriving.get(edge) as Bundle) ?? margin;
    const lane = (row: number) => {
      return this.rows[row].bottom + ROW_GAP / 2 + TRACK * (this.turningFrom(row) + this.lanes[row].indexOf(edge));
    };
    const between: Point[] =
      from === to
        ? []
        : [
            [margin, lane(from)],
            [margin, lane(to)]
          ];
    return straightened([
      [this.right[start.item], startY],
      [down, startY],
      [down, lane(from)],
      ...between,
      [up, lane(to)],
      [up, endY],
      [this.left[ends[end].item], endY]
    ]);
  }

  private labelOf(net: number): Point | null {
    const { start, label } = this.drawing.nets[net];
    if (label === 0 || start.item === BORDER) return null;
    return [this.right[start.item] + BESIDE_LABEL / 2 + label / 2, this.startY(net)];
  }
}

/** Without points that lie between their neighbours. */
export function straightened(points: readonly Point[]): Line {
  const line: Point[] = [];
  for (const point of points) {
    const [a, b] = [line[line.length - 2], line[line.length - 1]];
    if (b && b[0] === point[0] && b[1] === point[1]) continue;
    if (a && b && ((a[0] === b[0] && b[0] === point[0]) || (a[1] === b[1] && b[1] === point[1]))) line.pop();
    line.push(point);
  }
  return line;
}

/** Moved so that the corner of the content, lines included, is the origin. */
export function settled(laid: GroupLayout, { items }: Drawing): GroupLayout {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const grow = (x: number, y: number) => {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x);
    bottom = Math.max(bottom, y);
  };
  laid.corners.forEach(([x, y], item) => {
    grow(x, y);
    grow(x + items[item][0], y + items[item][1]);
  });
  laid.lines.forEach(ends => ends.forEach(line => line.forEach(([x, y]) => grow(x, y))));
  if (left === Infinity) return laid;
  const moved = ([x, y]: Point): Point => [x - left, y - top];
  return {
    corners: laid.corners.map(moved),
    lines: laid.lines.map(ends => ends.map(line => line.map(moved))),
    labels: laid.labels.map(label => label && moved(label)),
    starts: laid.starts.map(y => y - top),
    exits: laid.exits.map(y => y - top),
    below: laid.below.map(x => x - left),
    width: right - left,
    height: bottom - top
  };
}
