// The bar in a row of a file's tree: how much of what it lies in a module takes.

import { labelOf } from "../shared/color";
import { el } from "../shared/dom";
import { counted, shortColumn, shortNumber } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";
import type { Store } from "../shared/store";
import type { TreeRow } from "./rows";

const BYTES = "bytes";

export interface RowSize {
  readonly column: string;
  readonly total: number; // of all that the row stands for
  readonly share: number; // of what it lies in
}

/** Bytes, or what the graph is colored by if that adds up; undefined for a model in memory. */
export function rowSize(h: Hierarchy, store: Store, { node, fold }: TreeRow): RowSize | undefined {
  if (!h.payload.file) return undefined;
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
  return node === 0 ? parts : `${parts}: ${shortNumber(Number((share * 100).toPrecision(2)))} % of what it lies in`;
}
