// The edge under the pointer: its path from the producer to every consumer is highlighted, and a box lists its values.

import * as words from "../words/graph";
import { el, nameSpan } from "../shared/ui/dom";
import { shortBytes } from "../shared/base/format";
import type { Fold, Hierarchy } from "../shared/model/hierarchy";
import type { Theme } from "../shared/stage/theme";
import type { Tooltip, TooltipRow } from "../shared/ui/tooltip";
import { type Box, type Point, sizeAt, type Viewport } from "../shared/stage/viewport";
import type { CardStyle } from "./paint/card_style";
import { isReadable } from "./paint/text_lines";
import { hasRoomFor, label, stroke } from "./paint/paint_edges";
import type { PlacedScene, Route, SceneEdge, SceneNode } from "./scene/scene";
import { LABEL_SIZE } from "./scene/edge_labels";
import { type Dataflow, dataflowOf, shapeText } from "../shared/model/dataflow";
import { push } from "../shared/base/multimap";

// Which line lies under the pointer, found without looking at all of them.

const CELL = 160; // units of the picture

export class EdgeGrid {
  private readonly cells = new Map<string, number[]>(); // places of segments
  private readonly segments: { readonly line: number; readonly from: Point; readonly to: Point }[] = [];

  constructor(lines: readonly (readonly Point[])[]) {
    lines.forEach((points, line) => {
      for (let at = 1; at < points.length; at++) this.add(line, points[at - 1], points[at]);
    });
  }

  /** The line that passes nearest to a point, no farther than `reach`. */
  nearest([x, y]: Point, reach: number): number | null {
    let best: { line: number | null; distance: number } = { line: null, distance: reach };
    const [left, right] = [cellOf(x - reach), cellOf(x + reach)];
    const [top, bottom] = [cellOf(y - reach), cellOf(y + reach)];
    for (let column = left; column <= right; column++) {
      for (let row = top; row <= bottom; row++) {
        for (const place of this.cells.get(`${column} ${row}`) ?? []) {
          const { line, from, to } = this.segments[place];
          const distance = distanceTo(from, to, x, y);
          if (distance < best.distance || (distance === best.distance && best.line === null)) best = { line, distance };
        }
      }
    }
    return best.line;
  }

  /** In each column of cells that it crosses a segment is as high as it is there. */
  private add(line: number, from: Point, to: Point): void {
    const place = this.segments.push({ line, from, to }) - 1;
    const [start, end] = from[0] <= to[0] ? [from, to] : [to, from];
    const slope = end[0] === start[0] ? 0 : (end[1] - start[1]) / (end[0] - start[0]);
    const heightAt = (x: number) => start[1] + slope * (x - start[0]);
    for (let column = cellOf(start[0]); column <= cellOf(end[0]); column++) {
      const [left, right] = [Math.max(start[0], column * CELL), Math.min(end[0], (column + 1) * CELL)];
      const heights = slope === 0 ? [start[1], end[1]] : [heightAt(left), heightAt(right)];
      for (let row = cellOf(Math.min(...heights)); row <= cellOf(Math.max(...heights)); row++) {
        const key = `${column} ${row}`;
        push(this.cells, key, place);
      }
    }
  }
}

function cellOf(length: number): number {
  return Math.floor(length / CELL);
}

function distanceTo([x0, y0]: Point, [x1, y1]: Point, x: number, y: number): number {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1);
  const share = Math.min(1, Math.max(0, along));
  return Math.hypot(x0 + share * dx - x, y0 + share * dy - y);
}

// What an edge carries: the values of the forward pass, each with its shape, its type and its size in memory.

interface Carried {
  readonly key: string; // the same for every edge that carries the same value
  readonly shape: string;
  readonly dtype: string; // "" where it is not known
  readonly bytes: number | null;
}

const OUTSIDE = -1; // the model's input and output, among the edges of the hierarchy

/** Bytes of an element, by the bits in its type's name; null for a type that is not known. */
export function itemSize(dtype: string): number | null {
  const bits = /^(?:q?u?int|b?float|complex)(\d+)/.exec(dtype)?.[1];
  if (dtype === "bool") return 1;
  return bits === undefined ? null : Math.max(1, Number(bits) / 8);
}

export class EdgeValues {
  private readonly flow: Dataflow | null;
  private readonly given = new Map<string, Carried>();
  private nodes?: readonly SceneNode[];
  private between = new Map<string, Map<string, Carried>>(); // of the hierarchy: by the places of both ends

  constructor(private readonly h: Hierarchy) {
    this.flow = dataflowOf(h);
  }

  of({ values, source, target, kind }: SceneEdge, nodes: readonly SceneNode[]): readonly Carried[] {
    const { flow } = this;
    if (kind === "order") return [];
    if (values && flow) return values.map(value => carried(flow, value));
    if (nodes !== this.nodes) {
      this.nodes = nodes;
      this.between = this.lifted(nodes);
    }
    const place = (at: number) => (nodes[at].index < 0 ? OUTSIDE : at);
    return [...(this.between.get(`${place(source)} ${place(target)}`)?.values() ?? [])];
  }

  /** What modules give each other, between the cards that stand for them. */
  private lifted(nodes: readonly SceneNode[]): Map<string, Map<string, Carried>> {
    const found = new Map<string, Map<string, Carried>>();
    const visible = this.visible(nodes);
    const place = (node: number) => (node < 0 ? OUTSIDE : visible[node]);
    for (const [from, to, shape] of this.h.payload.edges) {
      const key = `${place(from)} ${place(to)}`;
      const values = found.get(key) ?? new Map<string, Carried>();
      const value = this.valueOf(from, shape);
      found.set(key, values.set(value.key, value));
    }
    return found;
  }

  /** The place of each node's card, or of what hides it; of a fold that of the member that is drawn. */
  private visible(nodes: readonly SceneNode[]): Int32Array {
    const { h } = this;
    const places = new Map(nodes.flatMap(({ index }, place) => (index < 0 ? [] : [[index, place] as const])));
    const drawn = new Map<Fold, number | undefined>();
    const visible = new Int32Array(h.size).fill(OUTSIDE);
    for (let node = 0; node < h.size; node++) {
      const fold = h.fold(node);
      if (fold && !drawn.has(fold)) {
        drawn.set(fold, places.get(fold.members.find(member => places.has(member)) ?? OUTSIDE));
      }
      const above = node === 0 ? OUTSIDE : visible[h.parent(node)];
      visible[node] = places.get(node) ?? (fold && drawn.get(fold)) ?? above;
    }
    return visible;
  }

  /** A value of that shape that the module gives. */
  private valueOf(from: number, shape: string): Carried {
    const key = `${from} ${shape}`;
    const value = this.given.get(key) ?? this.find(key, from, shape);
    this.given.set(key, value);
    return value;
  }

  private find(key: string, from: number, shape: string): Carried {
    const { flow } = this;
    if (!flow) return { key, shape, dtype: "", bytes: null };
    const { calls, inputs } = flow.payload;
    const outputs =
      from === OUTSIDE ? inputs.map(([, value]) => value) : flow.callsOf(from).flatMap(call => calls.outputs[call]);
    const value = outputs.find(output => flow.shape(output) === shape);
    return value === undefined ? { key, shape, dtype: "", bytes: null } : { ...carried(flow, value), key };
  }
}

function carried(flow: Dataflow, value: number): Carried {
  const shape = flow.payload.shapes[flow.payload.values.shape[value]];
  const dtype = flow.dtype(value);
  const size = itemSize(dtype);
  const fixed = shape.filter(length => typeof length === "number");
  const isKnown = size !== null && fixed.length === shape.length;
  const bytes = isKnown ? fixed.reduce((product, length) => product * length, size) : null;
  return { key: `value ${value}`, shape: shapeText(shape), dtype, bytes };
}

const REACH = 5; // pixels on the screen
const MAX_ROWS = 5;
const MAX_NAME_LENGTH = 44; // characters
const VEIL = 0.4; // opacity of what lies over the rest

/** What stands out. */
interface Spot {
  readonly line: number;
  readonly routes: readonly Route[];
  readonly ends: readonly number[]; // places of cards
}

export class EdgeHover {
  private readonly values: EdgeValues;
  private placed?: PlacedScene;
  private grid?: EdgeGrid; // of what is placed, once it is asked for
  private byValue?: Map<string, number[]>;
  private spot: Spot | null = null;
  private frame = 0;

  constructor(
    private readonly tip: Tooltip,
    h: Hierarchy,
    private readonly decor: CardStyle,
    private readonly changed: () => void
  ) {
    this.values = new EdgeValues(h);
  }

  /** The lines whose path stands out, by the ids of their ends. */
  get lit(): readonly (readonly [string, string])[] {
    const { spot, placed } = this;
    return spot && placed ? spot.routes.map(({ edge }) => [idIn(placed, edge.source), idIn(placed, edge.target)]) : [];
  }

  /** Whether that is another picture. */
  show(placed: PlacedScene): boolean {
    if (placed === this.placed) return false;
    this.placed = placed;
    this.grid = this.byValue = undefined;
    this.leave();
    return true;
  }

  /** The pointer is at a place in the picture, which is (x, y) in the box around the canvas, or gone; whether an edge is there. */
  point(at: Point | null, x: number, y: number, zoom: number): boolean {
    const line = at && this.isFree(at) ? this.lineAt(at, REACH / zoom) : null;
    if (line === null) {
      if (this.spot) this.leave();
      return false;
    }
    if (line !== this.spot?.line) {
      this.spot = this.spotOf(line);
      this.changed();
    }
    // several moves of a pointer come between two frames
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.tell(x, y));
    return true;
  }

  leave(): void {
    cancelAnimationFrame(this.frame);
    this.tip.hide();
    if (!this.spot) return;
    this.spot = null;
    this.changed();
  }

  /** Over the finished picture, in its coordinates. */
  paint(context: CanvasRenderingContext2D, view: Viewport, theme: Theme): void {
    const { spot, placed } = this;
    if (!spot || !placed) return;
    const boxes = spot.ends.map(place => placed.boxes[place]);
    veil(context, view, boxes, theme.canvas);
    stroke(context, spot.routes, theme.accent, Math.max(2.5, 1.8 / view.zoom), []);
    const lit = new Set(spot.routes);
    const size = sizeAt(LABEL_SIZE, view.zoom);
    const isWritten = isReadable(view.zoom);
    const written = this.decor.edges().filter(({ route }) => isWritten && hasRoomFor(route, size) && lit.has(route));
    written.forEach(paint => label(context, { ...paint, lit: true }, theme, size)); // the line runs over them
    context.strokeStyle = theme.accent;
    context.lineWidth = Math.max(2, 1.5 / view.zoom);
    for (const [x, y, width, height] of boxes) {
      context.beginPath();
      context.roundRect(x - 3, y - 3, width + 6, height + 6, 10);
      context.stroke();
    }
  }

  /** Edges run between the cards, and within frames. */
  private isFree(at: Point): boolean {
    const item = this.decor.itemOf(this.decor.hit(at) ?? "");
    return !item || item.node.kind === "group";
  }

  private lineAt(at: Point, reach: number): number | null {
    this.grid ??= this.placed && new EdgeGrid(this.placed.routes.map(({ points }) => points));
    return this.grid?.nearest(at, reach) ?? null;
  }

  private carriedBy(placed: PlacedScene, line: number): readonly Carried[] {
    return this.values.of(placed.routes[line].edge, placed.scene.nodes);
  }

  /** All lines that carry what this one carries. */
  private spotOf(line: number): Spot | null {
    const { placed } = this;
    if (!placed) return null;
    const same = new Set([line]);
    for (const { key } of this.carriedBy(placed, line)) {
      this.linesOf(placed, key).forEach(other => same.add(other));
    }
    const routes = [...same].map(at => placed.routes[at]);
    const ends = new Set(routes.flatMap(({ edge }) => [edge.source, edge.target]));
    return { line, routes, ends: [...ends] };
  }

  private linesOf(placed: PlacedScene, key: string): readonly number[] {
    if (!this.byValue) {
      this.byValue = new Map();
      for (let line = 0; line < placed.routes.length; line++) {
        for (const value of this.carriedBy(placed, line)) {
          push(this.byValue, value.key, line);
        }
      }
    }
    return this.byValue.get(key) ?? [];
  }

  private tell(x: number, y: number): void {
    const { spot, placed } = this;
    if (!spot || !placed) return;
    const { edge } = placed.routes[spot.line];
    const [source, target] = [edge.source, edge.target].map(place => nameOf(placed.scene.nodes[place]));
    const heading = el("span");
    heading.append(nameSpan("", source), " → ", nameSpan("", target));
    const carried = this.carriedBy(placed, spot.line);
    const notes = [
      ...(edge.kind === "order" ? [words.ORDER] : []),
      ...(edge.kind === "data" && carried.length === 0
        ? [`${edge.label || words.SHAPE_UNKNOWN} · ${words.SIZE_UNKNOWN}`]
        : []),
      ...(carried.length > MAX_ROWS ? [words.moreValues(carried.length - MAX_ROWS)] : []),
      ...(spot.routes.length > 1 ? [words.readIn(spot.routes.length)] : [])
    ];
    this.tip.show(x, y, heading, carried.slice(0, MAX_ROWS).map(rowOf), notes);
  }
}

function rowOf({ shape, dtype, bytes }: Carried): TooltipRow {
  const size = bytes === null ? words.SIZE_UNKNOWN : shortBytes(bytes);
  return { name: shape || words.SHAPE_UNKNOWN, value: `${dtype || words.TYPE_UNKNOWN} · ${size}` };
}

/** Where it is in the model, else what it is called; of long names the end says more. */
function nameOf({ path, title, owner, subtitle }: SceneNode): string {
  const name = path || (owner === undefined || subtitle === "" ? title : `${title} · ${subtitle}`);
  return name.length > MAX_NAME_LENGTH ? `…${name.slice(1 - MAX_NAME_LENGTH)}` : name;
}

function idIn({ scene }: PlacedScene, place: number): string {
  return scene.nodes[place].id;
}

/** Dims all but the boxes. */
function veil(context: CanvasRenderingContext2D, view: Viewport, boxes: readonly Box[], ground: string): void {
  context.beginPath();
  context.rect(-view.x / view.zoom, -view.y / view.zoom, view.width / view.zoom, view.height / view.zoom);
  for (const [x, y, width, height] of boxes) context.roundRect(x, y, width, height, 8);
  context.globalAlpha = VEIL;
  context.fillStyle = ground;
  context.fill("evenodd");
  context.globalAlpha = 1;
}
