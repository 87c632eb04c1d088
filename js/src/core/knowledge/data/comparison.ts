// The structures that two models have in common, from the payload alone.

import { toNumber } from "../../shared/payload/payload";
import type { Knowledge } from "./knowledge";

export interface SharedOf {
  readonly shared: number;
  readonly all: number;
}

/** How much of one model lies in what the other has, too. */
export interface Side {
  readonly model: number;
  readonly structures: SharedOf;
  readonly modules: SharedOf; // occurrences
  readonly params: SharedOf;
}

export interface ComparedRow {
  readonly entity: number;
  readonly uses: readonly [number, number]; // occurrences in the one and in the other
}

export interface Comparison {
  readonly sides: readonly [Side, Side];
  readonly overlap: number;
  readonly both: readonly ComparedRow[]; // the most used first, as in kg.difference
  readonly first: readonly ComparedRow[];
  readonly second: readonly ComparedRow[];
}

export function compare(data: Knowledge, one: number, other: number): Comparison {
  const uses = [usesIn(data, one), usesIn(data, other)] as const;
  const rows = [...new Set([...uses[0].keys(), ...uses[1].keys()])].map((entity): ComparedRow => {
    return { entity, uses: [uses[0].get(entity) ?? 0, uses[1].get(entity) ?? 0] };
  });
  const { name } = data.payload.entities;
  const total = ({ uses: [a, b] }: ComparedRow) => a + b;
  rows.sort((a, b) => total(b) - total(a) || (name[a.entity] < name[b.entity] ? -1 : 1));
  const both = rows.filter(row => row.uses.every(count => count > 0));
  const shared = new Set(both.map(({ entity }) => entity));
  return {
    sides: [sideOf(data, one, uses[0], shared), sideOf(data, other, uses[1], shared)],
    overlap: data.overlap(one, other),
    both,
    first: rows.filter(row => row.uses[1] === 0),
    second: rows.filter(row => row.uses[0] === 0)
  };
}

/** Those of a list that lie in no other of it, the largest first: what it comes to in a few names. */
export function outermost(data: Knowledge, rows: readonly ComparedRow[]): number[] {
  const size = (entity: number) => data.params[entity] ?? 0;
  const inside = new Set<number>();
  const enter = (entity: number) => {
    const waiting = [entity];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      for (const { index } of data.children(next)) {
        if (inside.has(index)) continue;
        inside.add(index);
        waiting.push(index);
      }
    }
  };
  const found: number[] = [];
  for (const { entity } of [...rows].sort((a, b) => size(b.entity) - size(a.entity) || a.entity - b.entity)) {
    if (inside.has(entity)) continue;
    found.push(entity);
    enter(entity);
  }
  return found;
}

/** Those of a list that hold no other of it, the largest first: what really differs, not all that is around it. */
export function innermost(data: Knowledge, rows: readonly ComparedRow[]): number[] {
  const size = (entity: number) => data.params[entity] ?? 0;
  const every = new Set(rows.map(({ entity }) => entity));
  const own = [...every].filter(entity => !data.children(entity).some(({ index }) => every.has(index)));
  return own.sort((a, b) => size(b) - size(a) || a - b);
}

function usesIn(data: Knowledge, model: number): Map<number, number> {
  const members = data.payload.models.members[model];
  const uses = new Map<number, number>();
  for (let at = 0; at < members.length; at += 3) uses.set(members[at], (uses.get(members[at]) ?? 0) + members[at + 2]);
  return uses;
}

function sideOf(data: Knowledge, model: number, uses: ReadonlyMap<number, number>, shared: ReadonlySet<number>): Side {
  let modules = 0;
  for (const [entity, count] of uses) if (shared.has(entity)) modules += count;
  const all = toNumber(data.payload.models.params[model]) ?? 0;
  return {
    model,
    structures: { shared: shared.size, all: uses.size },
    modules: { shared: modules, all: data.payload.models.modules[model] },
    params: { shared: Math.min(all, paramsIn(data, model, uses, shared, all)), all }
  };
}

/** Parameters in shared structures; what lies in a shared one is shared, so the outermost of them are summed up. */
function paramsIn(
  data: Knowledge,
  model: number,
  uses: ReadonlyMap<number, number>,
  shared: ReadonlySet<number>,
  all: number
): number {
  if (shared.has(data.payload.models.root[model])) return all;
  const outermost = new Map<number, number>();
  for (const [entity, times] of uses) {
    if (shared.has(entity)) continue;
    for (const { index, count } of data.children(entity))
      if (shared.has(index)) outermost.set(index, (outermost.get(index) ?? 0) + times * count);
  }
  let sum = 0;
  // one that several modules hold is there once
  for (const [entity, count] of outermost) sum += Math.min(count, uses.get(entity) ?? 0) * (data.params[entity] ?? 0);
  return sum;
}
