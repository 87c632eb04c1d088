// The rows of the tree as data: what is open, what a fold stands for, where the hidden matches are.

import type { Fold, Hierarchy } from "../shared/hierarchy";

export interface TreeRow {
  readonly node: number;
  readonly level: number; // the root is level 1
  readonly position: number; // from 1, among its siblings
  readonly siblings: number;
  readonly fold: Fold | undefined; // the fold that this one row stands for
  readonly open: boolean | null; // null: nothing inside
}

export interface TreeState {
  isOpen(node: number): boolean;
  readonly shown: ReadonlyMap<number, number>;
  readonly unfolded: ReadonlySet<number>;
}

/** All rows that are not hidden in a closed container, in tree order. */
export function treeRows(h: Hierarchy, state: TreeState): TreeRow[] {
  const rows: TreeRow[] = [];
  const waiting: TreeRow[] = [rowOf(h, state, { node: 0, fold: undefined }, 1, 1, 1)];
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    rows.push(row);
    if (!row.open) continue;
    const inside = entries(h, state, row.node);
    for (let i = inside.length - 1; i >= 0; i -= 1) {
      waiting.push(rowOf(h, state, inside[i], row.level + 1, i + 1, inside.length));
    }
  }
  return rows;
}

interface Entry {
  node: number;
  fold: Fold | undefined;
}

/** What stands directly under an open container: single modules, a fold by the member drawn for it, or all members. */
function entries(h: Hierarchy, state: TreeState, container: number): Entry[] {
  const found: Entry[] = [];
  for (const node of h.rows(container)) {
    const fold = h.fold(node);
    if (!fold) found.push({ node, fold });
    else if (!state.unfolded.has(fold.first)) found.push({ node: state.shown.get(fold.first) ?? node, fold });
    else for (const member of fold.members) found.push({ node: member, fold: undefined });
  }
  return found;
}

function rowOf(
  h: Hierarchy,
  state: TreeState,
  { node, fold }: Entry,
  level: number,
  position: number,
  siblings: number
): TreeRow {
  const open = h.isContainer(node) ? node === 0 || state.isOpen(node) : null;
  return { node, level, position, siblings, fold, open };
}

/** What a screen reader says: "1, Bottleneck, 35 identical". */
export function accessibleName(h: Hierarchy, row: TreeRow): string {
  const parts = [row.node === 0 ? h.payload.title : h.name(row.node)];
  if (row.node !== 0 && h.word(row.node)) parts.push(h.word(row.node));
  if (row.fold) parts.push(`${row.fold.count} ${row.fold.kind === "exact" ? "identical" : "similar"}`);
  if (row.fold?.kind === "family" && row.fold.label) parts.push(row.fold.label);
  return [...parts, ...h.marks(row.node), ...h.blocks(row.node)].join(", ");
}

/** How many of the matching nodes (in tree order) this row hides. */
export function hiddenMatches(h: Hierarchy, row: TreeRow, matching: readonly number[]): number {
  const ends = subtreeEnds(h);
  const within = (from: number, to: number) => below(matching, to) - below(matching, from);
  const end = ends[row.node];
  const inside = row.open === false ? within(row.node + 1, end) : 0;
  if (!row.fold) return inside;
  const { members } = row.fold;
  const all = within(row.fold.first, ends[members[members.length - 1]]);
  return inside + all - within(row.node, end);
}

const knownEnds = new WeakMap<Hierarchy, Int32Array>();

/** For each node the end of its subtree in pre-order: the subtree is node … end − 1. */
function subtreeEnds(h: Hierarchy): Int32Array {
  let ends = knownEnds.get(h);
  if (!ends) {
    ends = Int32Array.from({ length: h.size }, (_, node) => node + 1);
    for (let node = h.size - 1; node > 0; node -= 1) {
      const parent = h.parent(node);
      ends[parent] = Math.max(ends[parent], ends[node]);
    }
    knownEnds.set(h, ends);
  }
  return ends;
}

/** How many entries of the sorted list are smaller than the bound. */
export function below(sorted: readonly number[], bound: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < bound) low = middle + 1;
    else high = middle;
  }
  return low;
}
