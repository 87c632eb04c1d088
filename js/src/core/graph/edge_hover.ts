// The edge under the pointer: its path from the maker to every reader stands out, and a box says what it carries.

import { el, nameSpan } from "../shared/dom";
import { shortBytes } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";
import type { Theme } from "../shared/theme";
import type { Tip, TipRow } from "../shared/tip";
import type { Box, Point, Viewport } from "../shared/viewport";
import type { GraphDecor } from "./decor";
import { EdgeGrid } from "./edge_grid";
import { type Carried, EdgeValues } from "./edge_values";
import { SMALLEST_TEXT } from "./paint";
import { label, stroke } from "./paint_edges";
import type { Placed, Route } from "./routes";
import { LABEL_SIZE } from "./scene_groups";
import type { SceneNode } from "./scene_types";

const REACH = 5; // pixels on the screen
const MOST_ROWS = 5;
const LONGEST_NAME = 44; // characters
const VEIL = 0.4; // opacity of what lies over the rest

/** What stands out. */
interface Spot {
  readonly line: number;
  readonly routes: readonly Route[];
  readonly ends: readonly number[]; // places of cards
}

export class EdgeHover {
  private readonly values: EdgeValues;
  private placed?: Placed;
  private grid?: EdgeGrid; // of what is placed, once it is asked for
  private byValue?: Map<string, number[]>;
  private spot: Spot | null = null;
  private frame = 0;

  constructor(
    private readonly tip: Tip,
    h: Hierarchy,
    private readonly decor: GraphDecor,
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
  show(placed: Placed): boolean {
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
    const isLegible = view.zoom * LABEL_SIZE >= SMALLEST_TEXT;
    const written = this.decor.edges().filter(({ route }) => isLegible && route.label && lit.has(route));
    written.forEach(paint => label(context, { ...paint, lit: true }, theme)); // the line runs over them
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

  private carriedBy(placed: Placed, line: number): readonly Carried[] {
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

  private linesOf(placed: Placed, key: string): readonly number[] {
    if (!this.byValue) {
      this.byValue = new Map();
      for (let line = 0; line < placed.routes.length; line++) {
        for (const value of this.carriedBy(placed, line)) {
          const lines = this.byValue.get(value.key);
          if (lines) lines.push(line);
          else this.byValue.set(value.key, [line]);
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
      ...(edge.kind === "order" ? ["The order of definition: a graph made with args= knows what flows."] : []),
      ...(edge.kind === "data" && carried.length === 0 ? [`${edge.label || "shape unknown"} · size unknown`] : []),
      ...(carried.length > MOST_ROWS ? [`+${carried.length - MOST_ROWS} more`] : []),
      ...(spot.routes.length > 1 ? [`read in ${spot.routes.length} places`] : [])
    ];
    this.tip.show(x, y, heading, carried.slice(0, MOST_ROWS).map(rowOf), notes);
  }
}

function rowOf({ shape, dtype, bytes }: Carried): TipRow {
  const size = bytes === null ? "size unknown" : shortBytes(bytes);
  return { name: shape || "shape unknown", value: `${dtype || "type unknown"} · ${size}` };
}

/** Where it is in the model, else what it is called; of long names the end says more. */
function nameOf({ path, title, owner, subtitle }: SceneNode): string {
  const name = path || (owner === undefined || subtitle === "" ? title : `${title} · ${subtitle}`);
  return name.length > LONGEST_NAME ? `…${name.slice(1 - LONGEST_NAME)}` : name;
}

function idIn({ scene }: Placed, place: number): string {
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
