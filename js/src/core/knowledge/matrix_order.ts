// The order of models in the overlap matrix, and where its cells are. Pure arithmetic.

import type { Knowledge } from "./data";

export interface Block {
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
