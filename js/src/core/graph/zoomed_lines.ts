// What stands on cards and frames when they are small on the screen: names alone, larger for it, and at last those of frames only.

import { fitted, fontOf, FONT, type Measure } from "../shared/canvas";
import { HEADER, type PaintItem } from "./paint_items";
import type { Line } from "./paint_lines";

export const READABLE = 9; // CSS pixels of a name on the screen
const STEP = 2; // sizes grow in steps, so that widths need not be measured at every zoom
const HIGHEST = { card: 0.5, small: 0.8, header: 30 }; // of a card's height; units of a header's 42
const SMALL_CARD = 40;
const LEFT = 8;
const NARROW = 2; // of the small cards of operators, whose sign fills them
const NAMELESS = 0.29; // zoom below which cards have no names
const SMALL_FRAME = 420; // CSS pixels: in a smaller one its name says more than those inside
const NAME = 13; // CSS pixels of a frame's name over its inside

/** Whether what is written at its own size can be read. */
export function isReadable(zoom: number): boolean {
  return FONT.title * zoom >= READABLE;
}

/** The name of a card or of a frame's header, as large as it has to be; nothing where there is no room for that. */
export function zoomedLines(item: PaintItem, zoom: number, measure: Measure): Line[] {
  const { node, box } = item;
  const isFrame = node.kind === "group";
  const size = Math.ceil(READABLE / zoom / STEP) * STEP;
  if (size > (isFrame ? HIGHEST.header : (box[3] < SMALL_CARD ? HIGHEST.small : HIGHEST.card) * box[3])) {
    return [];
  }
  const room = box[2] - 2 * (isFrame || box[3] >= SMALL_CARD ? LEFT : NARROW);
  const text = fitted(nameOf(item), room, size, true, measure);
  const [x, y] = isFrame ? [LEFT, HEADER] : [box[2] / 2, box[3] / 2];
  return [{ text, x, y, font: fontOf(size, true), size, bold: true, strong: true, centred: !isFrame }];
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
  const text = fitted(nameOf(item), box[2] - LEFT, size, true, measure);
  return {
    text,
    x: box[2] / 2,
    y: box[3] / 2,
    font: fontOf(size, true),
    size,
    bold: true,
    strong: true,
    centred: true
  };
}

/** "layer3 ×6" of a frame, "Linear" of a card. */
function nameOf({ node }: PaintItem): string {
  return [(node.kind === "group" && node.subtitle) || node.title, node.badge].filter(text => text !== "").join(" ");
}
