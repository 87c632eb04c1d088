// The pointer on a graph: an edge or a card that is hovered, and what a click or a double click does.

import { type Hierarchy, badgeDescriptions } from "../../shared/model/hierarchy";
import { nameSpan } from "../../shared/ui/dom";
import type { GraphStore } from "../../shared/model/graph_store";
import type { StagePicture } from "../../shared/stage/stage";
import type { Theme } from "../../shared/stage/theme";
import { Tooltip } from "../../shared/ui/tooltip";
import type { Point, Viewport } from "../../shared/stage/viewport";
import type { CardStyle } from "../paint/card_style";
import { EdgeHover } from "./edge_hover";
import { radiusOf } from "../paint/painter";
import { HEADER, isOnChevron, type PaintItem } from "../paint/paint_items";
import type { PlacedScene } from "../scene/scene_types";

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
    const told = node.index < 0 ? [node.title, ...lines, h.path(of) && `in ${h.path(of)}`] : [h.path(of), ...lines];
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
  /** `step`: the operator that was clicked; `inView`: the camera has no reason to move. */
  select(path: string, step: number | null, inView: boolean): void;
  toggle(node: number): void;
  /** Opens or closes a stretch of operators. */
  toggleGroup(first: number): void;
  /** Zooms to what was clicked twice, once it is open. */
  enter(item: PaintItem): void;
  turn(id: string): void;
}

export function handleClick(item: PaintItem, [x, y]: Point, h: Hierarchy, actions: ClickActions): void {
  const { node } = item;
  if (node.target !== undefined) {
    actions.select(h.path(node.target), null, false);
  } else if (node.steps && node.step !== undefined && isOnChevron(item, x, y)) {
    actions.toggleGroup(node.step);
  } else if (node.owner !== undefined) {
    actions.select(h.path(node.owner), node.step ?? null, true);
  } else if (node.index < 0) {
    actions.turn(node.id);
  } else if (isOnChevron(item, x, y)) {
    actions.toggle(node.index);
  } else {
    actions.select(h.path(node.index), node.step ?? null, true);
  }
}

export function handleDoubleClick(item: PaintItem, [x, y]: Point, actions: ClickActions): void {
  const isOtherwise = isOnChevron(item, x, y) || (item.node.index < 0 && item.node.kind === "pseudo");
  if (!isOtherwise) actions.enter(item); // the chevron has opened and closed it, a pill has turned its page
}
