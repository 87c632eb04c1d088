// The picture of the graph on a canvas: links, open groups, circles, and as many names as there is room for.

import { fontOf, type Measure } from "../../shared/base/canvas";
import { textColorOn } from "../../shared/stage/color";
import { shortNumber } from "../../shared/base/format";
import type { Viewport } from "../../shared/stage/viewport";
import { mix, readable, type Theme } from "../../shared/stage/theme";
import type { Circle } from "./circle_layout";
import { isOfModels, type MapItem, type MapLink } from "../data/map_items";
import { type Rect, LINE, type MapLabel, MapLabels, SMALL } from "./map_labels";

interface PaintedItem {
  readonly item: MapItem;
  readonly circle: Circle;
  readonly fill: string;
  readonly isSelected: boolean;
  readonly isDim: boolean;
}

export interface Painted {
  readonly items: readonly PaintedItem[];
  readonly links: readonly MapLink[];
  readonly related: readonly MapLink[]; // of the selection
  readonly hovered: string | null;
}

const COUNTED = 8; // radius on the screen from which a number has room
const DIM = 0.3;

export class CirclePainter {
  /** The labels of the latest picture, on the screen. */
  drawn: readonly MapLabel[] = [];
  readonly labels: MapLabels;
  private context!: CanvasRenderingContext2D; // what is painted on at the moment

  constructor(private readonly measure: Measure) {
    this.labels = new MapLabels(measure);
  }

  paint(
    context: CanvasRenderingContext2D,
    { items, links, related, hovered }: Painted,
    view: Viewport,
    theme: Theme
  ): void {
    this.context = context;
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.lineJoin = "round";
    const placed = items.map(({ circle }) => onScreen(circle, view));
    const seen = items.flatMap((_, i) => (isVisible(placed[i], view) ? [i] : []));
    for (const link of links.filter(({ kind }) => kind !== "contains"))
      this.link(link, items, placed, view.zoom, theme);
    const open = seen.filter(i => items[i].item.isOpen);
    open.forEach(i => this.frame(items[i], placed[i], theme));
    for (const link of links.filter(({ kind }) => kind === "contains"))
      this.link(link, items, placed, view.zoom, theme);
    seen.filter(i => !items[i].item.isOpen).forEach(i => this.body(items[i], placed[i], theme));
    for (const link of related) this.arrow(placed[link.from], placed[link.to], theme);
    this.labels.at(items, view.zoom);
    this.drawn = this.labels.with(hovered).flatMap(label => {
      const box = moved(label.box, view);
      return isInView(box, view) ? [{ ...label, box }] : [];
    });
    const covered = new Set(this.drawn.flatMap(({ box, item }) => (coversMiddle(box, placed[item]) ? [item] : [])));
    for (const i of seen) if (!items[i].item.isOpen && !covered.has(i)) this.count(items[i], placed[i], theme);
    for (const label of this.drawn) this.label(label, items, theme);
  }

  private link(
    { from, to, weight, kind }: MapLink,
    items: readonly PaintedItem[],
    placed: readonly Circle[],
    zoom: number,
    theme: Theme
  ): void {
    const { context } = this;
    const isDim = items[from].isDim || items[to].isDim;
    const share = kind === "contains" ? 0.14 + 0.2 * weight : 0.2 + 0.3 * weight;
    context.strokeStyle = mix(theme.canvas, theme.text, isDim ? share * 0.3 : share);
    context.lineWidth = kind === "contains" ? 1 : 0.8 + 3 * weight * Math.min(1, 1.4 * zoom);
    context.beginPath();
    curve(context, placed[from], placed[to]);
    context.stroke();
  }

  private arrow(from: Circle, to: Circle, theme: Theme): void {
    const { context } = this;
    context.strokeStyle = theme.accent;
    context.fillStyle = theme.accent;
    context.lineWidth = 1.8;
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(dx, dy) || 1;
    const [x, y] = [to.x - (dx / length) * (to.r + 2), to.y - (dy / length) * (to.r + 2)];
    context.beginPath();
    context.moveTo(from.x + (dx / length) * from.r, from.y + (dy / length) * from.r);
    context.lineTo(x, y);
    context.stroke();
    const angle = Math.atan2(dy, dx);
    context.beginPath();
    context.moveTo(x, y);
    for (const turn of [2.7, -2.7]) context.lineTo(x + 9 * Math.cos(angle + turn), y + 9 * Math.sin(angle + turn));
    context.fill();
  }

  private frame({ item, fill, isSelected, isDim }: PaintedItem, circle: Circle, theme: Theme): void {
    const { context } = this;
    this.outline(item, circle, 0);
    context.fillStyle = mix(theme.canvas, fill, item.depth === 0 ? 0.1 : 0.17);
    context.fill();
    context.strokeStyle = isSelected ? theme.accent : mix(theme.canvas, fill, isDim ? 0.3 : 0.75);
    context.lineWidth = isSelected ? 2.6 : 1.4;
    context.stroke();
  }

  private body({ item, fill, isSelected, isDim }: PaintedItem, circle: Circle, theme: Theme): void {
    const { context } = this;
    if (isSelected) {
      this.outline(item, circle, 5);
      context.fillStyle = mix(theme.canvas, theme.accent, 0.35);
      context.fill();
    }
    const shade = isDim ? mix(theme.canvas, fill, DIM) : fill;
    if (item.kind === "type") this.behind(circle, shade, theme);
    this.outline(item, circle, 0);
    context.fillStyle = item.kind === "more" ? theme.canvas : shade;
    context.fill();
    context.setLineDash(item.kind === "more" ? [3, 3] : []);
    context.strokeStyle = isSelected ? theme.accent : mix(shade, theme.text, item.kind === "more" ? 0.4 : 0.32);
    context.lineWidth = isSelected ? 2.6 : item.isHit ? 2 : 1.1;
    context.stroke();
    context.setLineDash([]);
    if (item.kind === "module" && item.count > 0 && circle.r > 5) this.core(circle, shade, theme);
  }

  /** A type stands for several: another circle peeps out. */
  private behind({ x, y, r }: Circle, shade: string, theme: Theme): void {
    const { context } = this;
    const shift = Math.min(5, r * 0.22);
    context.beginPath();
    context.arc(x + shift, y - shift, r, 0, 2 * Math.PI);
    context.fillStyle = mix(theme.canvas, shade, 0.6);
    context.fill();
    context.strokeStyle = mix(shade, theme.text, 0.25);
    context.lineWidth = 1;
    context.stroke();
  }

  /** A structure with others inside has a ring. */
  private core({ x, y, r }: Circle, shade: string, theme: Theme): void {
    const { context } = this;
    context.beginPath();
    context.arc(x, y, r * 0.55, 0, 2 * Math.PI);
    context.strokeStyle = mix(shade, theme.dark ? "#ffffff" : "#000000", 0.4);
    context.lineWidth = 1.3;
    context.stroke();
  }

  /** Models and families are rounded squares; all else are circles, and what is open, for so its members are packed. */
  private outline({ kind, isOpen }: MapItem, { x, y, r }: Circle, wider: number): void {
    const { context } = this;
    const size = r + wider;
    context.beginPath();
    if (isOfModels(kind) && !isOpen) context.roundRect(x - size, y - size, 2 * size, 2 * size, size * 0.34);
    else context.arc(x, y, size, 0, 2 * Math.PI);
  }

  /** How many are in a group, where its name stands outside. */
  private count({ item, fill, isDim }: PaintedItem, { x, y, r }: Circle, theme: Theme): void {
    if (!item.isGroup || isDim || r < COUNTED) return;
    const text = shortNumber(item.count);
    if (this.measure(text, SMALL, true) > r * 1.7) return;
    this.text(text, x, y + 0.5, SMALL, true, item.kind === "more" ? theme.text : textColorOn(fill), "");
  }

  private label({ item, kind, lines, box, isTag }: MapLabel, items: readonly PaintedItem[], theme: Theme): void {
    const { context } = this;
    const {
      fill,
      item: { depth }
    } = items[item];
    const [x, y] = [(box[0] + box[2]) / 2, (box[1] + box[3] - LINE * (lines.length - 1)) / 2];
    const ground = kind === "header" ? mix(theme.canvas, fill, depth === 0 ? 0.1 : 0.17) : theme.canvas;
    if (isTag) {
      context.beginPath();
      context.roundRect(box[0], box[1], box[2] - box[0], box[3] - box[1], 4);
      context.fillStyle = ground;
      context.fill();
      context.strokeStyle = mix(theme.canvas, fill, 0.6);
      context.lineWidth = 1;
      context.stroke();
    }
    lines.forEach(({ text, size, isBold, isMuted }, i) => {
      const plain = isMuted ? readable(theme.muted, theme.text, ground) : theme.text;
      const ink = kind === "inside" ? textColorOn(fill) : plain;
      this.text(text, x, y + i * LINE, size, isBold, ink, kind === "inside" ? "" : ground);
    });
  }

  private text(text: string, x: number, y: number, size: number, bold: boolean, ink: string, halo: string): void {
    const { context } = this;
    context.font = fontOf(size, bold);
    if (halo) {
      context.strokeStyle = halo;
      context.lineWidth = 3.5;
      context.strokeText(text, x, y);
    }
    if (ink) context.fillStyle = ink;
    context.fillText(text, x, y);
  }
}

function onScreen({ x, y, r }: Circle, { x: left, y: top, zoom }: Viewport): Circle {
  return { x: x * zoom + left, y: y * zoom + top, r: r * zoom };
}

function moved([left, top, right, bottom]: Rect, { x, y }: Viewport): Rect {
  return [left + x, top + y, right + x, bottom + y];
}

/** Whether a name stands where the number of a circle would. */
const coversMiddle = ([left, top, right, bottom]: Rect, { x, y }: Circle): boolean =>
  left < x + 8 && right > x - 8 && top < y + 6 && bottom > y - 6;

const isInView = ([left, top, right, bottom]: Rect, { width, height }: Viewport): boolean =>
  right > 0 && bottom > 0 && left < width && top < height;

function isVisible({ x, y, r }: Circle, { width, height }: Viewport): boolean {
  return x + r > -60 && y + r > -40 && x - r < width + 60 && y - r < height + 40;
}

/** From rim to rim, bent a little, so that lines that cross can be told apart. */
function curve(context: CanvasRenderingContext2D, from: Circle, to: Circle): void {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const [ux, uy] = [dx / length, dy / length];
  const bend = Math.min(40, length * 0.12);
  context.moveTo(from.x + ux * from.r, from.y + uy * from.r);
  context.quadraticCurveTo(
    (from.x + to.x) / 2 - uy * bend,
    (from.y + to.y) / 2 + ux * bend,
    to.x - ux * to.r,
    to.y - uy * to.r
  );
}
