// The lines of text on cards and frames, cut to their room once and not at every frame.

import { CARD } from "./cards";
import { changeLines, GLYPH, LINE } from "./flow_cards";
import { FONT, fitted, fittedName, fontOf, type Measure } from "../shared/canvas";
import { HEADER, type PaintItem, TITLE } from "./paint_items";
import type { SceneNode } from "./scene_types";

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

export function linesOf(item: PaintItem, measure: Measure): Line[] {
  const { node } = item;
  if (node.kind === "group") {
    return headerLines(item, measure);
  }
  if (node.isGlyph) {
    return glyphLines(item, measure);
  }
  return node.kind === "pseudo" && node.subtitle === "" ? [pillLine(item)] : cardLines(item, measure);
}

function pillLine({ node, box }: PaintItem): Line {
  const font = fontOf(FONT.title, false);
  const [x, y] = [box[2] / 2, box[3] / 2 + 0.5];
  return { text: node.title, x, y, font, size: FONT.title, bold: false, strong: false, centred: true };
}

/** The name in the middle, below it what becomes of the shape. */
function glyphLines({ node, box, container }: PaintItem, measure: Measure): Line[] {
  const left = container ? CARD.chevron : 0;
  const [width, height] = [box[2] - left, box[3]];
  const centred = (text: string, y: number, size: number, strong: boolean): Line => {
    const shown = fitted(text, width - 10, size, strong, measure);
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
  return node.detail === ""
    ? [centred(node.title, height / 2 + 0.5, FONT.title, true)]
    : [
        centred(node.title, GLYPH / 2 + 1, FONT.title, true),
        ...changeLines(node.detail).map((text, at) => centred(text, GLYPH + LINE * (at + 0.2), FONT.text, false))
      ];
}

function cardLines(item: PaintItem, measure: Measure): Line[] {
  const { node, box } = item;
  const room = box[2] - LEFT - 10;
  const chevron = item.container ? CARD.chevron - 4 : 0; // left of the title
  const titleRoom = room - badgesWidth(item, measure) - chevron;
  const rows = [node.subtitle, node.detail].filter(text => text !== "");
  const top = rows.length === 0 ? box[3] / 2 : TITLE;
  return [
    line(node, node.title, LEFT + chevron, top, FONT.title, true, true, titleRoom, measure),
    ...rows.map((text, i) => line(node, text, LEFT, 33 + 15 * i, FONT.text, false, false, room, measure))
  ];
}

/** slot · class · what is inside */
function headerLines(item: PaintItem, measure: Measure): Line[] {
  const { node, box } = item;
  const right = box[2] - badgesWidth(item, measure) - (item.fill ? 36 : 14);
  const lines: Line[] = [];
  let x = 30;
  const add = (text: string, size: number, bold: boolean, strong: boolean) => {
    if (text !== "" && right - x > 24) {
      const next = line(node, text, x, HEADER, size, bold, strong, right - x, measure);
      lines.push(next);
      x += measure(next.text, size, bold) + 8;
    }
  };
  add(node.subtitle || node.title, FONT.title, true, true);
  add(node.subtitle ? node.title : "", 12, false, true);
  add(node.detail, FONT.text, false, false);
  return lines;
}

function badgesWidth({ node, flag }: PaintItem, measure: Measure): number {
  const width = (text: string) => (text === "" ? 0 : measure(text, FONT.text, true) + 14);
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
  const cut = text === name ? fittedName : fitted;
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
