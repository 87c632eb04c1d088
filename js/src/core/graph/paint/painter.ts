// The painter of a graph: frames, edges, cards and their text on one canvas, or as a PNG.

import * as words from "../../words/graph";
import { contextOf, FONT, fontOf, type Measure } from "../../shared/base/canvas";
import { textColorOn } from "../../shared/stage/color";
import { AXIS, INSIDE_GLYPH, mix, readable, STATUS_STYLE, type Theme } from "../../shared/stage/theme";
import { boundsOf, type Box, sizeAt, type Viewport } from "../../shared/stage/viewport";
import { type EdgePaint, hasRoomFor, labelBox, paintEdges } from "./paint_edges";
import {
  CHEVRON,
  HEADER,
  isReadable,
  type Line,
  linesOf,
  namedFrames,
  nameLine,
  type PaintItem,
  TITLE,
  zoomedLines
} from "./text_lines";
import { LABEL_SIZE } from "../scene/edge_labels";
import type { SceneNode } from "../scene/scene";
import type { StageText } from "../../shared/stage/stage";

const DIM = 0.4; // of what was not searched for
const QUIET = 0.6; // opacity of what two models have in common
const RADIUS = 8;
const ROUND = 13; // operators are no modules, and are to look it
const STACK = 5; // how far the card behind a stack peeps out

interface Prepared {
  item: PaintItem;
  lines: Line[];
  size?: number; // of the letters in them
}

export class GraphPainter {
  private cards: Prepared[] = [];
  private frames: Prepared[] = [];
  private edges: { paint: EdgePaint; bounds: Box }[] = [];

  private isFull = true; // cards say all that they have to
  private textSize = FONT.text;
  private context!: CanvasRenderingContext2D; // what is painted on at the moment

  constructor(private readonly measure: Measure) {}

  setPicture(items: readonly PaintItem[], edges: readonly EdgePaint[]): void {
    const prepared = items.map((item): Prepared => ({ item, lines: [] }));
    this.frames = prepared.filter(({ item }) => item.node.kind === "group");
    this.cards = prepared.filter(({ item }) => item.node.kind !== "group");
    this.edges = edges.map(paint => ({ paint, bounds: around(paint.route.points) }));
  }

  paint(context: CanvasRenderingContext2D, view: Viewport, theme: Theme): void {
    this.context = context;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    const scale = view.zoom * view.ratio;
    context.setTransform(scale, 0, 0, scale, view.x * view.ratio, view.y * view.ratio);
    context.textBaseline = "middle";
    this.isFull = isReadable(view.zoom);
    this.textSize = sizeAt(FONT.text, view.zoom);
    const shown = (prepared: Prepared): Prepared => {
      const { item, size } = prepared;
      if (!this.isFull) return { item, lines: zoomedLines(item, view.zoom, this.measure) };
      if (size === this.textSize) return prepared;
      return Object.assign(prepared, { size: this.textSize, lines: linesOf(item, this.measure, view.zoom) });
    };
    const visible = ({ item }: Prepared) => isInView(item.box, view);
    const frames = this.frames.filter(visible);
    frames.forEach(({ item }) => this.body(item, tinted(item, theme.frame(item.depth), 0.1), theme));
    const edges = this.edges.filter(({ bounds }) => isInView(bounds, view));
    paintEdges(
      context,
      edges.map(({ paint }) => paint),
      theme,
      1 / view.zoom,
      this.isFull ? sizeAt(LABEL_SIZE, view.zoom) : 0
    );
    const named = this.isFull ? new Set() : namedFrames(frames, view.zoom);
    frames.forEach(frame => this.header(named.has(frame) ? { ...frame, lines: [] } : shown(frame), theme));
    this.cards.filter(visible).forEach(card => this.card(shown(card), theme));
    frames.filter(frame => named.has(frame)).forEach(({ item }) => this.nameFrame(item, view.zoom, theme));
  }

  /** Over what cannot be read at this zoom the name of the frame around it. */
  private nameFrame(item: PaintItem, zoom: number, theme: Theme): void {
    const line = nameLine(item, zoom, this.measure);
    const [width, height] = [this.measure(line.text, line.size, true) + line.size, 1.6 * line.size];
    const [x, y] = [item.box[0] + line.x - width / 2, item.box[1] + line.y - height / 2];
    this.context.globalAlpha = 0.88;
    this.shape(x, y, width, height, height / 2, theme.surface, theme.border, 1 / zoom);
    this.context.globalAlpha = 1;
    this.write(item, [line], theme.text, theme.text);
  }

  /** Over the edges that lead into the frame. */
  private header({ item, lines }: Prepared, theme: Theme): void {
    const { box, fill } = item;
    if (fill) {
      this.shape(box[0] + box[2] - 26, box[1] + HEADER - 6, 12, 12, 3, fill);
    }
    const ground = tinted(item, theme.frame(item.depth), 0.1);
    this.write(item, lines, theme.text, theme.quiet(ground), ground);
    if (this.isFull && lines.length > 0) {
      if (item.container) {
        this.chevron(box[0] + CHEVRON.open, box[1] + HEADER, true, theme.muted);
      }
      this.badges(item, box[0] + box[2] - (fill ? 34 : 12), box[1] + HEADER, theme);
    }
    this.statusMark(item, theme);
  }

  private card({ item, lines }: Prepared, theme: Theme): void {
    const { context } = this;
    const { node, box, fill } = item;
    const share = shareOf(item);
    context.globalAlpha = share;
    const ground = node.kind === "pseudo" ? theme.canvas : (fill ?? tinted(item, theme.surface, 0.22));
    this.body(item, ground, theme);
    const { ink, quiet } = textColorsOn(mix(theme.canvas, ground, share), share, fill !== null, theme);
    if (node.kind !== "pseudo" && !node.isGlyph) {
      const hue = theme.dark ? mix(item.family, "#ffffff", 0.25) : item.family;
      this.shape(box[0] + 7, box[1] + 9, 4, box[3] - 18, 2, fill ? ink : hue);
    }
    context.globalAlpha = 1; // texts are never too faint to be read
    this.write(item, lines, ink, quiet);
    if (this.isFull && lines.length > 0) {
      if (item.container) {
        this.chevron(box[0] + CHEVRON.closed, box[1] + TITLE, false, ink);
      }
      this.badges(item, box[0] + box[2] - 10, box[1] + TITLE, theme);
    }
    this.statusMark(item, theme);
  }

  /** Outline and fill, with the card behind a stack and the glow of the selection. */
  private body(item: PaintItem, fill: string, theme: Theme): void {
    const { context } = this;
    const { node, box, selected } = item;
    const [x, y, width, height] = box;
    const radius = radiusOf(node, height);
    const stroke = strokeOf(item, theme);
    if (selected) {
      const glow = mix(theme.canvas, theme.accent, 0.28);
      this.shape(x - 5, y - 5, width + 10, height + 10, radius + 4, glow);
    }
    if (node.kind === "fold") {
      this.shape(
        x + STACK,
        y + STACK,
        width,
        height,
        radius,
        mix(theme.canvas, fill, 0.75),
        mix(theme.canvas, stroke, 0.6)
      );
    }
    context.setLineDash(node.target === undefined ? [] : [4, 3]);
    this.shape(x, y, width, height, radius, fill, stroke, lineWidth(item));
    context.setLineDash([]);
  }

  /** `halo`: the ground, where lines may run under the text. */
  private write({ box }: PaintItem, lines: readonly Line[], strong: string, weak: string, halo = ""): void {
    const { context } = this;
    for (const line of lines) {
      context.font = line.font;
      context.textAlign = line.centred ? "center" : "left";
      if (halo !== "") {
        context.strokeStyle = halo;
        context.lineWidth = 5;
        context.lineJoin = "round";
        context.strokeText(line.text, box[0] + line.x, box[1] + line.y);
      }
      context.fillStyle = line.strong ? strong : weak;
      context.fillText(line.text, box[0] + line.x, box[1] + line.y);
    }
  }

  private badges({ node, flag }: PaintItem, right: number, middle: number, theme: Theme): void {
    const used = node.badge === "" ? 0 : this.badge(node.badge, right, middle, theme) + 4;
    if (flag !== "") {
      this.badge(flag, right - used, middle, theme);
    }
  }

  /** Returns its width. */
  private badge(text: string, right: number, middle: number, theme: Theme): number {
    const { context } = this;
    const width = this.measure(text, this.textSize, true) + 10;
    const height = Math.max(16, this.textSize + 4);
    const [ground, ink] = badgeColors(theme);
    this.shape(right - width, middle - height / 2, width, height, height / 2, ground);
    context.font = fontOf(this.textSize, true);
    context.textAlign = "center";
    context.fillStyle = ink;
    context.fillText(text, right - width / 2, middle + 0.5);
    return width;
  }

  private statusMark({ mark, box }: PaintItem, theme: Theme): void {
    if (!mark) {
      return;
    }
    const { context } = this;
    const isQuiet = mark === words.CHANGED_INSIDE;
    const { color, glyph } = isQuiet ? { color: theme.surface, glyph: INSIDE_GLYPH } : STATUS_STYLE[mark];
    this.shape(box[0] - 9, box[1] - 9, 22, 22, 11, color, isQuiet ? theme.muted : undefined);
    context.font = fontOf(12, true);
    context.textAlign = "center";
    context.fillStyle = isQuiet ? theme.muted : textColorOn(color);
    context.fillText(glyph, box[0] + 2, box[1] + 2.5);
  }

  private shape(
    x: number,
    y: number,
    width: number,
    height: number,
    radius: number,
    fill: string,
    stroke?: string,
    line = 1.2
  ): void {
    const { context } = this;
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    context.fillStyle = fill;
    context.fill();
    if (stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = line;
      context.stroke();
    }
  }

  private chevron(x: number, y: number, open: boolean, color: string): void {
    const { context } = this;
    context.beginPath();
    if (open) {
      context.moveTo(x - 4, y - 2);
      context.lineTo(x, y + 2.5);
      context.lineTo(x + 4, y - 2);
    } else {
      context.moveTo(x - 2, y - 4);
      context.lineTo(x + 2.5, y);
      context.lineTo(x - 2, y + 4);
    }
    context.lineWidth = 1.8;
    context.lineCap = "round";
    context.lineJoin = "round";
    context.strokeStyle = color;
    context.stroke();
  }
}

/** Of a card's corners. */
export function radiusOf({ kind, target }: SceneNode, height: number): number {
  return kind === "pseudo" && target === undefined ? height / 2 : kind === "operator" ? ROUND : RADIUS;
}

/** Ground and ink of the small signs. */
export function badgeColors({ surface, accent, dark }: Theme): readonly [ground: string, ink: string] {
  return [mix(surface, accent, dark ? 0.3 : 0.14), mix(accent, dark ? "#ffffff" : "#000000", dark ? 0.6 : 0.35)];
}

/** How much of a card shines through to the eye. */
function shareOf({ dim, status, selected, hit }: PaintItem): number {
  return dim ? DIM : status === "same" && !selected && !hit ? QUIET : 1;
}

/** Inks of the name and of the rest, on a ground of which `share` is the card's own. */
export function textColorsOn(
  ground: string,
  share: number,
  isFilled: boolean,
  theme: Theme
): { ink: string; quiet: string } {
  const full = isFilled ? textColorOn(ground) : theme.text;
  const ink = share < 1 ? readable(mix(ground, full, share), full, ground) : full;
  return { ink, quiet: isFilled || share < 1 ? ink : theme.quiet(ground) };
}

function lineWidth(item: PaintItem): number {
  return item.selected || item.onAxis ? 2.4 : item.hit || differs(item) ? 2 : 1.2;
}

/** Itself, or with what is around it; not by what is inside it alone. */
function differs({ status, mark }: PaintItem): boolean {
  return status !== null && status !== "same" && mark !== words.CHANGED_INSIDE;
}

/** The ground of a card or frame, with a touch of what a comparison says of it. */
function tinted(item: PaintItem, ground: string, share: number): string {
  if (item.onAxis && item.node.kind !== "group") {
    return mix(ground, AXIS, 0.2);
  }
  return item.status && differs(item) ? mix(ground, STATUS_STYLE[item.status].color, share) : ground;
}

function strokeOf(item: PaintItem, theme: Theme): string {
  const { node, fill, status, selected, hit, onAxis } = item;
  if (onAxis) {
    return theme.axis;
  }
  if (selected || hit) {
    return theme.accent;
  }
  if (status && differs(item)) {
    return STATUS_STYLE[status].color;
  }
  return fill && node.kind !== "group" ? mix(fill, theme.text, 0.3) : theme.border;
}

function around(points: readonly (readonly [number, number])[]): Box {
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return [left, top, Math.max(...xs) - left, Math.max(...ys) - top];
}

function isInView([left, top, width, height]: Box, view: Viewport): boolean {
  const margin = 12;
  const [x, y] = [left * view.zoom + view.x, top * view.zoom + view.y];
  return (
    x < view.width + margin &&
    y < view.height + margin &&
    x + width * view.zoom > -margin &&
    y + height * view.zoom > -margin
  );
}

// The whole picture as a PNG.

const SCALE = 2;
const MAX_CANVAS_SIDE = 8000; // pixels that every browser's canvas takes
const MARGIN = 24;

export function exportPng(
  items: readonly PaintItem[],
  edges: readonly EdgePaint[],
  measure: Measure,
  theme: Theme
): Promise<Blob> {
  const [x, y, w, h] = boundsOf(items.map(({ box }) => box));
  const zoom = Math.min(SCALE, MAX_CANVAS_SIDE / Math.max(w + 2 * MARGIN, h + 2 * MARGIN));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((w + 2 * MARGIN) * zoom);
  canvas.height = Math.ceil((h + 2 * MARGIN) * zoom);
  const context = contextOf(canvas);
  if (!context) {
    return Promise.reject(new Error(words.NO_PICTURE));
  }
  const painter = new GraphPainter(measure);
  const camera = { x: (MARGIN - x) * zoom, y: (MARGIN - y) * zoom, zoom };
  painter.setPicture(items, edges);
  painter.paint(context, { ...camera, width: canvas.width, height: canvas.height, ratio: 1 }, theme);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.globalCompositeOperation = "destination-over"; // the ground comes last, under what is painted
  context.fillStyle = theme.canvas;
  context.fillRect(0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob(blob => (blob ? resolve(blob) : reject(new Error(words.NO_PICTURE))), "image/png");
  });
}

// Where the texts of a picture are painted, as data: for tests and scripts in the page, which measure how legible it is.

const LETTER = 1.2; // height of a line for its size

/** The lines of text on a card, or in the header of a frame, at this zoom; the first is its title. */
export function textsOn(item: PaintItem, measure: Measure, zoom = 1): StageText[] {
  const lines = isReadable(zoom) ? linesOf(item, measure, zoom) : zoomedLines(item, zoom, measure);
  return lines.map((line, at) => {
    const { text, size } = line;
    return { text, size, box: boxOf(item, line, measure), isTitle: at === 0 };
  });
}

/** What is written on an edge: where there is room for it, and on those of the selected card. */
export function labelsOn({ route, lit }: EdgePaint, measure: Measure, zoom = 1): StageText[] {
  const { label: text } = route.edge;
  const size = sizeAt(LABEL_SIZE, zoom);
  if (text === "" || !(lit || hasRoomFor(route, size)) || !isReadable(zoom)) {
    return [];
  }
  const box = labelBox(route, measure(text, size, lit), size);
  return box ? [{ text, size, box, isTitle: false }] : [];
}

function boxOf({ box }: PaintItem, { text, x, y, size, bold, centred }: Line, measure: Measure): number[] {
  const width = measure(text, size, bold);
  const height = size * LETTER;
  return [box[0] + (centred ? x - width / 2 : x), box[1] + y - height / 2, width, height];
}
