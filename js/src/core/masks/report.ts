// What a dry run came to.

import { isArrayOf, isCount, isObject, isString, isValue, tuple } from "../shared/schema";

export interface Change {
  readonly kind: string;
  readonly text: string;
  readonly axes: readonly number[];
}

export type Sizes = readonly [before: number, after: number];

export interface Report {
  readonly revision: number;
  readonly error: string | null;
  readonly params: Sizes | null;
  readonly flops: Sizes | null;
  readonly bytes: Sizes | null;
  readonly changes: readonly Change[];
  readonly kept: ReadonlyMap<number, readonly number[]>; // the draft drops them, and they have to stay
  readonly taken: ReadonlyMap<number, readonly number[]>; // the draft keeps them, and they have to go
}

/** Null for none, and for what cannot be read. */
export function readReport(raw: unknown): Report | null {
  if (!isObject(raw) || !Number.isInteger(raw.revision)) return null;
  const changes = Array.isArray(raw.changes) ? (raw.changes as unknown[]).flatMap(readChange) : [];
  return {
    revision: raw.revision as number,
    error: typeof raw.error === "string" ? raw.error : null,
    params: readSizes(raw.params),
    flops: readSizes(raw.flops),
    bytes: readSizes(raw.bytes),
    changes,
    kept: readIndices(raw.kept),
    taken: readIndices(raw.taken)
  };
}

function readChange(raw: unknown): Change[] {
  if (!isObject(raw) || !isString(raw.text)) return [];
  const axes = isArrayOf(raw.axes, isCount) ? (raw.axes as number[]) : [];
  return [{ kind: isString(raw.kind) ? (raw.kind as string) : "", text: raw.text as string, axes }];
}

/** Numbers above 2^53 travel as text. */
function readSizes(raw: unknown): Sizes | null {
  if (!isArrayOf(raw, isValue) || raw.length !== 2) return null;
  const [before, after] = raw.map(Number);
  return Number.isFinite(before) && Number.isFinite(after) ? [before, after] : null;
}

function readIndices(raw: unknown): Map<number, number[]> {
  const isEntry = tuple(isCount, value => isArrayOf(value, isCount));
  return new Map(isArrayOf(raw, isEntry) ? (raw as [number, number[]][]) : []);
}
