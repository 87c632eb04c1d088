// The names beside the overlap matrix: those of models where there is room, else of families.

import { fitted, fontOf, type Measure, oneLine } from "../shared/canvas";
import { mix } from "../shared/theme";
import type { ChartTheme } from "../metrics/chart_theme";
import type { Knowledge } from "./data";
import type { MatrixOrder } from "./matrix_order";

export const LEGIBLE = 11; // cell size from which every model has its name
const FONT = 10.5;

export interface MatrixLabel {
  readonly text: string;
  readonly place: number; // along its side, in pixels
  readonly isStrong: boolean;
}

export interface NamesPlace {
  readonly left: number; // room for the names of rows, and of columns
  readonly top: number;
  readonly width: number;
  readonly height: number;
  readonly scrollLeft: number;
  readonly scrollTop: number;
}

/** The names of one side; those at the `strong` places stand out. */
export function labels(data: Knowledge, order: MatrixOrder, cell: number, strong: readonly number[]): MatrixLabel[] {
  const { models, families } = data.payload;
  if (cell >= LEGIBLE) {
    return order.models.map((model, i) => ({
      text: models.name[model],
      place: (i + 0.5) * cell,
      isStrong: strong.includes(i)
    }));
  }
  let free = 0;
  return order.blocks.flatMap(({ family, start, count }) => {
    const place = (start + count / 2) * cell;
    if (place - FONT / 2 < free) return [];
    free = place + FONT / 2 + 1;
    return [{ text: families[family], place, isStrong: strong.some(i => i >= start && i < start + count) }];
  });
}

export function paintNames(
  context: CanvasRenderingContext2D,
  rows: readonly MatrixLabel[],
  columns: readonly MatrixLabel[],
  { left, top, width, height, scrollLeft, scrollTop }: NamesPlace,
  theme: ChartTheme,
  measure: Measure
): void {
  const write = (names: readonly MatrixLabel[], room: number, align: CanvasTextAlign) => {
    context.textBaseline = "middle";
    context.textAlign = align;
    for (const { text, place, isStrong } of names) {
      context.font = fontOf(FONT, isStrong);
      context.fillStyle = isStrong ? theme.text : mix(theme.muted, theme.text, 0.25);
      context.fillText(fitted(oneLine(text), room, FONT, isStrong, measure), 0, place);
    }
  };
  context.save();
  context.beginPath();
  context.rect(0, top, left, height - top);
  context.clip();
  context.translate(left - 6, top - scrollTop);
  write(rows, left - 14, "right");
  context.restore();
  context.save();
  context.beginPath();
  context.rect(left, 0, width - left, top);
  context.clip();
  context.translate(left - scrollLeft, top - 6);
  context.rotate(-Math.PI / 2);
  write(columns, top - 12, "left");
  context.restore();
}
