// Wrapping of drawings that do not fit the canvas: long ones into rows, tall columns into several.

import { BORDER, type Drawing, type Room } from "./types";

export interface Column {
  width: number; // with the way to the next one
  height: number;
  crossing: number; // lines that lead past its right side
}

const ROW_GAP = 46; // between rows
const MAX_ROWS = 40;
const SMALL = 0.87; // of the room: what is smaller is not blown up
const PER_ROW = 0.03; // fewer rows where it hardly matters
const PER_LINE = 0.05; // a line that is broken is harder to follow
const LINE = 40; // pixels of room that it is worth to break one line less
const FULL = 0.55; // of the width that a row should take

const HARMLESS = 0.25; // misfit that rows may cost which the reader knows already
const MAX_TUNED_COLUMNS = 200; // columns of a drawing whose rows are mended one by one

/** For each row the number of its first column. `before`: those of the drawing before this one, for the same columns. */
export function breakRows(columns: readonly Column[], room: Room, before: readonly number[] = []): number[] {
  const { rows, misfit } = bestRows(columns, room);
  return (before.length > 0 && previousRows(columns, room, before, misfit + HARMLESS)) || rows;
}

/** The rows as they were, else with one break more or less; null where either costs too much. */
function previousRows(
  columns: readonly Column[],
  room: Room,
  before: readonly number[],
  most: number
): number[] | null {
  const kept = [...new Set([0, ...before])].sort((a, b) => a - b);
  if (misfitOf(columns, kept, room) <= most) return kept;
  if (columns.length > MAX_TUNED_COLUMNS) return null;
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
  for (let count = 1; count <= Math.min(columns.length, MAX_ROWS); count++) {
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
  let [width, height] = [0, -ROW_GAP];
  rows.forEach((first, row) => {
    const inside = columns.slice(first, rows[row + 1]);
    width = Math.max(
      width,
      inside.reduce((sum, column) => sum + column.width, 0)
    );
    height += Math.max(...inside.map(column => column.height)) + ROW_GAP;
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

// Very many cards beside each other stand in several columns, where that fits the room better.

const MIN_CARDS = 12; // cards that are worth it
const MAX_PASSING_LINES = 4; // lines that may lead past the columns: more would be hard to follow
const CHANNEL = 40;
const CARD_GAP = 22;
const FITS = 1.39; // times the room: what is no taller is left alone
const WORTH = 0.75; // of the size before

/** The ranks with room for further columns. `joints`: the nets of each card before which they come together. */
export function spreadTall(
  drawing: Drawing,
  ranks: readonly number[],
  joints: ReadonlyMap<number, readonly number[]>
): number[] {
  const byRank = groupedBy(ranks);
  if (!byRank.some(items => items.length >= MIN_CARDS)) return [...ranks];
  const links = new Links(drawing, joints);
  let width = byRank.reduce((sum, items) => sum + widthOf(drawing, items), 0);
  const spread = [...ranks];
  let shift = 0;
  for (const items of byRank) {
    items.forEach(item => (spread[item] += shift));
    const alike = items.filter(item => links.isLoose(item));
    if (alike.length < MIN_CARDS || links.passing(alike) > MAX_PASSING_LINES) continue;
    const column = widthOf(drawing, alike);
    const count = bestCount(drawing, alike, width - column, column);
    inColumns(drawing, alike, count).forEach((at, k) => (spread[alike[k]] += at));
    shift += count - 1;
    width += (count - 1) * column;
  }
  return spread;
}

function groupedBy(ranks: readonly number[]): number[][] {
  const found: number[][] = [];
  ranks.forEach((rank, item) => (found[rank] ??= []).push(item));
  return Array.from(found, items => items ?? []);
}

function widthOf({ items }: Drawing, column: readonly number[]): number {
  return column.reduce((most, item) => Math.max(most, items[item][0]), 0) + CHANNEL;
}

const heightOf = ({ items }: Drawing, column: readonly number[]): number =>
  column.reduce((sum, item) => sum + items[item][1] + CARD_GAP, 0);

/** How many columns leave the whole smallest, seen in its room; `rest`: the width of everything else. */
function bestCount(drawing: Drawing, alike: readonly number[], rest: number, column: number): number {
  const { room } = drawing;
  const height = heightOf(drawing, alike);
  if (room.isFixed && height <= FITS * room.height) return 1;
  const widest = room.isFixed ? FITS * room.width : Infinity; // pages scroll down, not across
  const beside = rest + column > widest ? 0 : rest; // else in another row
  const most = Math.min(alike.length, Math.max(1, Math.floor((widest - beside) / column)));
  const size = (count: number) => Math.max((beside + count * column) / room.width, height / count / room.height);
  let best = 1;
  for (let count = 2; count <= most; count++) {
    if (size(count) < size(best)) best = count;
  }
  return size(best) <= WORTH * size(1) ? best : 1;
}

/** The column of each: in order, of like height. */
function inColumns(drawing: Drawing, alike: readonly number[], count: number): number[] {
  const height = heightOf(drawing, alike) / count;
  let used = 0;
  return alike.map(item => {
    const at = Math.min(count - 1, Math.floor(used / height + 1e-6));
    used += drawing.items[item][1] + CARD_GAP;
    return at;
  });
}

/** What leads to each card, and on from it. */
class Links {
  private readonly into: Set<number>[]; // nets
  private readonly onto: Set<number>[]; // items, or BORDER

  constructor(
    drawing: Drawing,
    private readonly joints: ReadonlyMap<number, readonly number[]>
  ) {
    this.into = drawing.items.map(() => new Set());
    this.onto = drawing.items.map(() => new Set());
    drawing.nets.forEach(({ start, ends }, net) =>
      ends.forEach(({ item }) => {
        if (item !== BORDER) this.into[item].add(net);
        if (start.item !== BORDER) this.onto[start.item].add(item);
      })
    );
  }

  /** Whether what leads on from a card comes together with what leads on from others. */
  isLoose(item: number): boolean {
    return [...this.onto[item]].every(to => this.joints.has(to));
  }

  /** The lines that would pass further columns. */
  passing(items: readonly number[]): number {
    const into = new Set(items.flatMap(item => [...this.into[item]]));
    const onto = new Set(items.flatMap(item => [...this.onto[item]]));
    return into.size + onto.size;
  }
}
