// Very many cards beside each other stand in several columns, where that fits the room better.

import { BORDER, type Drawing } from "./types";

const FEWEST = 12; // cards that are worth it
const MOST_PASSING = 4; // lines that may lead past the columns: more would be hard to follow
const CHANNEL = 40;
const GAP = 22;
const FITS = 1.39; // times the room: what is no taller is left alone
const WORTH = 0.75; // of the size before

/** The ranks with room for further columns. `joints`: the nets of each card before which they come together. */
export function spreadTall(
  drawing: Drawing,
  ranks: readonly number[],
  joints: ReadonlyMap<number, readonly number[]>
): number[] {
  const byRank = groupedBy(ranks);
  if (!byRank.some(items => items.length >= FEWEST)) return [...ranks];
  const links = new Links(drawing, joints);
  let width = byRank.reduce((sum, items) => sum + widthOf(drawing, items), 0);
  const spread = [...ranks];
  let shift = 0;
  for (const items of byRank) {
    items.forEach(item => (spread[item] += shift));
    const alike = items.filter(item => links.isLoose(item));
    if (alike.length < FEWEST || links.passing(alike) > MOST_PASSING) continue;
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
  column.reduce((sum, item) => sum + items[item][1] + GAP, 0);

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
    used += drawing.items[item][1] + GAP;
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
