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

/** Models of one family side by side, and families near those with which they share most. */
export function matrixOrder(data: Knowledge): MatrixOrder {
  const families = data.payload.families.map((_, index) => index).filter(index => data.modelsIn(index).length > 0);
  const members = new Map(families.map(family => [family, data.modelsIn(family)]));
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
