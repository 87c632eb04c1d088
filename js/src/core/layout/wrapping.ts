// Wrapping of drawings that do not fit the canvas: long ones into rows, tall columns into several.

import { TURNED_CHANNEL } from "./geometry";
import type { Joints } from "./layers";
import { BORDER, type Drawing, type Pin, type Room, type Size } from "./types";

export interface Column {
  width: number; // with the way to the next one
  height: number;
  crossing: number; // lines that lead past its right side
  skips: number; // those of them that lead around other columns; less than one each that no row can hold
}

const ROW_GAP = 46; // between rows
const MAX_ROWS = 40;
const SMALL = 0.87; // of the room: what is smaller is not blown up
const PER_ROW = 0.03; // fewer rows where it hardly matters
const PER_LINE = 0.05; // a line that is broken is harder to follow
const PER_SKIP = 2; // and one that leads around others loses its sense
const LINE = 40; // pixels of room that it is worth to break one line less
const SKIP = 400; // and a skip
const FULL = 0.55; // of the width that a row should take

export const HARMLESS = 0.25; // misfit that rows may cost which the reader knows already
const MAX_TUNED_COLUMNS = 200; // columns of a drawing whose rows are mended one by one

export interface Rows {
  rows: number[]; // for each the number of its first column
  misfit: number;
}

/** `before`: the rows of the drawing before this one, for the same columns. */
export function breakRows(columns: readonly Column[], room: Room, before: readonly number[] = []): Rows {
  const best = bestRows(columns, room);
  return (before.length > 0 && previousRows(columns, room, before, best.misfit + HARMLESS)) || best;
}

/** The rows as they were, else with one break more or less; null where either costs too much. */
function previousRows(columns: readonly Column[], room: Room, before: readonly number[], most: number): Rows | null {
  const kept = [...new Set([0, ...before])].sort((a, b) => a - b);
  const known = { rows: kept, misfit: misfitOf(columns, kept, room) };
  if (known.misfit <= most) return known;
  if (columns.length > MAX_TUNED_COLUMNS) return null;
  let best: Rows = { rows: [], misfit: most };
  for (let at = 1; at < columns.length; at++) {
    const isBreak = kept.includes(at);
    const rows = isBreak ? kept.filter(first => first !== at) : [...kept, at].sort((a, b) => a - b);
    const misfit = misfitOf(columns, rows, room);
    if (misfit < best.misfit) best = { rows, misfit };
  }
  return best.rows.length > 0 ? best : null;
}

function bestRows(columns: readonly Column[], room: Room): Rows {
  let best: Rows = { rows: [0], misfit: Infinity };
  for (let count = 1; count <= Math.min(columns.length, MAX_ROWS); count++) {
    const rows = broken(columns, narrowest(columns, count));
    const misfit = misfitOf(columns, rows, room);
    if (misfit < best.misfit) best = { rows, misfit };
    if (rows.length > 3 && misfit > best.misfit + 1) break;
  }
  return best;
}

export function misfitOf(columns: readonly Column[], rows: readonly number[], room: Room): number {
  const [width, height] = extentOf(columns, rows);
  const cut = rows.slice(1).reduce((sum, first) => sum + Math.max(0, columns[first - 1].crossing - 1), 0);
  const around = skipsBroken(columns, rows);
  const effort = PER_ROW * rows.length + PER_LINE * cut + PER_SKIP * around;
  const [across, down] = [width / room.width, height / room.height];
  const tooWide = width > room.most ? 10 * Math.log(width / room.most) : 0;
  if (!room.isFixed) return Math.abs(Math.log(across / down)) + effort + tooWide;
  return Math.log(Math.max(across, down, SMALL)) + effort + tooWide;
}

export function skipsBroken(columns: readonly Column[], rows: readonly number[]): number {
  return rows.slice(1).reduce((sum, first) => sum + columns[first - 1].skips, 0);
}

/** Width and height of all rows. */
function extentOf(columns: readonly Column[], rows: readonly number[]): Size {
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
    const { crossing, skips } = columns[at - 1];
    const cost = crossing * LINE + skips * SKIP + (width - used);
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

// What the columns will take, roughly: known before there is an order, and enough to break them into rows.

const CHANNEL = 40; // what a way between columns takes
const PASSING = 14; // and a line that passes a column
const CARD_GAP = 22;

/** What each rank will take, roughly: known before there is an order. `isHeld`: a canvas could show all without a break. */
export function columnsOf(
  drawing: Drawing,
  ranks: readonly number[],
  isBack: (a: number, b: number) => boolean,
  joints: Joints,
  isHeld = false
): Column[] {
  const count = Math.max(0, ...ranks) + 1;
  const columns = Array.from({ length: count }, () => ({ width: 0, height: 0, crossing: 0, skips: 0 }));
  drawing.items.forEach(([width, height], item) => {
    const column = columns[ranks[item]];
    column.width = Math.max(column.width, width);
    column.height += height + CARD_GAP;
  });
  const labels = new Array<number>(count).fill(0);
  const spans: Span[] = [];
  const starting = new Int32Array(count + 1); // lines that begin to pass a rank, less those that end
  for (const { start, ends, label } of drawing.nets) {
    const from = start.item === BORDER ? 0 : ranks[start.item];
    const forward = ends.filter(
      ({ item }) => item === BORDER || (!joints.has(item) && (start.item === BORDER || !isBack(start.item, item)))
    );
    const last = Math.max(from, ...forward.map(({ item }) => (item === BORDER ? count - 1 : ranks[item])));
    starting[from]++;
    starting[last]--;
    spans.push({
      from: start.item === BORDER ? -1 : from,
      ends: forward.map(({ item }) => (item === BORDER ? count : ranks[item])).sort((a, b) => a - b)
    });
    if (start.item !== BORDER) labels[from] = Math.max(labels[from], label);
  }
  joints.forEach((nets, item) => {
    const sources = nets.map(net => drawing.nets[net].start.item);
    const from = sources.reduce((first, source) => Math.min(first, source === BORDER ? 0 : ranks[source]), ranks[item]);
    starting[from]++;
    starting[ranks[item]]--;
    spans.push({ from, ends: [ranks[item]] });
  });
  let passing = 0;
  const channel = drawing.isTurned ? TURNED_CHANNEL : CHANNEL;
  columns.forEach((column, rank) => {
    column.height += PASSING * Math.max(0, passing - 1);
    passing += starting[rank];
    column.crossing = passing;
    column.width += Math.max(channel, labels[rank] + 26) + 5 * Math.min(6, Math.max(0, passing - 1));
  });
  countSkips(columns, spans, isHeld ? Infinity : drawing.room.holds[0]);
  return columns;
}

/** How far items come to stand beside each other where each is level with what leads to it. */
export function driftOf(
  { items, nets }: Drawing,
  ranks: readonly number[],
  isBack: (from: number, to: number) => boolean
): number {
  const pinOf = ({ item, y }: Pin) => (Number.isNaN(y) ? items[item][1] / 2 : y);
  const into: [from: number, shift: number][][] = items.map(() => []);
  for (const { start, ends } of nets) {
    for (const end of start.item === BORDER ? [] : ends) {
      if (end.item === BORDER || isBack(start.item, end.item)) continue;
      into[end.item].push([start.item, pinOf(start) - pinOf(end)]);
    }
  }
  const tops = items.map(() => 0);
  const order = items.map((_, item) => item).sort((a, b) => ranks[a] - ranks[b]);
  let [top, bottom] = [Infinity, -Infinity];
  for (const item of order) {
    const wanted = into[item].map(([from, shift]) => tops[from] + shift);
    if (wanted.length > 0) tops[item] = wanted.reduce((sum, y) => sum + y, 0) / wanted.length;
    top = Math.min(top, tops[item]);
    bottom = Math.max(bottom, tops[item] + items[item][1]);
  }
  return bottom - top;
}

interface Span {
  from: number; // ranks; -1 and what is behind the last one: the border
  ends: number[]; // in order
}

const HOPELESS_SKIP = 0.05; // of one that no row could hold

/**
 * A line is a skip where it leads around columns; where it is broken the nearest end behind matters. A break right behind
 * its source does no harm: there it is one line still with what leads to those columns.
 */
function countSkips(columns: readonly Column[], spans: readonly Span[], holds: number): void {
  const lefts = [0];
  columns.forEach(({ width }, rank) => lefts.push(lefts[rank] + width));
  for (const { from, ends } of spans) {
    let rank = from + 1;
    for (const end of ends) {
      if (end < from + 2) continue;
      const width = lefts[Math.min(end + 1, columns.length)] - lefts[Math.max(0, from)];
      for (; rank < Math.min(end, columns.length); rank++) columns[rank].skips += width <= holds ? 1 : HOPELESS_SKIP;
    }
  }
}

/** Of all that is drawn in these rows, without the room that columns have for what would be behind and below. */
export function plannedExtent(columns: readonly Column[], rows: readonly number[]): Size {
  const [width, height] = extentOf(columns, rows);
  return [Math.max(0, width - CHANNEL), Math.max(0, height - CARD_GAP * rows.length)];
}

// Very many cards beside each other stand in several columns, where that fits the room better.

const MIN_CARDS = 12; // cards that are worth it
const MAX_PASSING_LINES = 4; // lines that may lead past the columns: more would be hard to follow
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
