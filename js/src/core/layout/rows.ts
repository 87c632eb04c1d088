// Where a long drawing is broken into rows, as lines of text are: where few lines cross, and so that it fills the canvas.

import type { Room } from "./types";

export interface Column {
  width: number; // with the way to the next one
  height: number;
  crossing: number; // lines that lead past its right side
}

const GAP = 46; // between rows
const MOST_ROWS = 40;
const SMALL = 0.87; // of the room: what is smaller is not blown up
const PER_ROW = 0.03; // fewer rows where it hardly matters
const PER_LINE = 0.05; // a line that is broken is harder to follow
const LINE = 40; // pixels of room that it is worth to break one line less
const FULL = 0.55; // of the width that a row should take

const HARMLESS = 0.25; // misfit that rows may cost which the reader knows already
const MOST_TRIED = 200; // columns of a drawing whose rows are mended one by one

/** For each row the number of its first column. `before`: those of the drawing before this one, for the same columns. */
export function breakRows(columns: readonly Column[], room: Room, before: readonly number[] = []): number[] {
  const { rows, misfit } = bestRows(columns, room);
  return (before.length > 0 && keptRows(columns, room, before, misfit + HARMLESS)) || rows;
}

/** The rows as they were, else with one break more or less; null where either costs too much. */
function keptRows(columns: readonly Column[], room: Room, before: readonly number[], most: number): number[] | null {
  const kept = [...new Set([0, ...before])].sort((a, b) => a - b);
  if (misfitOf(columns, kept, room) <= most) return kept;
  if (columns.length > MOST_TRIED) return null;
  let best: { rows: number[] | null; misfit: number } = { rows: null, misfit: most };
  for (let at = 1; at < columns.length; at++) {
    const isBreak = kept.includes(at);
    const rows = isBreak ? kept.filter(first => first !== at) : [...kept, at].sort((a, b) => a - b);
    const misfit = misfitOf(columns, rows, room);
    if (misfit < best.misfit) best = { rows, misfit };
  }
  return best.rows;
}

function bestRows(columns: readonly Column[], room: Room): { rows: number[]; misfit: number } {
  let best = { rows: [0], misfit: Infinity };
  for (let count = 1; count <= Math.min(columns.length, MOST_ROWS); count++) {
    const rows = broken(columns, narrowest(columns, count));
    const misfit = misfitOf(columns, rows, room);
    if (misfit < best.misfit) best = { rows, misfit };
    if (rows.length > 3 && misfit > best.misfit + 1) break;
  }
  return best;
}

function misfitOf(columns: readonly Column[], rows: readonly number[], room: Room): number {
  const [width, height] = extentOf(columns, rows);
  const cut = rows.slice(1).reduce((sum, first) => sum + Math.max(0, columns[first - 1].crossing - 1), 0);
  const effort = PER_ROW * rows.length + PER_LINE * cut;
  const [across, down] = [width / room.width, height / room.height];
  const tooWide = width > room.most ? 10 * Math.log(width / room.most) : 0;
  if (!room.isFixed) return Math.abs(Math.log(across / down)) + effort + tooWide;
  return Math.log(Math.max(across, down, SMALL)) + effort + tooWide;
}

function extentOf(columns: readonly Column[], rows: readonly number[]): [number, number] {
  let [width, height] = [0, -GAP];
  rows.forEach((first, row) => {
    const inside = columns.slice(first, rows[row + 1]);
    width = Math.max(
      width,
      inside.reduce((sum, column) => sum + column.width, 0)
    );
    height += Math.max(...inside.map(column => column.height)) + GAP;
  });
  return [width, Math.max(1, height)];
}

function broken(columns: readonly Column[], width: number): number[] {
  const rows = [0];
  let used = 0;
  for (let at = 0; at < columns.length; at++) {
    const first = rows[rows.length - 1];
    if (at > first && used + columns[at].width > width) {
      at = bestBreak(columns, first, at, width);
      rows.push(at);
      used = 0;
    }
    used += columns[at].width;
  }
  return rows;
}

/** Of the places at which the row is full enough the one that breaks the fewest lines. */
function bestBreak(columns: readonly Column[], first: number, end: number, width: number): number {
  let best = { at: end, cost: Infinity };
  let used = 0;
  for (let at = first + 1; at <= end; at++) {
    used += columns[at - 1].width;
    const cost = columns[at - 1].crossing * LINE + (width - used);
    if ((used >= FULL * width || at === end) && cost <= best.cost) best = { at, cost };
  }
  return best.at;
}

/** The least width at which the columns take no more than `count` rows. */
function narrowest(columns: readonly Column[], count: number): number {
  let low = Math.max(...columns.map(({ width }) => width));
  let high = columns.reduce((sum, { width }) => sum + width, 0);
  while (high - low > 4) {
    const middle = (low + high) / 2;
    if (broken(columns, middle).length <= count) high = middle;
    else low = middle;
  }
  return high;
}
