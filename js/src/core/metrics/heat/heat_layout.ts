// A heat map as plain data, and the layout of its rows: groups under headings, as high as their names or as fits.

import type { HeatRow, HeatScale } from "./heat_cells";
import type { Span } from "../base/state";
import type { ChartTheme } from "../base/chart_theme";

// Where the rows of a heat map stand: groups of rows under headings, so high that the names can be read or all fit.

interface HeatGroup {
  readonly heading: string; // "" where there is only one group
  readonly rows: number;
}

interface HeatBlock {
  readonly heading: string;
  readonly first: number; // row
  readonly rows: number;
  readonly top: number; // of the first row, in CSS pixels of the whole picture
}

export interface HeatLayout {
  readonly rowHeight: number;
  readonly height: number; // of all blocks
  readonly blocks: readonly HeatBlock[];
}

const MIN_HEIGHT = 3; // CSS pixels
const MAX_HEIGHT = 30;
export const HEADING = 20;

export function heatLayout(groups: readonly HeatGroup[], room: number): HeatLayout {
  const rows = groups.reduce((sum, group) => sum + group.rows, 0);
  const headings = groups.filter(({ heading }) => heading !== "").length * HEADING;
  const fitting = (room - headings) / Math.max(1, rows);
  const rowHeight = Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, fitting));
  const blocks: HeatBlock[] = [];
  let top = 0;
  let first = 0;
  for (const { heading, rows: count } of groups) {
    if (heading !== "") top += HEADING;
    blocks.push({ heading, first, rows: count, top });
    top += count * rowHeight;
    first += count;
  }
  return { rowHeight, height: top, blocks };
}

/** The row at a height of the whole picture; -1 on a heading or beyond the end. */
export function rowAt({ blocks, rowHeight }: HeatLayout, y: number): number {
  for (const { first, rows, top } of blocks) {
    if (y >= top && y < top + rows * rowHeight) return first + Math.floor((y - top) / rowHeight);
  }
  return -1;
}

/** The height at which a row begins. */
export function topOf({ blocks, rowHeight }: HeatLayout, row: number): number {
  const block = blocks.find(({ first, rows }) => row >= first && row < first + rows);
  return block ? block.top + (row - block.first) * rowHeight : 0;
}

/** The rows of a block that are seen between two heights. */
export function visibleRows(
  block: HeatBlock,
  rowHeight: number,
  from: number,
  to: number
): [first: number, end: number] {
  const first = Math.max(0, Math.floor((from - block.top) / rowHeight));
  const end = Math.min(block.rows, Math.ceil((to - block.top) / rowHeight));
  return [block.first + Math.min(first, block.rows), block.first + Math.max(0, end)];
}

export interface HeatLine extends HeatRow {
  readonly module: string;
  readonly label: string;
  readonly run: number;
}

export interface HeatPicture {
  readonly rows: readonly HeatLine[]; // those of one run one after the other
  readonly headings: ReadonlyMap<number, string>; // names of the runs; empty where there is only one
  readonly span: Span;
  readonly scale: HeatScale;
  readonly selected: string | null;
  readonly named: ReadonlySet<string>; // modules whose names come first where not all have room
  readonly marks: readonly { readonly row: number; readonly step: number; readonly text: string }[];
  readonly theme: ChartTheme;
}

/** The rows of each run, under its name. */
export function groupsOf({ rows, headings }: HeatPicture): HeatGroup[] {
  if (!headings.size) return [{ heading: "", rows: rows.length }];
  const counts = new Map<number, number>();
  for (const { run } of rows) counts.set(run, (counts.get(run) ?? 0) + 1);
  return [...counts].map(([run, count]) => ({ heading: headings.get(run) ?? "", rows: count }));
}
