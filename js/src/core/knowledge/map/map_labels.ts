// Names in the map of a graph: where each could stand, which are shown at a zoom, and how they give way to each other.

import { truncated, type Measure } from "../../shared/base/canvas";
import { shortNumber } from "../../shared/base/format";
import type { Circle } from "./circle_layout";
import { isOfModels, type MapItem } from "../data/map_items";
import { push } from "../../shared/base/multimap";

interface Line {
  readonly text: string;
  readonly size: number;
  readonly isBold: boolean;
  readonly isMuted: boolean;
}

/** Lines around a middle, in pixels from the corner of the picture. */
export interface MapLabel {
  readonly item: number; // place in the picture
  readonly kind: "header" | "inside" | "name";
  readonly lines: readonly Line[];
  readonly box: Rect;
  readonly isTag: boolean; // over something, with a ground of its own
}

export interface LabelledItem {
  readonly item: MapItem;
  readonly circle: Circle;
  readonly isSelected: boolean;
  readonly isDim: boolean;
}

const NAME = 12; // CSS pixels, at every zoom
export const SMALL = 10.5;
export const LINE = 13.5; // from one line to the next
const MIN_RADIUS = 4.5; // radius on the screen of what has a name
const BESIDE = NAME - 0.5;
const INSIDE = 25; // radius from which names stand inside
const DETAILED = 14; // radius from which a structure says more than its name
const AROUND = 3; // room at the ends of a name
const WIDEST = 132;
export const EDGE: readonly [number, number] = [14, 16]; // pixels that names may reach beyond the outermost circles
const OUTSIDE = 16; // places of a name around its circle
const TAGS = [1, -1, 0]; // where nothing else is free: over the rim or the middle of the circle itself
const TAGGED = 11; // radius from which a circle may bear its name so
const TAGGED_SQUARE = 22; // a square has a number, which its name must not hide
const HEADERS = 1e6; // rank of names of open groups: before all others
const HITS = 1e4;
const BREAK = " + "; // between the terms of a name

interface Request {
  readonly item: number;
  readonly kind: MapLabel["kind"];
  readonly forms: readonly (readonly Line[])[]; // each has as many of the places, one form's after the other's
  readonly wish: LabelRequest;
}

export class MapLabels {
  private items: readonly LabelledItem[] = [];
  private zoom = 0;
  private circles: readonly Circle[] = [];
  private obstacles = new Grid<number>();
  private shown: readonly MapLabel[] = [];
  private before: Placement = new Map();
  private bounds: Rect = [0, 0, 0, 0];
  private readonly isBlocked = (place: Rect, key: string): boolean =>
    !within(place, this.bounds) ||
    this.obstacles.some(place, at => {
      const { item } = this.items[at];
      return item.id !== key && covers(item, this.circles[at], place);
    });

  constructor(private readonly measure: Measure) {}

  /** The labels at a zoom. Where the picture is does not count: panning changes none. */
  at(items: readonly LabelledItem[], zoom: number): readonly MapLabel[] {
    if (items !== this.items || zoom !== this.zoom) {
      [this.items, this.zoom] = [items, zoom];
      this.circles = items.map(({ circle: { x, y, r } }) => ({ x: x * zoom, y: y * zoom, r: r * zoom }));
      this.shown = this.place();
    }
    return this.shown;
  }

  /** The same with the selected and the hovered one, to which others give way. */
  with(hovered: string | null): readonly MapLabel[] {
    const isWanted = ({ item, isSelected }: LabelledItem) => isSelected || item.id === hovered;
    const wanted = this.items.flatMap((each, at) => (isWanted(each) && !this.isNamed(at) ? [at] : []));
    if (wanted.length === 0) return this.shown;
    wanted.sort((a, b) => Number(this.items[b].isSelected) - Number(this.items[a].isSelected));
    const requests = wanted.map(at => this.beside(at));
    const boxes = new Map(this.shown.map(({ item, box }) => [this.items[item].item.id, box]));
    const { places, gone } = forceLabels(
      requests.map(({ wish }) => wish),
      this.isBlocked,
      boxes
    );
    const own = requests.flatMap(request => labelOf(request, places, true));
    const keys = new Set(own.map(({ item }) => this.items[item].item.id));
    const kept = this.shown.filter(({ item }) => {
      const { id } = this.items[item].item;
      return !gone.has(id) && !keys.has(id);
    });
    return [...kept, ...own];
  }

  /** Its name stands in it, or as a header. */
  private isNamed(at: number): boolean {
    return this.shown.some(({ item, kind }) => item === at && kind !== "name");
  }

  private place(): MapLabel[] {
    const { items, circles } = this;
    this.obstacles = new Grid();
    this.bounds = around(circles);
    items.forEach(({ item }, at) => {
      const { x, y, r } = circles[at];
      if (!item.isOpen && r >= MIN_RADIUS) this.obstacles.add([x - r, y - r, x + r, y + r], at);
    });
    const requests: Request[] = [];
    const inside: MapLabel[] = [];
    items.forEach(({ item, isDim }, at) => {
      const own = item.isOpen || isDim ? undefined : this.inside(at);
      if (own) inside.push(own);
      else if (item.isOpen) requests.push(...this.header(at));
      else if (!isDim && circles[at].r >= MIN_RADIUS) requests.push(this.beside(at));
    });
    const places = positionLabels(
      requests.map(({ wish }) => wish),
      this.isBlocked,
      this.before
    );
    this.before = places;
    return [...inside, ...requests.flatMap(request => labelOf(request, places, false))];
  }

  private header(at: number): Request[] {
    const { item } = this.items[at];
    const { x, y, r } = this.circles[at];
    if (r < 22) return [];
    const width = Math.min(260, Math.max(84, r * 1.5));
    const lines = [
      line(truncated(`${item.title} · ${shortNumber(item.count)}`, width, NAME, true, this.measure), NAME, true)
    ];
    const top = y - r + Math.min(24, r * 0.14) + 4;
    const places = [top, y - r - 10].map(middle => this.rect(lines, x, middle));
    return [{ item: at, kind: "header", forms: [lines], wish: { key: item.id, rank: HEADERS - item.depth, places } }];
  }

  /** The name and what is in it, if the circle has room for all of it. */
  private inside(at: number): MapLabel | undefined {
    const { item } = this.items[at];
    const { x, y, r } = this.circles[at];
    if (r < INSIDE || !item.isGroup) return undefined;
    const end = this.measure(item.detail, SMALL, false) <= r * 1.6 ? item.detail : shortNumber(item.count);
    for (const texts of [[item.title], broken(item.title)]) {
      const lines = [...texts.map(text => line(text, NAME, true)), line(end, SMALL, false)];
      const box = this.rect(lines, x, y);
      const half = (lines.length * LINE) / 2;
      const isRoomy = lines.every((each, i) => {
        const far = Math.max(Math.abs(i * LINE - half), Math.abs((i + 1) * LINE - half)) - 2;
        return Math.hypot(this.measure(each.text, each.size, each.isBold) / 2, far) <= r - 2;
      });
      if (isRoomy) return { item: at, kind: "inside", lines, box, isTag: false };
    }
    return undefined;
  }

  /** Below the circle, above or beside it, or off its corners; a long name in two lines or in one. */
  private beside(at: number): Request {
    const { item, isSelected } = this.items[at];
    const { x, y, r } = this.circles[at];
    const forms = this.formsOf(item, r, isSelected);
    const places = forms.flatMap(lines => {
      const [half, high] = [this.width(lines) / 2, (lines.length * LINE) / 2];
      const [far, aside] = [r + high + 2, r + half + 5];
      const [dx, dy] = [r * 0.74 + half + 2, r * 0.74 + high];
      const slide = 0.6 * half;
      const across = [
        0,
        0,
        aside,
        -aside,
        dx,
        -dx,
        dx,
        -dx,
        slide,
        -slide,
        slide,
        -slide,
        aside,
        -aside,
        aside,
        -aside
      ];
      const down = [far, -far, 0, 0, dy, dy, -dy, -dy, far, far, -far, -far, high, high, -high, -high];
      if (r >= (isOfModels(item.kind) ? TAGGED_SQUARE : TAGGED)) {
        across.push(...TAGS.map(() => 0));
        down.push(...TAGS.map(share => share * r));
      }
      return across.map((shift, slot) => this.rect(lines, x + shift, y + down[slot]));
    });
    const rank = (item.isHit ? HITS : 1) * this.items[at].circle.r * (item.kind === "more" ? 0.5 : 1);
    return { item: at, kind: "name", forms, wish: { key: item.id, rank, places } };
  }

  private formsOf(item: MapItem, r: number, isBold: boolean): Line[][] {
    const room = Math.max(WIDEST, r * 2.6);
    const fit = (texts: readonly string[]) =>
      texts.map(text => line(truncated(text, room, BESIDE, isBold, this.measure), BESIDE, isBold));
    const terms = broken(item.title);
    if (terms.length > 1) return [fit(terms), fit([item.title])];
    if (item.isGroup || r < DETAILED || !item.detail) return [fit(terms)];
    const detail = line(truncated(item.detail, room, SMALL, false, this.measure), SMALL, false);
    return [[...fit(terms), { ...detail, isMuted: true }], fit(terms)];
  }

  private width(lines: readonly Line[]): number {
    return Math.max(...lines.map(({ text, size, isBold }) => this.measure(text, size, isBold)));
  }

  private rect(lines: readonly Line[], x: number, y: number): Rect {
    const [half, high] = [this.width(lines) / 2 + AROUND, (lines.length * LINE) / 2];
    return [x - half, y - high, x + half, y + high];
  }
}

const line = (text: string, size: number, isBold: boolean): Line => ({ text, size, isBold, isMuted: false });

/** At the first "+" in two. */
function broken(title: string): string[] {
  const at = title.indexOf(BREAK);
  return at < 0 ? [title] : [title.slice(0, at), title.slice(at + 1)];
}

function labelOf({ item, kind, forms, wish }: Request, places: Placement, isForced: boolean): MapLabel[] {
  const slot = places.get(wish.key);
  if (slot === undefined) return [];
  const each = wish.places.length / forms.length;
  const isTag = kind === "name" && slot % each >= OUTSIDE;
  return [{ item, kind, lines: forms[Math.floor(slot / each)], box: wish.places[slot], isTag: isTag || isForced }];
}

/** What names must not leave: with the circles all of them are in view. */
function around(circles: readonly Circle[]): Rect {
  const bounds = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { x, y, r } of circles) {
    bounds[0] = Math.min(bounds[0], x - r - EDGE[0]);
    bounds[1] = Math.min(bounds[1], y - r - EDGE[1]);
    bounds[2] = Math.max(bounds[2], x + r + EDGE[0]);
    bounds[3] = Math.max(bounds[3], y + r + EDGE[1]);
  }
  return bounds as unknown as Rect;
}

const within = (place: Rect, bounds: Rect): boolean =>
  place[0] >= bounds[0] && place[1] >= bounds[1] && place[2] <= bounds[2] && place[3] <= bounds[3];

/** Whether a shape reaches into a place. */
function covers({ kind }: MapItem, { x, y, r }: Circle, [left, top, right, bottom]: Rect): boolean {
  if (isOfModels(kind)) return left < x + r && right > x - r && top < y + r && bottom > y - r;
  const [dx, dy] = [x - Math.max(left, Math.min(right, x)), y - Math.max(top, Math.min(bottom, y))];
  return dx * dx + dy * dy < r * r;
}

// Placement of names: the important ones first, the others give way. Pure arithmetic.

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
class Grid<T> {
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
