// Quantities of models (sizes and results), scatter points of two of them, and the Pareto front.

import { toNumber } from "../../shared/payload/payload";
import type { Value } from "../../shared/base/schema";
import type { Knowledge } from "./knowledge";
import type { ResultColumn } from "./payload";

interface Measured {
  readonly model: number;
  readonly size: number | null; // of the image, where it is known
  readonly value: number;
  readonly job: number | null;
}

/** Something that models have a number of. */
export interface Quantity {
  readonly key: string;
  readonly label: string;
  readonly unit: string; // "" where nobody said
  readonly isCost: boolean; // less of it is better
  readonly isResult: boolean;
  readonly measured: readonly Measured[];
}

/** What a search may call it: "flops", "latency", "acc@1". */
export const wordOf = ({ key, label, isResult }: Quantity): string =>
  (isResult ? label.split(", ")[0] : key).toLowerCase();

/** The best value of each model. */
export function bestByModel({ measured: every, isCost }: Quantity): Map<number, number> {
  const best = new Map<number, number>();
  for (const { model, value } of every) {
    const known = best.get(model);
    if (known === undefined || isBetter(isCost, value, known)) best.set(model, value);
  }
  return best;
}

export interface ScatterPoint {
  readonly model: number;
  readonly size: number | null;
  readonly x: number;
  readonly y: number;
  readonly jobs: readonly number[];
}

/** Sizes of models, and what they reached; only what at least one model has. */
export function quantities(data: Knowledge): Quantity[] {
  const { models, results } = data.payload;
  const own = (key: string, label: string, unit: string, values: readonly Value[]): Quantity => ({
    key,
    label,
    unit,
    isCost: true,
    isResult: false,
    measured: values.flatMap((value, model) => measured(model, null, value, null))
  });
  const every = [
    ...results.map(resultQuantity),
    own("params", "parameters", "", models.params),
    own("flops", "FLOPs", "", models.flops),
    own("bytes", "memory", "B", models.bytes),
    own("modules", "modules", "", models.modules),
    own("structures", "structures", "", models.structures)
  ];
  return every.filter(quantity => quantity.measured.length > 0);
}

function resultQuantity(column: ResultColumn): Quantity {
  const { target, dataset, device, unit, cost, model, value, size, job } = column;
  const where = [dataset, device].filter((part): part is string => part !== null);
  return {
    key: JSON.stringify([target, unit, dataset, device]),
    label: [target, ...where].join(", "),
    unit: unit ?? "",
    isCost: cost,
    isResult: true,
    measured: model.flatMap((each, i) => measured(each, toNumber(size[i]), value[i], job[i]))
  };
}

function measured(model: number, size: number | null, value: Value, job: number | null): Measured[] {
  const number = toNumber(value);
  return number !== null && Number.isFinite(number) ? [{ model, size, value: number, job }] : [];
}

/** What is looked at first: what models reached against what they cost, latency before size; of what varies. */
export function firstPair(every: readonly Quantity[]): { x: Quantity; y: Quantity } | undefined {
  const varied = every.filter(({ measured: [first, ...rest] }) => rest.some(({ value }) => value !== first.value));
  const reached = varied.find(({ isResult, isCost }) => isResult && !isCost);
  const cost = COSTS.map(name => varied.find(({ key, label }) => key === name || label.startsWith(name))).find(Boolean);
  const x = cost ?? varied.find(({ isCost, key }) => isCost && key !== reached?.key);
  const y = reached ?? varied.find(({ key }) => key !== x?.key);
  return x && y ? { x, y } : firstTwo(every);
}

const COSTS = ["latency", "flops", "params"];

function firstTwo([x, y]: readonly Quantity[]): { x: Quantity; y: Quantity } | undefined {
  return (x as Quantity | undefined) && (y as Quantity | undefined) ? { x, y } : undefined;
}

/**
 * A point for each model that has both, with the best of its values. Where both were measured at sizes of images, those
 * of one size belong together, and a model has a point for each.
 */
export function scatterPoints(x: Quantity, y: Quantity): ScatterPoint[] {
  const isSized = [x, y].every(({ measured: every }) => every.some(({ size }) => size !== null));
  const bestOf = (quantity: Quantity) => {
    const found = new Map<string, Measured>();
    for (const each of quantity.measured) {
      const key = `${each.model} ${isSized ? each.size : ""}`;
      const known = found.get(key);
      if (!known || isBetter(quantity.isCost, each.value, known.value)) found.set(key, each);
    }
    return found;
  };
  const [across, up] = [bestOf(x), bestOf(y)];
  return [...up].flatMap(([key, own]) => {
    const other = across.get(key);
    if (!other) return [];
    const jobs = [other.job, own.job].filter((job): job is number => job !== null);
    return [{ model: own.model, size: own.size ?? other.size, x: other.value, y: own.value, jobs }];
  });
}

const isBetter = (isCost: boolean, value: number, than: number): boolean => (isCost ? value < than : value > than);

/** Places of the points than which no other is better in one way and as good in the other, from left to right. */
export function paretoFront(points: readonly ScatterPoint[], xIsCost: boolean, yIsCost: boolean): number[] {
  const [across, up] = [xIsCost ? 1 : -1, yIsCost ? 1 : -1];
  const order = points.map((_, place) => place);
  order.sort((a, b) => across * (points[a].x - points[b].x) || up * (points[a].y - points[b].y));
  const front: number[] = [];
  let best = Infinity;
  for (const place of order) {
    const cost = up * points[place].y;
    const last = front[front.length - 1] as number | undefined;
    const isSame = last !== undefined && points[last].x === points[place].x && points[last].y === points[place].y;
    if (cost >= best && !isSame) continue;
    best = cost;
    front.push(place);
  }
  return front.sort((a, b) => points[a].x - points[b].x);
}

/** Whether an axis is better read in powers of ten. */
export function isWide(values: readonly number[]): boolean {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  return least > 0 && most / least > 30;
}
