// The text layer: everything written on cards and frames, drawn on a canvas above cytoscape's.

import { CARD, FONT, fitted, fontOf, type Measure } from "./cards";
import { inkOn } from "./colour";
import { mix, STATUS_STYLE, type Theme } from "./graph_style";
import type { Box } from "./layout";
import type { Status } from "./payload";
import type { SceneNode } from "./scene";

export interface PaintItem {
  node: SceneNode;
  box: Box;
  container: boolean;
  family: string; // hue of the edge mark
  fill: string | null; // colour of the value shown, if any
  status: Status | null;
  flag: string; // "!" something to know, "↗" shared; "" none
  dim: boolean;
}

export interface Viewport {
  x: number;
  y: number;
  zoom: number;
  width: number; // CSS pixels
  height: number;
  ratio: number; // device pixels to one
}

const LEGIBLE = 4.2; // CSS pixels: smaller text is noise and costs time
const HEADER = 21; // middle line of a frame's header
const LEFT = 18; // text begins right of the family mark

interface Line {
  text: string;
  x: number;
  y: number;
  font: string;
  size: number;
  ink: "text" | "muted";
  centred: boolean;
}

interface Prepared {
  item: PaintItem;
  lines: Line[];
}

export class TextLayer {
  private prepared: Prepared[] = [];

  constructor(
    private readonly context: CanvasRenderingContext2D,
    private readonly measure: Measure
  ) {}

  /** Lines are cut to their cards once, not at every frame. */
  setItems(items: readonly PaintItem[]): void {
    this.prepared = items.map(item => ({ item, lines: linesOf(item, this.measure) }));
  }

  paint(view: Viewport, theme: Theme): void {
    const { context } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
    const scale = view.zoom * view.ratio;
    context.setTransform(scale, 0, 0, scale, view.x * view.ratio, view.y * view.ratio);
    context.textBaseline = "middle";
    for (const { item, lines } of this.prepared) {
      if (isInView(item.box, view)) {
        context.globalAlpha = item.dim ? 0.35 : 1;
        this.card(item, lines, view.zoom, theme);
      }
    }
    context.globalAlpha = 1;
  }

  private card(item: PaintItem, lines: readonly Line[], zoom: number, theme: Theme): void {
    const { context } = this;
    const { node, box } = item;
    const plain = node.kind === "pseudo" || node.kind === "group" || !item.fill;
    const ink = plain ? theme.text : inkOn(item.fill ?? theme.surface);
    if (node.kind !== "pseudo") {
      this.mark(item, theme);
    }
    for (const line of lines) {
      if (line.size * zoom >= LEGIBLE) {
        context.font = line.font;
        context.textAlign = line.centred ? "center" : "left";
        context.fillStyle = line.ink === "text" ? ink : plain ? theme.muted : ink;
        context.fillText(line.text, box[0] + line.x, box[1] + line.y);
      }
    }
    if (zoom * FONT.text >= LEGIBLE) {
      this.badges(item, ink, theme);
    }
    this.status(item);
  }

  /** The bar that shows the family; on frames the swatch of the value instead. */
  private mark(item: PaintItem, theme: Theme): void {
    const { node, box, family, fill } = item;
    if (node.kind === "group") {
      if (fill) {
        this.pill(box[0] + box[2] - 26, box[1] + HEADER - 6, 12, 12, 3, fill);
      }
      return;
    }
    const inset = theme.dark ? mix(family, "#ffffff", 0.25) : family;
    this.pill(box[0] + 7, box[1] + 9, 4, box[3] - 18, 2, fill ? inkOn(fill) : inset);
  }

  private badges(item: PaintItem, ink: string, theme: Theme): void {
    const { node, box, container } = item;
    const group = node.kind === "group";
    const middle = box[1] + (group ? HEADER : this.titleLine(item));
    if (container) {
      this.chevron(group ? box[0] + 16 : box[0] + box[2] - 15, middle, group, group ? theme.muted : ink);
    }
    let right = box[0] + box[2] - (group ? (item.fill ? 34 : 12) : container ? 26 : 10);
    if (node.badge) {
      right -= this.badge(node.badge, right, middle, theme);
    }
    if (item.flag) {
      this.badge(item.flag, right - 4, middle, theme);
    }
  }

  private titleLine(item: PaintItem): number {
    return item.box[3] >= CARD.tall ? 16 : 16;
  }

  /** Returns its width. */
  private badge(text: string, right: number, middle: number, theme: Theme): number {
    const { context } = this;
    const width = this.measure(text, FONT.text, true) + 10;
    this.pill(right - width, middle - 8, width, 16, 8, mix(theme.surface, theme.accent, theme.dark ? 0.3 : 0.14));
    context.font = fontOf(FONT.text, true);
    context.textAlign = "center";
    context.fillStyle = theme.dark ? mix(theme.accent, "#ffffff", 0.6) : mix(theme.accent, "#000000", 0.35);
    context.fillText(text, right - width / 2, middle + 0.5);
    return width;
  }

  private status(item: PaintItem): void {
    if (!item.status || item.status === "same") {
      return;
    }
    const { context } = this;
    const { colour, glyph } = STATUS_STYLE[item.status];
    const [x, y] = [item.box[0] + 2, item.box[1] + 2];
    this.pill(x - 11, y - 11, 22, 22, 11, colour);
    context.font = fontOf(12, true);
    context.textAlign = "center";
    context.fillStyle = inkOn(colour);
    context.fillText(glyph, x, y + 0.5);
  }

  private pill(x: number, y: number, width: number, height: number, radius: number, fill: string): void {
    const { context } = this;
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
    context.fillStyle = fill;
    context.fill();
  }

  private chevron(x: number, y: number, open: boolean, colour: string): void {
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
    context.strokeStyle = colour;
    context.stroke();
  }
}

/** Where a click opens or closes: the chevron and a little around it. */
export function isOnChevron(item: PaintItem, x: number, y: number): boolean {
  const { box, node } = item;
  if (!item.container) {
    return false;
  }
  const group = node.kind === "group";
  const centre = group ? box[0] + 16 : box[0] + box[2] - 15;
  const middle = box[1] + (group ? HEADER : 16);
  return Math.abs(x - centre) <= 12 && Math.abs(y - middle) <= 14;
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

function linesOf(item: PaintItem, measure: Measure): Line[] {
  const { node } = item;
  if (node.kind === "group") {
    return headerLines(item, measure);
  }
  return node.kind === "pseudo" && node.subtitle === "" ? [pillLine(item)] : cardLines(item, measure);
}

function pillLine({ node, box }: PaintItem): Line {
  const font = fontOf(12, false);
  return { text: node.title, x: box[2] / 2, y: box[3] / 2 + 0.5, font, size: 12, ink: "muted", centred: true };
}

function cardLines(item: PaintItem, measure: Measure): Line[] {
  const { node, box } = item;
  const room = box[2] - LEFT - 10;
  const badge = (node.badge ? measure(node.badge, FONT.text, true) + 14 : 0) + (item.flag ? 20 : 0);
  const titleRoom = room - badge - (item.container ? CARD.chevron - 4 : 0);
  const rows = [node.subtitle, node.detail].filter(text => text !== "");
  const top = rows.length === 0 ? box[3] / 2 : 16;
  return [
    textLine(node.title, LEFT, top, FONT.title, true, "text", titleRoom, measure),
    ...rows.map((text, i) => textLine(text, LEFT, 33 + 15 * i, FONT.text, false, "muted", room, measure))
  ];
}

/** slot · class · what is inside */
function headerLines(item: PaintItem, measure: Measure): Line[] {
  const { node, box } = item;
  const badge = (node.badge ? measure(node.badge, FONT.text, true) + 14 : 0) + (item.flag ? 20 : 0);
  let x = 30;
  const right = box[2] - badge - (item.fill ? 36 : 14);
  const lines: Line[] = [];
  const add = (text: string, size: number, bold: boolean, ink: Line["ink"]) => {
    if (text !== "" && right - x > 24) {
      const line = textLine(text, x, HEADER, size, bold, ink, right - x, measure);
      lines.push(line);
      x += measure(line.text, size, bold) + 8;
    }
  };
  add(node.subtitle || node.title, FONT.title, true, "text");
  add(node.subtitle ? node.title : "", 12, false, "text");
  add(node.detail, FONT.text, false, "muted");
  return lines;
}

function textLine(
  text: string,
  x: number,
  y: number,
  size: number,
  bold: boolean,
  ink: Line["ink"],
  room: number,
  measure: Measure
): Line {
  return { text: fitted(text, room, size, bold, measure), x, y, font: fontOf(size, bold), size, ink, centred: false };
}
