// Placement of names: the important ones first, the others give way. Pure arithmetic.

import { push } from "../../shared/base/multimap";

export type Rect = readonly [left: number, top: number, right: number, bottom: number];

/** A name that would like to be shown. */
export interface LabelRequest {
  readonly key: string;
  readonly rank: number; // the highest is served first
  readonly places: readonly Rect[]; // the best first
}

/** The place that each shown name has, by its key. */
export type Placement = ReadonlyMap<string, number>;

const CELL = 80; // pixels; about the length of a name
const STAYS = 1.3; // what was shown before counts for so much more, so that names do not flicker

export const overlap = (a: Rect, b: Rect): boolean => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];

/** Rectangles with what they belong to, found by where they are. */
export class Grid<T> {
  private readonly cells = new Map<number, { readonly rect: Rect; readonly value: T }[]>();

  add(rect: Rect, value: T): void {
    const entry = { rect, value };
    for (let x = cellOf(rect[0]); x <= cellOf(rect[2]); x += 1) {
      for (let y = cellOf(rect[1]); y <= cellOf(rect[3]); y += 1) {
        push(this.cells, x * COLUMN + y, entry);
      }
    }
  }

  /** Whether something overlaps a place of which the test holds. Asked thousands of times a frame: loops. */
  some(place: Rect, test: (value: T) => boolean): boolean {
    for (let x = cellOf(place[0]); x <= cellOf(place[2]); x += 1) {
      for (let y = cellOf(place[1]); y <= cellOf(place[3]); y += 1) {
        const known = this.cells.get(x * COLUMN + y);
        if (!known) continue;
        for (const { rect, value } of known) if (overlap(rect, place) && test(value)) return true;
      }
    }
    return false;
  }
}

const COLUMN = 65_537; // cells of one column have numbers of their own
const cellOf = (at: number): number => Math.floor(at / CELL);
const always = (): boolean => true;

/** Serves wishes by rank where nothing else is; `before`: what was shown, which stays where it can. */
export function positionLabels(
  wishes: readonly LabelRequest[],
  isBlocked: (place: Rect, key: string) => boolean,
  before: Placement
): Map<string, number> {
  const weight = ({ key, rank }: LabelRequest): number => (before.has(key) ? rank * STAYS : rank);
  const order = [...wishes].sort((a, b) => weight(b) - weight(a)); // stable: equal ones as they come
  const taken = new Grid<string>();
  const found = new Map<string, number>();
  for (const { key, places } of order) {
    const isFree = (at: number) => !taken.some(places[at], always) && !isBlocked(places[at], key);
    const last = before.get(key);
    const slot = last !== undefined && last < places.length && isFree(last) ? last : firstFree(places.length, isFree);
    if (slot < 0) continue;
    taken.add(places[slot], key);
    found.set(key, slot);
  }
  return found;
}

function firstFree(count: number, isFree: (at: number) => boolean): number {
  for (let at = 0; at < count; at += 1) if (isFree(at)) return at;
  return -1;
}

/** Shows these wishes whatever is there: what is in their way gives way to them; never one of them to another. */
export function forceLabels(
  wishes: readonly LabelRequest[],
  isBlocked: (place: Rect, key: string) => boolean,
  shown: ReadonlyMap<string, Rect>
): { readonly places: Map<string, number>; readonly gone: Set<string> } {
  const places = new Map<string, number>();
  const gone = new Set<string>();
  const kept: Rect[] = [];
  for (const wish of wishes) {
    const others = [...shown].filter(([key]) => key !== wish.key && !gone.has(key));
    const disturbed = (place: Rect) => others.filter(([, rect]) => overlap(rect, place));
    const costs = wish.places.map(place =>
      kept.some(rect => overlap(rect, place))
        ? Infinity
        : disturbed(place).length + (isBlocked(place, wish.key) ? 2 : 0)
    );
    const best = costs.indexOf(Math.min(...costs));
    if (costs[best] === Infinity || best < 0) continue;
    const place = wish.places[best];
    disturbed(place).forEach(([key]) => gone.add(key));
    kept.push(place);
    places.set(wish.key, best);
  }
  return { places, gone };
}
