// Navigation of a graph: camera moves that the user asks for, and the pointer's hover and clicks.

import * as words from "../words/graph";
import { type Hierarchy, badgeDescriptions } from "../shared/model/hierarchy";
import type { Stage, StagePicture } from "../shared/stage/stage";
import type { GraphStore } from "../shared/model/graph_store";
import type { Box, Point, Viewport } from "../shared/stage/viewport";
import { type CardStyle } from "./paint/card_style";
import { type PaintItem, HEADER, isOnChevron } from "./paint/text_lines";
import type { Camera } from "../shared/stage/camera";
import type { PlacedScene } from "./scene/scene";
import { nameSpan } from "../shared/ui/dom";
import type { Theme } from "../shared/stage/theme";
import { Tooltip } from "../shared/ui/tooltip";
import { EdgeHover } from "./edge_hover";
import { radiusOf } from "./paint/painter";

// What stays where it is on the screen when everything else gets another place.

/** The card nearest to the middle of the view, of those that are there still. */
export function centralCard(
  { scene, boxes }: PlacedScene,
  camera: Camera,
  survives: (id: string) => boolean
): string | null {
  let best: { id: string | null; distance: number } = { id: null, distance: Infinity };
  scene.nodes.forEach(({ id, kind }, place) => {
    const distance = camera.distanceTo(boxes[place]);
    if (kind !== "group" && distance < best.distance && survives(id)) best = { id, distance };
  });
  return best.id;
}

export function boxOf({ scene, boxes }: PlacedScene, id: string): Box | undefined {
  return boxes[scene.nodes.findIndex(node => node.id === id)];
}

/** The card after (1) or before (−1) one, into open frames and out of them at their ends; one for each module. */
export function neighbourOf(items: readonly PaintItem[], id: string | null, direction: number): PaintItem | undefined {
  const cards = items.flatMap(({ node }, place) => (node.kind === "pseudo" ? [] : [place]));
  const first = new Map<number, number>(); // a module that is called several times is selected at its first card
  cards.forEach(place => {
    const { index } = items[place].node;
    if (!first.has(index)) first.set(index, place);
  });
  const isOwn = (place: number) => items[place].node.index < 0 || first.get(items[place].node.index) === place;
  const inside = (frame: number) => cards.filter(place => items[place].node.parent === frame && isOwn(place));
  let at = items.findIndex(({ node }) => node.id === id);
  const inner = at < 0 ? [] : inside(at);
  if (direction > 0 && inner.length > 0) return items[inner[0]];
  while (at >= 0) {
    const { parent } = items[at].node;
    const row = inside(parent);
    const next = row[row.indexOf(at) + direction];
    if (next !== undefined) return items[next];
    if (direction < 0) return parent < 0 ? undefined : items[parent];
    at = parent;
  }
  return undefined;
}

/** The one path that was opened or closed, if it is one. */
export function toggledPath(before: readonly string[], now: readonly string[]): string | undefined {
  const toggled = [...difference(before, now), ...difference(now, before)];
  return toggled.length === 1 ? toggled[0] : undefined;
}

function difference(these: readonly string[], those: readonly string[]): string[] {
  const known = new Set(those);
  return these.filter(path => !known.has(path));
}

const CLOSER = 0.98; // a look that is hardly wider is no step out

export class Navigator {
  private sought: { readonly id: string; readonly index: number } | null = null; // opened, and to be looked into

  constructor(
    private readonly stage: Stage,
    private readonly decor: CardStyle,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly bounds: () => Box // of all that is drawn, lines included
  ) {}

  /** Zooms to what is drawn; what is closed is opened first. */
  enter(item: PaintItem, open: (item: PaintItem) => void): void {
    const { id, index, kind, steps } = item.node;
    if (kind === "group" || !item.container || (index < 0 && !steps)) {
      this.approach(item.box);
      return;
    }
    this.sought = { id, index };
    open(item);
    const isRefused = index >= 0 && !this.store.get("expanded").includes(this.h.path(index));
    if (isRefused) this.sought = null; // too much to be shown
  }

  /** What was opened has its place now. */
  arrived(): void {
    const { sought, decor } = this;
    if (!sought) return;
    const own = decor.itemOf(sought.id);
    const isIt = (item?: PaintItem) => item?.node.kind === "group" && item.node.index === sought.index;
    const opened = isIt(own) ? own : decor.items().find(isIt);
    this.sought = null;
    if (opened) this.approach(opened.box);
  }

  /** False where nothing is selected. */
  toSelection(): boolean {
    const item = this.decor.itemOf(this.decor.idOfSelected() ?? "");
    if (item) this.approach(item.box);
    return item !== undefined;
  }

  toAll(): void {
    const { camera, flight } = this.stage;
    flight.to(camera.lookAround(this.bounds()));
  }

  /** Where all was in view, it still is in a canvas that may have another size now. */
  keepAll(fit: () => void): void {
    const { stage } = this;
    const wasAll = this.isAll(stage.camera.view);
    stage.measure();
    if (wasAll && !this.isAll(stage.camera.view)) fit();
  }

  /** The container around what is in view, up to all of it; from there what the canvas shows the inside of. */
  out(): void {
    const { camera, flight } = this.stage;
    const { width, height } = camera.extent;
    const [x, y] = camera.at(width / 2, height / 2);
    const isAround = ([left, top, across, down]: Box) => x >= left && x <= left + across && y >= top && y <= top + down;
    const frames = this.decor.items().filter(({ node, box }) => node.kind === "group" && isAround(box));
    const boxes = [...frames.map(({ box }) => box).sort((a, b) => a[2] * a[3] - b[2] * b[3]), this.bounds()];
    const { zoom } = camera.pose;
    const wider = boxes.map(box => camera.lookAround(box)).find(look => look.zoom < CLOSER * zoom);
    const focus = this.store.get("focus");
    if (wider) flight.to(wider);
    else if (!this.isAll(camera.view)) this.toAll();
    else if (focus !== 0) this.store.set("focus", this.h.parent(focus));
  }

  /** Whether nothing that is drawn lies outside. */
  isAll([left, top, across, down]: Box): boolean {
    const [x, y, width, height] = this.bounds();
    return left <= x && top <= y && left + across >= x + width && top + down >= y + height;
  }

  private approach(box: Box): void {
    const { camera, flight } = this.stage;
    flight.to(camera.lookInto(box));
  }
}

// The pointer on a graph: an edge or a card that is hovered, and what a click or a double click does.

const REST = 350; // milliseconds
const MAX_LINES = 6;
const MAX_LINE_LENGTH = 160; // characters of a line

export class GraphHover {
  private readonly tip: Tooltip;
  private readonly edges: EdgeHover;
  private item: PaintItem | null = null;
  private resting: ReturnType<typeof setTimeout> | undefined;

  constructor(
    wrap: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly decor: CardStyle,
    private readonly changed: () => void
  ) {
    this.tip = new Tooltip(wrap);
    this.edges = new EdgeHover(this.tip, h, decor, changed);
  }

  /** What stands out: lines, by the ids of their ends, or a card. */
  get spots(): Pick<StagePicture, "lit" | "over"> {
    return { lit: this.edges.lit, over: this.item?.node.id ?? null };
  }

  show(placed: PlacedScene): void {
    if (this.edges.show(placed)) this.leave();
  }

  /** The pointer is at a place in the picture, which is (x, y) in the box around the canvas, or gone. */
  point(at: Point | null, x: number, y: number, zoom: number): void {
    const isOnEdge = this.edges.point(at, x, y, zoom);
    const item = at && !isOnEdge ? this.cardAt(at) : null;
    if (item?.node.id !== this.item?.node.id) {
      if (!isOnEdge) this.tip.hide();
      this.item = item;
      this.changed();
    }
    clearTimeout(this.resting);
    if (item && !this.tip.isShown) this.resting = setTimeout(() => this.tell(item, x, y), REST);
  }

  leave(): void {
    clearTimeout(this.resting);
    this.edges.leave();
    if (!this.item) return;
    this.item = null;
    this.changed();
  }

  /** Over the finished picture, in its coordinates. */
  paint(context: CanvasRenderingContext2D, view: Viewport, theme: Theme): void {
    this.edges.paint(context, view, theme);
    if (!this.item) return;
    const { box, node } = this.item;
    const [x, y, width, height] = box;
    context.beginPath();
    context.roundRect(x, y, width, height, radiusOf(node, height));
    context.strokeStyle = theme.accent;
    context.lineWidth = Math.max(2, 1.5 / view.zoom);
    context.stroke();
  }

  /** Of an open frame the header alone: what lies in it is no part of it. */
  private cardAt(at: Point): PaintItem | null {
    const item = this.decor.itemOf(this.decor.hit(at) ?? "");
    const isInside = item?.node.kind === "group" && at[1] > item.box[1] + 2 * HEADER;
    return item && !isInside ? item : null;
  }

  private tell({ node }: PaintItem, x: number, y: number): void {
    const { h } = this;
    if (node.kind === "pseudo" && node.target === undefined) return;
    const of = node.index >= 0 ? node.index : (node.target ?? node.owner ?? 0);
    const lines =
      node.index < 0 ? [node.detail] : [h.qualifiedName(of), node.detail, ...badgeDescriptions(h, of, this.fold(of))];
    const told =
      node.index < 0 ? [node.title, ...lines, h.path(of) && words.inside(h.path(of))] : [h.path(of), ...lines];
    const [head = node.title, ...notes] = told.filter(line => line !== "").map(line => line.slice(0, MAX_LINE_LENGTH));
    this.tip.show(x, y, nameSpan("mkg-tip-name", head), [], notes.slice(0, MAX_LINES));
  }

  private fold(node: number) {
    const fold = this.h.fold(node);
    return fold && !this.store.get("unfolded").has(fold.first) ? fold : undefined;
  }
}

// What a click on the canvas means.

export interface ClickActions {
  /** `steps`: the operators of the card that was clicked; `inView`: the camera has no reason to move. */
  select(path: string, steps: readonly number[] | null, inView: boolean): void;
  toggle(node: number): void;
  /** Opens or closes a group of operators. */
  toggleOperators(steps: readonly number[]): void;
  /** Zooms to what was clicked twice, once it is open. */
  enter(item: PaintItem): void;
  turn(id: string): void;
}

export function handleClick(item: PaintItem, [x, y]: Point, h: Hierarchy, actions: ClickActions): void {
  const { node } = item;
  if (node.target !== undefined) {
    actions.select(h.path(node.target), null, false);
  } else if (node.steps && isOnChevron(item, x, y)) {
    actions.toggleOperators(node.steps);
  } else if (node.owner !== undefined) {
    actions.select(h.path(node.owner), node.steps ?? null, true);
  } else if (node.index < 0) {
    actions.turn(node.id);
  } else if (isOnChevron(item, x, y)) {
    actions.toggle(node.index);
  } else {
    actions.select(h.path(node.index), node.step === undefined ? null : [node.step], true);
  }
}

export function handleDoubleClick(item: PaintItem, [x, y]: Point, actions: ClickActions): void {
  const isOtherwise = isOnChevron(item, x, y) || (item.node.index < 0 && item.node.kind === "pseudo");
  if (!isOtherwise) actions.enter(item); // the chevron has opened and closed it, a pill has turned its page
}
