// The rows of the tree: their data, their labels, and the bar of a file's sizes.

import * as words from "../words/tree";
import { BLOCK, type Fold, foldBadge, type Hierarchy, NOTE } from "../shared/model/hierarchy";
import { el, nameSpan } from "../shared/ui/dom";
import { counted, exactNumber, nameEnd, shortColumn, shortNumber } from "../shared/base/format";
import { highlight } from "../shared/search/search";
import { labelOf } from "../shared/stage/color";
import type { GraphStore } from "../shared/model/graph_store";

export interface TreeRow {
  readonly node: number;
  readonly level: number; // the root is level 1
  readonly position: number; // from 1, among its siblings
  readonly siblings: number;
  readonly fold: Fold | undefined; // the fold that this one row stands for
  readonly open: boolean | null; // null: nothing inside
  readonly rest?: Fold; // the row stands for the other members of this fold: `node` is the one that is drawn
}

/** What tells a row from all others: its node, and of the row for a fold's other members the complement. */
export const rowKey = ({ node, rest }: TreeRow): number => (rest ? ~node : node);

interface TreeState {
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
  rest?: Fold;
}

/** What stands directly under an open container: single modules, a fold by the member drawn for it, or all members. */
function entries(h: Hierarchy, state: TreeState, container: number): Entry[] {
  const found: Entry[] = [];
  for (const node of h.rows(container)) {
    const fold = h.fold(node);
    if (!fold) found.push({ node, fold });
    else if (!state.unfolded.has(fold.first)) {
      const drawn = state.shown.get(fold.first) ?? node;
      found.push({ node: drawn, fold }, { node: drawn, fold: undefined, rest: fold });
    } else for (const member of fold.members) found.push({ node: member, fold: undefined });
  }
  return found;
}

function rowOf(
  h: Hierarchy,
  state: TreeState,
  { node, fold, rest }: Entry,
  level: number,
  position: number,
  siblings: number
): TreeRow {
  if (rest) return { node, level, position, siblings, fold, open: false, rest };
  const open = h.isContainer(node) ? node === 0 || state.isOpen(node) : null;
  return { node, level, position, siblings, fold, open };
}

/** What a screen reader says: "1, Bottleneck, 35 identical". */
export function accessibleName(h: Hierarchy, row: TreeRow): string {
  if (row.rest) return `${restNames(h, row.rest, row.node)} ${words.copies(exactNumber(row.rest.count - 1))}`;
  const parts = [row.node === 0 ? h.payload.title : h.name(row.node)];
  if (row.node !== 0 && h.word(row.node)) parts.push(h.word(row.node));
  if (row.fold) parts.push(`${row.fold.count} ${row.fold.kind === "exact" ? words.EQUAL : words.SIMILAR}`);
  if (row.fold?.kind === "family" && row.fold.label) parts.push(row.fold.label);
  return [...parts, ...h.marks(row.node), ...h.blocks(row.node)].join(", ");
}

/** "1–3", or "0, 2–3" where 1 is drawn: the names of a fold's members but one. */
function restNames(h: Hierarchy, { members }: Fold, drawn: number): string {
  const at = below(members, drawn);
  const range = (from: number, to: number): string[] => {
    if (from > to) return [];
    const [first, last] = [h.name(members[from]), h.name(members[to])];
    return [from === to ? first : /^\d+$/.test(first + last) ? `${first}–${last}` : `${first} … ${last}`];
  };
  return [...range(0, at - 1), ...range(at + 1, members.length - 1)].join(", ");
}

/** How many of the matching nodes (in tree order) this row hides. */
export function hiddenMatches(h: Hierarchy, row: TreeRow, matching: readonly number[]): number {
  if (row.rest) return 0; // the row of the fold counts them
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

// What names a row of the tree: the name, then signs and the class, as many of them as there is room for beside it.

/** The order is that of importance: tree.css lets go of what does not fit, from the end. */
export function rowLabel(h: Hierarchy, { node, fold, rest }: TreeRow, needles: readonly string[]): HTMLElement {
  const label = el("span", "mkg-row-label");
  if (rest) {
    const count = el("span", "mkg-row-class", words.copies(exactNumber(rest.count - 1)));
    label.append(cutName(restNames(h, rest, node), []), count);
    return label;
  }
  label.append(cutName(node === 0 ? h.payload.title : h.name(node), needles));
  if (fold) label.append(el("span", "mkg-row-count", foldBadge(fold)));
  if (h.marks(node).length) label.append(el("span", "mkg-row-mark", NOTE));
  if (h.blocks(node).length) label.append(el("span", "mkg-row-block", BLOCK));
  const word = node === 0 ? "" : h.word(node);
  if (word) label.append(marked(nameSpan("mkg-row-class", ""), highlight(word, needles)));
  return label;
}

/** In two parts, of which the first gives way. */
function cutName(text: string, needles: readonly string[]): HTMLElement {
  const name = nameSpan("mkg-row-name", "");
  const end = nameEnd(text);
  const [first, last] = cutAt(highlight(text, needles), text.length - end.length);
  name.append(marked(el("span", "mkg-row-start"), first));
  if (end) name.append(marked(el("span", "mkg-row-end"), last));
  return name;
}

/** Both sides of a place in a text in which every second part is a match. */
function cutAt(parts: readonly string[], place: number): [string[], string[]] {
  const [before, after]: [string[], string[]] = [[], []];
  let from = 0;
  for (const part of parts) {
    const cut = Math.min(part.length, Math.max(0, place - from));
    before.push(part.slice(0, cut));
    after.push(part.slice(cut));
    from += part.length;
  }
  return [before, after];
}

/** Text with the matches in it set apart, as separate text nodes. */
function marked(element: HTMLElement, parts: readonly string[]): HTMLElement {
  parts.forEach((part, index) => {
    if (part) element.append(index % 2 ? el("mark", "mkg-hit", part) : part);
  });
  return element;
}

// The bar in a row of a file's tree: how much of what it lies in a module takes.

const BYTES = "bytes";

export interface RowSize {
  readonly column: string;
  readonly total: number; // of all that the row stands for
  readonly share: number; // of what it lies in
}

/** Bytes, or what the graph is colored by if that adds up; undefined for a model in memory. */
export function rowSize(h: Hierarchy, store: GraphStore, { node, fold, rest }: TreeRow): RowSize | undefined {
  if (!h.payload.file || rest) return undefined;
  const chosen = store.get("colorBy");
  const isSum = Object.prototype.hasOwnProperty.call(h.payload.columns, chosen) && isSummed(h, chosen);
  const column = isSum ? chosen : BYTES;
  const values = h.column(column);
  if (!values) return undefined;
  const total = (fold?.members ?? [node]).reduce((sum, member) => sum + (values[member] ?? 0), 0);
  const around = node === 0 ? total : (values[h.parent(node)] ?? 0);
  return { column, total, share: around > 0 ? Math.min(1, total / around) : 0 };
}

const isSummed = (h: Hierarchy, column: string) =>
  Object.prototype.hasOwnProperty.call(h.payload.column_info, column) &&
  h.payload.column_info[column].aggregate === "sum";

/** "1.2 GiB" */
export const amountOf = ({ column, total }: RowSize) => shortColumn(column, total);

/** `color`: of the module on the canvas. */
export function sizeBar(h: Hierarchy, { node, fold }: TreeRow, size: RowSize, color: string | null): HTMLElement {
  const element = el("span", "mkg-row-size");
  const [bar, filled] = [el("span", "mkg-row-bar"), el("span", "mkg-row-filled")];
  filled.style.width = `${Math.max(size.total > 0 ? 3 : 0, size.share * 100)}%`; // what is there is seen
  if (color) filled.style.backgroundColor = color;
  bar.append(filled);
  element.append(bar, el("span", "mkg-row-amount", amountOf(size)));
  element.title = explained(h, node, fold?.count ?? 1, size);
  return element;
}

function explained(h: Hierarchy, node: number, count: number, { column, total, share }: RowSize): string {
  const what = column === BYTES ? "" : ` ${labelOf(h, column)}`;
  const amount = shortColumn(column, total) + what;
  const parts = count > 1 ? `${amount} in ${counted(count, "module")}` : amount;
  return node === 0
    ? parts
    : words.shareOf(parts, shortNumber(Number((share * 100).toPrecision(2))), h.path(h.parent(node)) || words.WHOLE);
}
