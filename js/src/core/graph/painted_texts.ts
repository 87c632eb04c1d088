// Where the texts of a picture are painted, as data: for tests and scripts in the page, which measure how legible it is.

import type { Measure } from "../shared/canvas";
import type { StageText } from "../shared/stage";
import { labelBox } from "./paint_edges";
import type { EdgePaint, PaintItem } from "./paint_items";
import { type Line, linesOf } from "./paint_lines";
import { SMALLEST_TEXT } from "./paint";
import { LABEL_SIZE } from "./scene_groups";
import { isReadable, zoomedLines } from "./zoomed_lines";

const LETTER = 1.2; // height of a line for its size

/** The lines of text on a card, or in the header of a frame, at this zoom; the first is its title. */
export function textsOn(item: PaintItem, measure: Measure, zoom = 1): StageText[] {
  const lines = isReadable(zoom) ? linesOf(item, measure) : zoomedLines(item, zoom, measure);
  return lines.map((line, at) => {
    const { text, size } = line;
    return { text, size, box: boxOf(item, line, measure), isTitle: at === 0 };
  });
}

/** What is written on an edge: where there is room for it, and on those of the selected card. */
export function labelsOn({ route, lit }: EdgePaint, measure: Measure, zoom = 1): StageText[] {
  const { label: text } = route.edge;
  if (text === "" || !(lit || route.label) || LABEL_SIZE * zoom < SMALLEST_TEXT) {
    return [];
  }
  const box = labelBox(route, measure(text, LABEL_SIZE, lit));
  return box ? [{ text, size: LABEL_SIZE, box, isTitle: false }] : [];
}

function boxOf({ box }: PaintItem, { text, x, y, size, bold, centred }: Line, measure: Measure): number[] {
  const width = measure(text, size, bold);
  const height = size * LETTER;
  return [box[0] + (centred ? x - width / 2 : x), box[1] + y - height / 2, width, height];
}
