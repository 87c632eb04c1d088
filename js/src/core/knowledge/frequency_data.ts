// Ranks and uses as points, and the laws that were fitted to them. Pure arithmetic.

import { timesPowers } from "../metrics/value_axis";
import { toNumber } from "../shared/payload";
import type { Knowledge } from "./data";

export interface RankedUses {
  readonly entities: readonly number[]; // by falling uses
  readonly counts: readonly number[];
}

export function rankedUses(data: Knowledge): RankedUses {
  const { names } = { names: data.payload.entities.name };
  const entities = Array.from({ length: data.size }, (_, i) => i).filter(i => data.uses[i] > 0);
  entities.sort((a, b) => data.uses[b] - data.uses[a] || (names[a] < names[b] ? -1 : 1));
  return { entities, counts: entities.map(entity => data.uses[entity]) };
}

export interface Law {
  readonly name: string;
  readonly points: readonly (readonly [rank: number, count: number])[]; // by rising rank
}

export function laws(data: Knowledge): Law[] {
  return data.payload.fit.lines.map(([name, flat]) => {
    const points: [number, number][] = [];
    for (let at = 0; at < flat.length; at += 2) {
      const [count, rank] = [toNumber(flat[at]), toNumber(flat[at + 1])];
      if (count !== null && rank !== null && count > 0 && rank > 0.5 && Number.isFinite(rank))
        points.push([rank, count]);
    }
    return { name, points: points.sort((a, b) => a[0] - b[0]) };
  });
}

/** Columns for a chart: one axis for all points, and one of counts for the ranks, each law and the marked structures. */
export function chartColumns(
  { counts, entities }: RankedUses,
  found: readonly Law[],
  logarithmic: boolean,
  marked: ReadonlySet<number> = new Set()
): (number | null)[][] {
  const scale = (value: number) => (logarithmic ? Math.log10(value) : value);
  const rows: [number, number, number][] = counts.map((count, i) => [i + 1, 0, count]); // rank, series, count
  found.forEach(({ points }, law) => points.forEach(([rank, count]) => rows.push([rank, law + 1, count])));
  rows.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const columns: (number | null)[][] = Array.from({ length: found.length + 2 }, () => []);
  for (const [rank, series, count] of rows) {
    columns[0].push(scale(rank));
    for (let i = 1; i < columns.length; i += 1) columns[i].push(i === series + 1 ? scale(count) : null);
  }
  if (marked.size > 0) {
    let rank = 0; // ranks come in their order
    columns.push(columns[1].map(count => (count !== null && marked.has(entities[rank++]) ? count : null)));
  }
  return columns;
}

/** 1, 10, 100… on logarithmic axes; with 2 and 5 between them while there are few. */
export function decades(min: number, max: number): number[] {
  return timesPowers(min, max, max - min < 1.5 ? [1, 2, 5] : [1]);
}
