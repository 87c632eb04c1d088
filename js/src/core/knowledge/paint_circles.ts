// The picture of the graph on a canvas: links, open groups, circles, and as many names as there is room for.

import { fitted, fontOf, type Measure } from "../shared/canvas";
import { inkOn } from "../shared/color";
import { shortNumber } from "../shared/format";
import type { Viewport } from "../shared/viewport";
import { mix, readable, type Theme } from "../shared/theme";
import type { Circle } from "./circle_layout";
import type { MapLink, MapItem } from "./items";

export interface PaintedItem {
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
}

const NAME = 12; // CSS pixels, at every zoom
const SMALL = 10.5;
const INSIDE = 25; // radius on the screen from which names stand inside
const SMALLEST = 4.5; // radius on the screen of what has a name
const DIM = 0.3;

type Rect = readonly [left: number, top: number, right: number, bottom: number];

export class CirclePainter {
  private taken: Rect[] = [];
  private width = 0;

  private context!: CanvasRenderingContext2D; // what is painted on at the moment

  constructor(private readonly measure: Measure) {}

  paint(context: CanvasRenderingContext2D, { items, links, related }: Painted, view: Viewport, theme: Theme): void {
    this.context = context;
    context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    this.width = view.width;
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.lineJoin = "round";
    const placed = items.map(({ circle }) => onScreen(circle, view));
    const seen = items.flatMap((_, i) => (isSeen(placed[i], view) ? [i] : []));
    for (const link of links.filter(({ kind }) => kind === "shares")) this.link(link, items, placed, view.zoom, theme);
    const open = seen.filter(i => items[i].item.isOpen);
    open.forEach(i => this.frame(items[i], placed[i], theme));
    for (const link of links.filter(({ kind }) => kind === "contains"))
      this.link(link, items, placed, view.zoom, theme);
    seen.filter(i => !items[i].item.isOpen).forEach(i => this.body(items[i], placed[i], theme));
    for (const link of related) this.arrow(placed[link.from], placed[link.to], theme);
    this.taken = [];
    open.forEach(i => this.header(items[i], placed[i], theme));
    const closed = seen.filter(i => !items[i].item.isOpen);
    const inside = new Set(closed.filter(i => this.isInside(items[i], placed[i])));
    inside.forEach(i => this.namedInside(items[i], placed[i]));
    const outside = closed.filter(i => !inside.has(i) && placed[i].r >= SMALLEST);
    outside.sort((a, b) => priority(items[b]) - priority(items[a]) || placed[b].r - placed[a].r || a - b);
    const circles = closed.filter(i => placed[i].r >= SMALLEST).map(i => inner(placed[i]));
    outside.forEach(i => this.count(items[i], placed[i], theme));
    outside.forEach(i => this.namedOutside(items[i], placed[i], circles, theme));
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
    const share = kind === "shares" ? 0.2 + 0.3 * weight : 0.14 + 0.2 * weight;
    context.strokeStyle = mix(theme.canvas, theme.text, isDim ? share * 0.3 : share);
    context.lineWidth = kind === "shares" ? 0.8 + 3 * weight * Math.min(1, 1.4 * zoom) : 1;
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

  /** Models and families are rounded squares, all else are circles. */
  private outline({ kind }: MapItem, { x, y, r }: Circle, wider: number): void {
    const { context } = this;
    const size = r + wider;
    context.beginPath();
    if (kind === "model" || kind === "family") context.roundRect(x - size, y - size, 2 * size, 2 * size, size * 0.34);
    else context.arc(x, y, size, 0, 2 * Math.PI);
  }

  private header(painted: PaintedItem, circle: Circle, theme: Theme): void {
    const { item, fill } = painted;
    const width = Math.min(220, Math.max(84, circle.r * 1.5));
    if (circle.r < 22) return;
    const text = fitted(`${item.title} · ${shortNumber(item.count)}`, width, NAME, true, this.measure);
    const ground = mix(theme.canvas, fill, 0.12);
    const top =
      circle.y - circle.r + (item.kind === "model" || item.kind === "family" ? 15 : Math.min(24, circle.r * 0.14) + 4);
    const half = this.measure(text, NAME, true) / 2;
    this.taken.push([circle.x - half, top - 8, circle.x + half, top + 8]);
    this.text(text, circle.x, top, NAME, true, theme.text, ground);
  }

  private namedInside({ item, fill, isDim }: PaintedItem, { x, y, r }: Circle): void {
    if (isDim) return;
    const ink = inkOn(fill);
    const whole = this.measure(item.detail, SMALL, false) <= r * 1.6 ? item.detail : shortNumber(item.count);
    this.text(item.title, x, y - 7, NAME, true, ink, "");
    this.text(whole, x, y + 7, SMALL, false, ink, "");
  }

  /** How many are in a group, where its name stands below. */
  private count({ item, fill, isDim }: PaintedItem, { x, y, r }: Circle, theme: Theme): void {
    if (!item.isGroup || isDim) return;
    const text = shortNumber(item.count);
    if (this.measure(text, SMALL, true) <= r * 1.7)
      this.text(text, x, y + 0.5, SMALL, true, item.kind === "more" ? theme.text : inkOn(fill), "");
  }

  /** Below the circle, above or beside it, where no other name or circle is; the selected one's always. */
  private namedOutside(painted: PaintedItem, { x, y, r }: Circle, circles: readonly Rect[], theme: Theme): void {
    const { item, isDim, isSelected } = painted;
    if (isDim && !isSelected) return;
    const title = fitted(item.title, Math.max(96, r * 2.6), SMALL + 0.5, isSelected, this.measure);
    const half = this.measure(title, SMALL + 0.5, isSelected) / 2;
    const at = (dx: number, dy: number): Rect => [x + dx - half, y + dy - 6.5, x + dx + half, y + dy + 6.5];
    const beside = r + half + 5;
    const places = [at(0, r + 9), at(0, -r - 9), at(beside, 0), at(-beside, 0)];
    const free = places.filter(place => place[0] >= 2 && place[2] <= this.width - 2 && !overlaps(this.taken, place));
    const place = free.find(each => !overlaps(circles, each)) ?? (isSelected ? places[0] : undefined);
    if (!place) return;
    this.taken.push(place);
    const middle = place[1] + 6.5;
    this.text(title, place[0] + half, middle, SMALL + 0.5, isSelected, theme.text, theme.canvas);
    if (place === places[0] && !item.isGroup) this.detail(item.detail, x, middle + 12.5, circles, theme);
  }

  /** What a single structure is like, where that disturbs nothing. */
  private detail(text: string, x: number, y: number, circles: readonly Rect[], theme: Theme): void {
    const short = fitted(text, 96, SMALL - 0.5, false, this.measure);
    const half = this.measure(short, SMALL - 0.5, false) / 2;
    const rect: Rect = [x - half, y - 6, x + half, y + 6];
    if (!short || overlaps(this.taken, rect) || overlaps(circles, rect)) return;
    this.taken.push(rect);
    this.text(short, x, y, SMALL - 0.5, false, readable(theme.muted, theme.text, theme.canvas), theme.canvas);
  }

  /** Whether the whole name has room in the circle. */
  private isInside({ item }: PaintedItem, { r }: Circle): boolean {
    return r >= INSIDE && this.measure(item.title, NAME, true) <= r * 1.72;
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

/** The middle of a circle, where its count stands: what a name must not cover. */
function inner({ x, y, r }: Circle): Rect {
  const half = r * (r > 9 ? 0.55 : 0.8);
  return [x - half, y - half, x + half, y + half];
}

function overlaps(rects: readonly Rect[], [left, top, right, bottom]: Rect): boolean {
  return rects.some(([l, t, r, b]) => left < r && right > l && top < b && bottom > t);
}

function priority({ isSelected, item }: PaintedItem): number {
  return (isSelected ? 4 : 0) + (item.isHit ? 2 : 0) + (item.depth === 0 ? 0 : 1);
}

function onScreen({ x, y, r }: Circle, { x: left, y: top, zoom }: Viewport): Circle {
  return { x: x * zoom + left, y: y * zoom + top, r: r * zoom };
}

function isSeen({ x, y, r }: Circle, { width, height }: Viewport): boolean {
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
