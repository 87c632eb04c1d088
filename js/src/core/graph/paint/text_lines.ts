// Cards and frames as they are painted, and their lines of text: cut to their room once and not at every frame, and larger
// when the graph is zoomed out.

import { CARD, type SceneNode } from "../scene/scene";
import { changeLines, GLYPH, LINE } from "../flow/flow_cards";
import { truncated, truncatedName, FONT, fontOf, type Measure } from "../../shared/base/canvas";
import type { Mark } from "../../shared/model/differences";
import type { Status } from "../../shared/payload/payload";
import { type Box, LEAST_TEXT, sizeAt } from "../../shared/stage/viewport";

export interface PaintItem {
  node: SceneNode;
  box: Box;
  depth: number; // frames around it
  container: boolean;
  family: string; // hue of the mark at the left
  fill: string | null; // color of the value shown, if any
  status: Status | null; // as it differs from the other model, alone or with what is around it
  mark: Mark | null; // what is said of it in a comparison
  flag: string; // "!" something to know, "−" a block that can go; "" nothing
  dim: boolean;
  hit: boolean;
  onAxis: boolean; // the chosen axis runs along something in it
  selected: boolean;
}

export const HEADER = 21; // middle line of a frame's header
export const TITLE = 16; // middle line of a card's title
export const CHEVRON = { open: 16, closed: 20 }; // its middle, from the left side: a card that opens has it under the pointer still

/** Where a click opens or closes: the chevron and a little around it. */
export function isOnChevron({ box, node, container }: PaintItem, x: number, y: number): boolean {
  const group = node.kind === "group";
  const centre = box[0] + (group ? CHEVRON.open : CHEVRON.closed);
  const middle = box[1] + (group ? HEADER : TITLE);
  return container && Math.abs(x - centre) <= 12 && Math.abs(y - middle) <= 14;
}

export interface Line {
  text: string;
  x: number; // from the card's corner
  y: number;
  font: string;
  size: number;
  bold: boolean;
  strong: boolean;
  centred: boolean;
}

const LEFT = 18; // text begins right of the family mark

/** All that a card or header says, as far as there is room for it at this zoom. */
export function linesOf(item: PaintItem, measure: Measure, zoom = 1): Line[] {
  const { node } = item;
  if (node.kind === "group") {
    return headerLines(item, measure, zoom);
  }
  if (node.isGlyph) {
    return glyphLines(item, measure, zoom);
  }
  return node.kind === "pseudo" && node.subtitle === "" ? [pillLine(item, zoom)] : cardLines(item, measure, zoom);
}

function pillLine({ node, box }: PaintItem, zoom: number): Line {
  const size = sizeAt(FONT.title, zoom);
  const [x, y] = [box[2] / 2, box[3] / 2 + 0.5];
  return { text: node.title, x, y, font: fontOf(size, false), size, bold: false, strong: false, centred: true };
}

/** As many of the parts of a text, which dots separate, as have room; of what opens the size, which comes last. */
function partsThatFit({ container }: PaintItem, text: string, room: number, size: number, measure: Measure): string {
  const parts = text.split(" · ");
  while (parts.length > 0 && measure(parts.join(" · "), size, false) > room) {
    if (container) parts.shift();
    else parts.pop();
  }
  return parts.join(" · ");
}

/** The name in the middle, below it what becomes of the shape. */
function glyphLines({ node, box, container }: PaintItem, measure: Measure, zoom: number): Line[] {
  const [title, size] = [sizeAt(FONT.title, zoom), sizeAt(FONT.text, zoom)];
  const isLarger = size > FONT.text;
  const left = container ? CARD.chevron + (isLarger ? 4 : 0) : 0;
  const [width, height] = [box[2] - left, box[3]];
  const room = width - (isLarger ? 4 : 10);
  const centred = (text: string, y: number, size: number, strong: boolean): Line => {
    const shown = truncated(text, room, size, strong, measure);
    return {
      text: shown,
      x: left + width / 2,
      y,
      font: fontOf(size, strong),
      size,
      bold: strong,
      strong,
      centred: true
    };
  };
  const lines = node.detail === "" ? [] : changeLines(node.detail);
  const hasRoom = !isLarger || lines.every(text => measure(text, size, false) <= room);
  return lines.length === 0 || !hasRoom
    ? [centred(node.title, height / 2 + 0.5, title, true)]
    : [
        centred(node.title, GLYPH / 2 + 1, title, true),
        ...lines.map((text, at) => centred(text, GLYPH + LINE * (at + 0.2), size, false))
      ];
}

function cardLines(item: PaintItem, measure: Measure, zoom: number): Line[] {
  const { node, box } = item;
  const [title, size] = [sizeAt(FONT.title, zoom), sizeAt(FONT.text, zoom)];
  const isLarger = size > FONT.text;
  const room = box[2] - LEFT - 10;
  const wider = isLarger ? room + 6 : room;
  const chevron = item.container ? CARD.chevron - 4 : 0; // left of the title
  const titleRoom = room - badgesWidth(item, measure, zoom) - chevron;
  const detail = isLarger ? partsThatFit(item, node.detail, wider, size, measure) : node.detail;
  const rows = [node.subtitle, detail].filter(text => text !== "");
  const top = rows.length === 0 ? box[3] / 2 : TITLE;
  const apart = Math.max(15, size + 1);
  return [
    line(node, node.title, LEFT + chevron, top, title, true, true, titleRoom, measure),
    ...rows.map((text, i) => line(node, text, LEFT, 33 + apart * i, size, false, false, wider, measure))
  ];
}

/** slot · class · what is inside */
function headerLines(item: PaintItem, measure: Measure, zoom: number): Line[] {
  const { node, box } = item;
  const right = box[2] - badgesWidth(item, measure, zoom) - (item.fill ? 36 : 14);
  const lines: Line[] = [];
  let x = 30;
  const add = (text: string, size: number, bold: boolean, strong: boolean) => {
    if (text !== "" && right - x > 24) {
      const next = line(node, text, x, HEADER, size, bold, strong, right - x, measure);
      lines.push(next);
      x += measure(next.text, size, bold) + 8;
    }
  };
  const [title, kind, size] = [FONT.title, 12, FONT.text].map(each => sizeAt(each, zoom));
  add(node.title, title, true, true);
  add(node.subtitle, kind, false, true);
  add(size > FONT.text ? partsThatFit(item, node.detail, right - x, size, measure) : node.detail, size, false, false);
  return lines;
}

function badgesWidth({ node, flag }: PaintItem, measure: Measure, zoom: number): number {
  const width = (text: string) => (text === "" ? 0 : measure(text, sizeAt(FONT.text, zoom), true) + 14);
  return width(node.badge) + width(flag);
}

function line(
  { name }: SceneNode,
  text: string,
  x: number,
  y: number,
  size: number,
  bold: boolean,
  strong: boolean,
  room: number,
  measure: Measure
): Line {
  const cut = text === name ? truncatedName : truncated;
  return {
    text: cut(text, room, size, bold, measure),
    x,
    y,
    font: fontOf(size, bold),
    size,
    bold,
    strong,
    centred: false
  };
}

// What stands on cards and frames when they are small on the screen: names, larger for it, with the class where there is
// room for all of it, and at last those of frames only.

const FULL = 0.69; // zoom from which on cards have room for more than that
const STEP = 2; // sizes grow in steps, so that widths need not be measured at every zoom
const HIGHEST = { card: 0.5, small: 0.8, header: 30 }; // of a card's height; units of a header's 42
const SMALL_CARD = 40;
const ZOOMED_LEFT = 8;
const RIGHT = 3; // of small cards
const BESIDE_MARK = 14; // text begins right of the mark of its family
const LETTER = 1.25; // height of a line for its size
const SMALLER = 0.9; // letters of a class, for those of the name above it
const NARROW = 2; // of the small cards of operators, whose sign fills them
const NAMELESS = 0.33; // zoom below which cards have no names
const SMALL_FRAME = 420; // CSS pixels: in a smaller one its name says more than those inside
const NAME = 13; // CSS pixels of a frame's name over its inside

/** Whether cards can say all that they have to. */
export function isReadable(zoom: number): boolean {
  return zoom >= FULL;
}

/** The name of a card or of a frame's header, as large as it has to be; nothing where there is no room for that. */
export function zoomedLines(item: PaintItem, zoom: number, measure: Measure): Line[] {
  const { node, box } = item;
  const size = Math.ceil(LEAST_TEXT / zoom / STEP) * STEP;
  if (node.kind === "group") {
    if (size > HIGHEST.header) return [];
    return [zoomedLine(named(item, box[2] - 2 * ZOOMED_LEFT, size, measure), ZOOMED_LEFT, HEADER, size, false)];
  }
  if (size > (box[3] < SMALL_CARD ? HIGHEST.small : HIGHEST.card) * box[3]) return [];
  const isPill = node.kind === "pseudo" && node.target === undefined;
  if (isPill || node.isGlyph) return [signLine(item, size, measure)];
  const left = BESIDE_MARK;
  const room = box[2] - left - RIGHT;
  const [x, y] = [left + room / 2, box[3] / 2];
  const name = zoomedLine(named(item, room, size, measure), x, y, size, true);
  const kind = classLine(item, Math.max(Math.ceil(SMALLER * size), Math.ceil(LEAST_TEXT / zoom)), size, room, measure);
  if (!kind) return [name];
  const apart = (LETTER * size) / 2;
  return [
    { ...name, y: y - apart },
    { ...kind, x, y: y + apart }
  ];
}

/** Of an operator, or of an end: the sign, or as much of the word as there is room for. */
function signLine({ node, box }: PaintItem, size: number, measure: Measure): Line {
  const room = box[2] - 2 * (box[3] >= SMALL_CARD ? ZOOMED_LEFT : NARROW);
  const isBold = node.kind !== "pseudo";
  const text = truncated(node.title, room, size, isBold, measure);
  return { ...zoomedLine(text, box[2] / 2, box[3] / 2, size, true), font: fontOf(size, isBold), bold: isBold };
}

/** The class, which goes below a name, unless it says the same or has no room. */
function classLine(
  { node, box }: PaintItem,
  size: number,
  nameSize: number,
  room: number,
  measure: Measure
): Line | undefined {
  const isHigh = LETTER * (nameSize + size) <= box[3] - 2;
  if (!node.name || node.subtitle === "" || !isHigh || measure(node.subtitle, size, false) > room) return undefined;
  return { ...zoomedLine(node.subtitle, 0, 0, size, true), font: fontOf(size, false), bold: false, strong: false };
}

function zoomedLine(text: string, x: number, y: number, size: number, centred: boolean): Line {
  return { text, x, y, font: fontOf(size, true), size, bold: true, strong: true, centred };
}

/** The frames that are named over their inside: the outermost whose inside cannot be read and that are small themselves. */
export function namedFrames<Frame extends { item: PaintItem }>(frames: readonly Frame[], zoom: number): Set<Frame> {
  const named = new Set<Frame>();
  const inside: PaintItem["box"][] = [];
  if (zoom >= NAMELESS) return named; // cards and headers say more
  for (const frame of frames) {
    const [x, y, width, height] = frame.item.box;
    const isInside = inside.some(([left, top, w, h]) => x >= left && y >= top && x < left + w && y < top + h);
    if (!isInside && width * zoom < SMALL_FRAME && height * zoom > 2 * NAME) {
      named.add(frame);
      inside.push(frame.item.box);
    }
  }
  return named;
}

/** The name in the middle of a frame. */
export function nameLine(item: PaintItem, zoom: number, measure: Measure): Line {
  const size = Math.ceil(NAME / zoom / STEP) * STEP;
  const { box } = item;
  return zoomedLine(named(item, box[2] - ZOOMED_LEFT, size, measure), box[2] / 2, box[3] / 2, size, true);
}

/** "layer3 ×6", of what has no name of its own its class. */
function named({ node }: PaintItem, room: number, size: number, measure: Measure): string {
  const { name, title, badge } = node;
  return truncatedName(name || title, room, size, true, measure, badge && ` ${badge}`);
}
