// Requests for layouts, drawn by lot and of known shapes, and what a layout must never do.

import { addToGroups } from "../core/graph/scene/scene_edges";
import type { SceneEdge } from "../core/graph/scene/scene";
import type { LayoutGroup, LayoutRequest, LayoutResult, Line, Size } from "../core/layout/types";
import { FRAME } from "../core/layout/layouter";
import type { Box, Point } from "../core/shared/stage/viewport";

export const CANVAS: Size = [1356, 756];
const EXACT = 0.6; // pixels
const LETTERS = 12; // height of what is written on a line
const JOINED = 6; // more nets that end at one card come together before it

/** A seeded stand-in for Math.random. */
export function seeded(seed: number): () => number {
  let state = Math.imul(seed + 1, 2654435761);
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / 2 ** 24;
  };
}

/** Cards and frames (`parent`: place of the frame around, -1 for the canvas; before its children), and links between them. */
export interface Sketch {
  parent: number[];
  sizes: Size[];
  links: [source: number, target: number, label: string][];
  room?: Size;
}

/** The request that the graph makes of such a scene. */
export function requestOf({ parent, sizes, links, room = CANVAS }: Sketch): LayoutRequest {
  const frames = [...new Set([-1, ...parent])].sort((a, b) => b - a); // inner ones first
  const places = parent.map((_, place) => place);
  const groups: LayoutGroup[] = frames.map(node => ({
    node,
    items: places.filter(place => parent[place] === node),
    nets: []
  }));
  const edges = links.map(([source, target, label]) => ({ id: "", source, target, kind: "data", label }) as SceneEdge);
  const nodes = parent.map(above => ({ parent: above }));
  addToGroups(nodes, edges, groups, text => 6 * text.length);
  return { sizes, groups, room };
}

const SHAPES = ["", "", "1×64×56×56", "8×3", "×4"];

/** Up to 60 items, frames up to three deep, cycles, self-loops, loose items, hubs. */
export function randomSketch(seed: number): Sketch {
  const next = seeded(seed);
  const below = (count: number) => Math.floor(next() * count);
  const count = 1 + below(seed % 3 === 0 ? 60 : 24);
  const framing = next() < 0.6 ? next() * 0.4 : 0;
  const depth: number[] = [];
  const parent: number[] = [];
  const frames: number[] = [];
  for (let place = 0; place < count; place++) {
    const around =
      frames.length > 0 && next() < 0.7 ? frames[frames.length - 1 - below(Math.min(3, frames.length))] : -1;
    parent.push(around);
    depth.push(around < 0 ? 0 : depth[around] + 1);
    if (depth[place] < 3 && next() < framing && place < count - 1) frames.push(place);
  }
  const holders = new Set(parent);
  const sizes = parent.map((_, place): Size => {
    if (holders.has(place)) return [140 + below(160), 0];
    return next() < 0.3 ? [26 + below(60), 26] : [76 + below(200), 34 + below(40)];
  });
  return { parent, sizes, links: randomLinks(parent, next) };
}

function randomLinks(parent: readonly number[], next: () => number): Sketch["links"] {
  const below = (count: number) => Math.floor(next() * count);
  const holders = new Set(parent);
  const leaves = parent.map((_, place) => place).filter(place => !holders.has(place));
  const links: Sketch["links"] = [];
  const link = (source: number, target: number) => links.push([source, target, SHAPES[below(SHAPES.length)]]);
  const density = next() * 1.6;
  const backward = next() < 0.5 ? 0 : next() * 0.3;
  leaves.slice(1).forEach((leaf, at) => next() < 0.75 && link(leaves[at], leaf));
  for (let k = 0; k < density * leaves.length; k++) {
    const [a, b] = [below(leaves.length), below(leaves.length)];
    if (a === b ? next() < 0.3 : true) {
      const [first, last] = [Math.min(a, b), Math.max(a, b)];
      if (next() < backward) link(leaves[last], leaves[first]);
      else if (first !== last || backward > 0) link(leaves[first], leaves[last]);
    }
  }
  if (next() < 0.3) {
    const hub = below(leaves.length);
    leaves.slice(0, hub).forEach(leaf => next() < 0.7 && link(leaf, leaves[hub]));
  }
  return links;
}

/** What is wrong with a layout, in words; nothing for a sound one. */
export function faultsOf(request: LayoutRequest, result: LayoutResult): string[] {
  const checker = new Checker(request, result);
  return checker.faults();
}

interface Drawn {
  net: number;
  end: number;
  line: Line;
}

class Checker {
  private readonly found = new Set<string>();

  constructor(
    private readonly request: LayoutRequest,
    private readonly result: LayoutResult
  ) {}

  faults(): string[] {
    const { request, result } = this;
    const drawn = result.groups.flatMap(({ lines, labels }) => [
      ...lines.flat(2),
      ...labels.filter(label => label !== null)
    ]);
    const numbers = [...result.boxes, ...drawn, result.bounds].flat();
    this.expect(numbers.every(Number.isFinite), "something is not finite");
    request.groups.forEach((group, at) => {
      this.cards(group);
      this.lines(group, at);
    });
    this.labels();
    return [...this.found];
  }

  private expect(holds: boolean, fault: string): void {
    if (!holds) this.found.add(fault);
  }

  private cards({ node, items }: LayoutGroup): void {
    const { boxes } = this.result;
    items.forEach((item, at) => {
      this.expect(node < 0 || isInside(boxes[item], contentOf(boxes[node])), `${item} leaves frame ${node}`);
      items.slice(at + 1).forEach(other => this.expect(!overlap(boxes[item], boxes[other]), `${item} is on ${other}`));
    });
  }

  private lines(group: LayoutGroup, at: number): void {
    const drawn: Drawn[] = this.result.groups[at].lines.flatMap((ends, net) =>
      ends.map((line, end) => ({ net, end, line }))
    );
    this.expect(
      drawn.length === group.nets.reduce((sum, { ends }) => sum + ends.length, 0),
      `lines miss in ${group.node}`
    );
    drawn.forEach(one => this.line(group, one));
    drawn.forEach((one, k) => drawn.slice(k + 1).forEach(other => this.apart(group, one, other)));
  }

  private line(group: LayoutGroup, { net, end, line }: Drawn): void {
    const { boxes } = this.result;
    const name = `line ${net}.${end} of ${group.node}`;
    if (line.length < 2) return this.expect(false, `${name} has no length`);
    const frame = group.node < 0 ? null : boxes[group.node];
    const [from, to] = [group.nets[net].start, group.nets[net].ends[end]];
    this.expect(this.isAt(group, line[0], from, false), `${name} begins elsewhere`);
    this.expect(this.isAt(group, line[line.length - 1], to, true), `${name} ends elsewhere`);
    this.goesOn(group, line[line.length - 1], to, "start", name);
    this.goesOn(group, line[0], from, "end", name);
    for (const [a, b] of segmentsOf(line)) {
      const isStraight = Math.abs(a[0] - b[0]) <= EXACT || Math.abs(a[1] - b[1]) <= EXACT;
      this.expect(isStraight, `${name} is slanted`);
      const box = boxAround(a, b);
      for (const item of group.items) {
        this.expect(!overlap(box, shrunk(boxes[item])), `${name} crosses ${item}`);
      }
      this.expect(!frame || isInside(box, contentOf(frame)), `${name} leaves its frame, or crosses the header`);
    }
  }

  /** The side of the card, or the inner side of the frame's; from top to bottom its top or bottom. */
  private isAt({ node, items }: LayoutGroup, point: Point, [item, net]: [number, number], isEnd: boolean): boolean {
    const box = this.result.boxes[item < 0 ? node : items[item]];
    const isBelow = isEnd === item < 0 && this.isTurnedAround(item < 0 ? node : items[item]);
    if (item >= 0 && net < 0 && this.isTurnedAround(items[item])) return isOn(box, point, 1, !isEnd);
    return isOn(box, point, 0, isEnd === item < 0) || (isBelow && isOn(box, point, 1, true));
  }

  private isTurnedAround(place: number): boolean {
    const at = this.request.groups.findIndex(({ items }) => items.includes(place));
    return at >= 0 && this.result.groups[at].isTurned;
  }

  /** A line that comes to an open frame goes on inside at the same height, or below it at the same place. */
  private goesOn(
    { items }: LayoutGroup,
    point: Point,
    [item, net]: [number, number],
    side: "start" | "end",
    name: string
  ) {
    const inner = item < 0 || net < 0 ? -1 : this.request.groups.findIndex(({ node }) => node === items[item]);
    if (inner < 0) return;
    const { ends } = this.request.groups[inner].nets[net];
    const lines = this.result.groups[inner].lines[net];
    const exit = ends.findIndex(([to]) => to < 0);
    const other = side === "start" ? lines[0]?.[0] : lines[exit]?.[lines[exit].length - 1];
    const isSame = other !== undefined && [0, 1].every(axis => Math.abs(other[axis] - point[axis]) <= EXACT);
    this.expect(isSame, `${name} breaks off at ${items[item]}`);
  }

  private apart(group: LayoutGroup, one: Drawn, other: Drawn): void {
    if (one.net === other.net || this.isJoint(group, one, other)) return;
    for (const [a, b] of segmentsOf(one.line)) {
      for (const [c, d] of segmentsOf(other.line)) {
        this.expect(shared(a, b, c, d) <= 2, `lines ${one.net} and ${other.net} of ${group.node} are one`);
      }
    }
  }

  private isJoint({ nets }: LayoutGroup, one: Drawn, other: Drawn): boolean {
    const [item] = nets[one.net].ends[one.end];
    const isSame = item >= 0 && nets[other.net].ends[other.end][0] === item;
    return isSame && nets.filter(({ ends }) => ends.some(([to]) => to === item)).length > JOINED;
  }

  private labels(): void {
    const { request, result } = this;
    const holders = new Set(request.groups.map(({ node }) => node));
    const cards = result.boxes.filter((_, place) => !holders.has(place));
    const headers = result.boxes.filter((_, place) => holders.has(place)).map(([x, y, w]): Box => [x, y, w, FRAME.top]);
    const written = result.groups.flatMap(({ labels }, at) =>
      labels.flatMap((label, net) => {
        if (!label) return [];
        const width = request.groups[at].nets[net].label;
        return [[label[0] - width / 2, label[1] - LETTERS / 2, width, LETTERS] as Box];
      })
    );
    written.forEach((label, k) => {
      this.expect(![...cards, ...headers].some(box => overlap(label, shrunk(box))), "a label is on a card");
      this.expect(!written.slice(k + 1).some(box => overlap(label, box)), "a label is on a label");
    });
  }
}

/** On the left or right side of a box, or its top or bottom. */
function isOn(box: Box, point: Point, axis: 0 | 1, isFar: boolean): boolean {
  const along = 1 - axis;
  const side = box[axis] + (isFar ? box[axis + 2] : 0);
  const isWithin = point[along] >= box[along] - EXACT && point[along] <= box[along] + box[along + 2] + EXACT;
  return Math.abs(point[axis] - side) <= EXACT && isWithin;
}

const segmentsOf = (line: Line): [Point, Point][] => line.slice(1).map((point, at) => [line[at], point]);

function boxAround(a: Point, b: Point): Box {
  return [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])];
}

const shrunk = ([x, y, w, h]: Box): Box => [x + 1, y + 1, w - 2, h - 2];

/** The inside of a frame, below its header. */
const contentOf = ([x, y, w, h]: Box): Box => [x, y + FRAME.top, w, h - FRAME.top];

function overlap(a: Box, b: Box): boolean {
  return a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
}

function isInside([x, y, w, h]: Box, [left, top, width, height]: Box): boolean {
  return x >= left - EXACT && y >= top - EXACT && x + w <= left + width + EXACT && y + h <= top + height + EXACT;
}

/** The length of what two segments have in common. */
function shared(a: Point, b: Point, c: Point, d: Point): number {
  for (const along of [0, 1]) {
    const across = 1 - along;
    const isLevel = [b, c, d].every(point => Math.abs(point[across] - a[across]) < 1);
    if (isLevel) {
      const start = Math.max(Math.min(a[along], b[along]), Math.min(c[along], d[along]));
      return Math.min(Math.max(a[along], b[along]), Math.max(c[along], d[along])) - start;
    }
  }
  return 0;
}

/** An encoder and a decoder with a line across at every level; some cards are frames with a chain and a skip inside. */
export function uSketch(seed: number): Sketch {
  const next = seeded(seed);
  const below = (count: number) => Math.floor(next() * count);
  const [levels, isFramed, isLabelled] = [2 + below(5), next() < 0.4, next() < 0.6];
  const sketch: Required<Sketch> = { parent: [], sizes: [], links: [], room: CANVAS };
  const add = (parent: number, size: Size) => {
    sketch.parent.push(parent);
    return sketch.sizes.push(size) - 1;
  };
  const cell = (): number[] => {
    const item = add(-1, [80 + below(150), 26 + below(60)]);
    if (!isFramed || next() < 0.7) return [item, item];
    sketch.sizes[item] = [160, 0];
    const inside = Array.from({ length: 1 + below(3) }, () => add(item, [80 + below(80), 40]));
    inside.slice(1).forEach((to, at) => sketch.links.push([inside[at], to, ""]));
    return [inside[0], inside[inside.length - 1]];
  };
  const chain: number[][] = [];
  const cells = () => Array.from({ length: 1 + below(4) }, () => chain.push(cell()));
  const skips: [from: number, to: number][] = [];
  const lefts = Array.from({ length: levels - 1 }, () => cells() && chain.length - 1);
  cells();
  for (const from of lefts.reverse()) {
    skips.push([from, chain.length]);
    cells();
  }
  const label = () => (isLabelled ? SHAPES[below(SHAPES.length)] : "");
  const steps = chain.slice(1).map((_, at): [number, number] => [at, at + 1]);
  [...steps, ...skips].forEach(([from, to]) => sketch.links.push([chain[from][1], chain[to][0], label()]));
  return sketch;
}
