// The axes of the overlap matrix: the order of models, where cells are, and the names beside them.

import type { Knowledge } from "../data/knowledge";
import { truncated, fontOf, type Measure, oneLine } from "../../shared/base/canvas";
import { mix } from "../../shared/stage/theme";
import type { ChartTheme } from "../../metrics/base/chart_theme";

interface Block {
  readonly family: number;
  readonly start: number;
  readonly count: number;
}

export interface MatrixOrder {
  readonly models: readonly number[];
  readonly blocks: readonly Block[];
}

/** Models of one family side by side, and families near those with which they share most; of some models alone. */
export function matrixOrder(data: Knowledge, only?: ReadonlySet<number>): MatrixOrder {
  const modelsIn = (family: number) => data.modelsIn(family).filter(model => !only || only.has(model));
  const families = data.payload.families.map((_, index) => index).filter(index => modelsIn(index).length > 0);
  const members = new Map(families.map(family => [family, modelsIn(family)]));
  const left = new Set(families.sort((a, b) => size(members, b) - size(members, a) || a - b));
  const models: number[] = [];
  const blocks: Block[] = [];
  let current = families[0];
  while (current !== undefined) {
    const own = members.get(current) ?? [];
    blocks.push({ family: current, start: models.length, count: own.length });
    models.push(...own);
    left.delete(current);
    current = nearest(data, own, left, members);
  }
  return { models, blocks };
}

const NEAREST = 24; // models beside one

/** A single model is not compared with itself alone. */
export function withNearest(data: Knowledge, models: ReadonlySet<number>): ReadonlySet<number> {
  if (models.size !== 1) return models;
  const [only] = models;
  const others = Array.from({ length: data.modelCount }, (_, i) => i).filter(i => i !== only);
  others.sort((a, b) => data.overlap(only, b) - data.overlap(only, a) || a - b);
  return new Set([only, ...others.slice(0, NEAREST)]);
}

const size = (members: ReadonlyMap<number, number[]>, family: number): number => members.get(family)?.length ?? 0;

function nearest(
  data: Knowledge,
  own: readonly number[],
  left: ReadonlySet<number>,
  members: ReadonlyMap<number, number[]>
): number {
  let [best, most] = [[...left][0], -1];
  for (const family of left) {
    const others = members.get(family) ?? [];
    const total = own.reduce((sum, a) => sum + others.reduce((rest, b) => rest + data.overlap(a, b), 0), 0);
    const mean = total / Math.max(1, own.length * others.length);
    if (mean > most) [best, most] = [family, mean];
  }
  return best;
}

// The names beside the overlap matrix: those of models where there is room, else of families.

export const LEGIBLE = 11; // cell size from which every model has its name
const FONT = 10.5;

interface MatrixLabel {
  readonly text: string;
  readonly place: number; // along its side, in pixels
  readonly isStrong: boolean;
}

interface NamesPlace {
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
      context.fillText(truncated(oneLine(text), room, FONT, isStrong, measure), 0, place);
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
