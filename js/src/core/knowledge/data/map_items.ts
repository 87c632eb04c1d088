// The items of the map, circles, and the links between them.

import type { Knowledge, Entity, EntityKind } from "./knowledge";
import { push } from "../../shared/base/multimap";

// What the map of a graph shows: circles, and what joins them.

/** What stands for models is a square. */
export const isOfModels = (kind: MapItem["kind"]): boolean =>
  kind === "model" || kind === "family" || kind === "superfamily";

export interface MapItem {
  readonly id: string; // ids of what it lies in, then its own
  readonly kind: EntityKind | "more";
  readonly thing: Entity | null; // null: what is left out
  readonly parent: number; // place in the picture; -1: none
  readonly depth: number;
  readonly title: string;
  readonly detail: string;
  readonly count: number; // members
  readonly members: readonly number[]; // the structures that it stands for
  readonly isGroup: boolean; // can be opened
  readonly isOpen: boolean;
  readonly isHit: boolean; // or something in it is
}

export interface MapPicture {
  readonly items: readonly MapItem[];
  readonly links: readonly MapLink[];
  readonly isSearched: boolean;
  readonly isCut: boolean; // an open group is drawn closed, as it would be too much
}

export interface MapLink {
  readonly from: number; // places in the picture
  readonly to: number;
  readonly weight: number; // 0 … 1
  readonly kind: "alike" | "shares" | "contains";
}

const MIN_SHARE = 0.12; // of the structures of a group that a link stands for
const MAX_GROUP_LINKS = 4; // links of a group

/** Groups at the start: families of models that are alike, and a family and a community that share structures. */
export function groupLinks(data: Knowledge, items: readonly MapItem[]): MapLink[] {
  const isOfFamilies = items.every(({ depth, kind }) => depth > 0 || kind !== "community");
  return isOfFamilies ? alikeLinks(data, items) : sharingLinks(data, items);
}

function alikeLinks(data: Knowledge, items: readonly MapItem[]): MapLink[] {
  const { links, of } = data.payload.superfamilies;
  const places = new Map<number, number>(); // superfamily -> place
  items.forEach(({ depth, thing }, place) => {
    if (depth > 0 || !thing) return;
    if (thing.kind === "superfamily") places.set(thing.index, place);
    else if (thing.kind === "family") places.set(of[thing.index], place);
  });
  const found: MapLink[] = [];
  for (let at = 0; at < links.length; at += 3) {
    const [from, to, weight] = [places.get(links[at]), places.get(links[at + 1]), links[at + 2]];
    if (from !== undefined && to !== undefined && from !== to) found.push({ from, to, weight, kind: "alike" });
  }
  return found;
}

function sharingLinks(data: Knowledge, items: readonly MapItem[]): MapLink[] {
  const places = new Map<number, number>(); // community -> place
  items.forEach(({ depth, thing }, place) => {
    if (depth === 0 && thing?.kind === "community") places.set(thing.index, place);
  });
  return items.flatMap((item, from) =>
    item.depth === 0 && item.thing?.kind === "family" ? linksOf(data, item, from, places) : []
  );
}

function linksOf(data: Knowledge, { members }: MapItem, from: number, places: ReadonlyMap<number, number>): MapLink[] {
  const counts = new Map<number, number>();
  for (const entity of members) {
    const community = data.payload.entities.community[entity];
    counts.set(community, (counts.get(community) ?? 0) + 1);
  }
  const found = [...counts].flatMap(([community, count]) => {
    const to = places.get(community);
    const whole = Math.min(members.length, data.members({ kind: "community", index: community, level: 0 }).length);
    const weight = count / Math.max(1, whole);
    return to === undefined || weight < MIN_SHARE ? [] : [{ from, to, weight, kind: "shares" as const }];
  });
  return found.sort((a, b) => b.weight - a.weight).slice(0, MAX_GROUP_LINKS);
}

/** Within an open group: what contains what. */
export function memberLinks(data: Knowledge, items: readonly MapItem[]): MapLink[] {
  const inside = new Map<number, number[]>();
  items.forEach(({ parent, kind }, place) => {
    if (parent < 0 || kind === "model" || kind === "more") return;
    push(inside, parent, place);
  });
  return [...inside.values()].flatMap(places => linksAmong(data, items, places));
}

function linksAmong(data: Knowledge, items: readonly MapItem[], places: readonly number[]): MapLink[] {
  const placeOf = new Map<number, number>();
  for (const place of places) for (const entity of items[place].members) placeOf.set(entity, place);
  const counts = new Map<number, number>();
  for (const [entity, from] of placeOf) {
    for (const { index } of data.children(entity)) {
      const to = placeOf.get(index);
      if (to === undefined || to === from) continue;
      const key = from * items.length + to;
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
  }
  const most = Math.max(1, ...counts.values());
  return Array.from(counts, ([key, count]) => ({
    from: Math.floor(key / items.length),
    to: key % items.length,
    weight: count / most,
    kind: "contains" as const
  }));
}

/** Circles that a structure contains or lies in directly, as far as they are drawn. */
export function relatedTo(data: Knowledge, items: readonly MapItem[], entity: number): MapLink[] {
  const own = items.flatMap(({ kind, members }, place) => (kind === "module" && members[0] === entity ? [place] : []));
  if (own.length === 0) return [];
  const inside = new Set(data.children(entity).map(({ index }) => index));
  const around = new Set(data.parents[entity].map(({ index }) => index));
  const found: MapLink[] = [];
  items.forEach((item, place) => {
    if (item.isOpen || item.kind !== "module") return;
    const [member] = item.members;
    for (const at of own) {
      if (inside.has(member)) found.push({ from: at, to: place, weight: 1, kind: "contains" });
      if (around.has(member)) found.push({ from: place, to: at, weight: 1, kind: "contains" });
    }
  });
  return found;
}
