// What the graph shows: groups, those that are open with their members in them, and what joins them.

import { hyperLine } from "../shared/hyper";
import { counted, shortNumber } from "../shared/format";
import { preferences } from "../shared/preferences";
import type { ThingKind, Knowledge, Thing } from "./data";
import { type Found, foundBy } from "./found";
import { groupLinks, memberLinks } from "./links";
import type { ExplorerState, ExplorerStore } from "./state";
import { oneLine } from "../shared/canvas";
import type { MapItem, MapPicture } from "./items";

export const MOST_ITEMS = 500; // never more, whatever the settings say
const MOST_GROUPS = 40; // of one kind at the start
const MANY_SINGLES = 8; // families of one model; more of them stand together
const MOST_MEMBERS = 60; // of an open group
const MANY = 36; // structures of a group; more of them stand together by type

/** What a picture depends on. */
export type Choice = Readonly<Pick<ExplorerState, "expanded" | "query" | "selected">>;

export function choiceOf(store: ExplorerStore): Choice {
  return { expanded: store.get("expanded"), query: store.get("query"), selected: store.get("selected") };
}

type Draft = Omit<MapItem, "parent" | "depth" | "isOpen" | "isHit">;

export const mostItems = (): number => Math.min(MOST_ITEMS, preferences().limits.hard);

export function buildPicture(data: Knowledge, choice: Choice): MapPicture {
  const found = foundBy(data, choice.query);
  const isSearched = found.isActive && !found.isEmpty;
  const order = memberOrder(data, choice);
  const open = new Set(choice.expanded);
  const items: MapItem[] = [];
  let isCut = false;
  const place = (drafts: readonly Draft[], parent: number, depth: number) => {
    for (const draft of drafts) {
      const hit = isHit(data, draft, found);
      items.push({ ...draft, parent, depth, isHit: isSearched && hit, isOpen: false });
    }
  };
  place(groups(data), -1, 0);
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at];
    if (!item.isGroup || !open.has(item.id)) continue;
    const inside = members(data, item, order);
    if (items.length + inside.length > mostItems()) {
      isCut = true;
      continue;
    }
    items[at] = { ...item, isOpen: true };
    place(inside, at, item.depth + 1);
  }
  return { items, links: [...groupLinks(data, items), ...memberLinks(data, items)], isSearched, isCut };
}

/** Models that were found themselves are no hit by what they share with others. */
function isHit(data: Knowledge, { id, kind, thing, members }: Draft, found: Found): boolean {
  const models = modelsFor(data, id, kind, thing);
  if (models?.some(model => found.models.has(model))) return true;
  return !(models && found.byModels) && members.some(entity => found.modules.has(entity));
}

/** The models that a circle stands for; undefined: it stands for structures. */
function modelsFor(
  data: Knowledge,
  id: string,
  kind: Draft["kind"],
  thing: Thing | null
): readonly number[] | undefined {
  if (kind === "model" && thing) return [thing.index];
  if (kind === "family" && thing) return data.modelsIn(thing.index);
  return id === SINGLE ? groupsOf(data).single : undefined;
}

/** What was found comes first, then what is selected, so that neither is left out. */
function memberOrder(data: Knowledge, choice: Choice): (members: readonly number[]) => number[] {
  const { modules } = foundBy(data, choice.query);
  const selected = data.find(choice.selected);
  const first = (entity: number) =>
    (selected?.kind === "module" && selected.index === entity ? 2 : 0) + (modules.has(entity) ? 1 : 0);
  return found => [...found].sort((a, b) => first(b) - first(a) || data.uses[b] - data.uses[a] || a - b);
}

interface Groups {
  readonly communities: readonly number[];
  readonly small: readonly number[]; // communities that stand together
  readonly families: readonly number[];
  readonly single: readonly number[]; // models of families that do not stand for themselves
}

const known = new WeakMap<Knowledge, { readonly most: number; readonly groups: Groups }>();

/** How communities and families are shared out over the groups at the start. */
function groupsOf(data: Knowledge): Groups {
  const most = Math.min(MOST_GROUPS, Math.floor(mostItems() / 4)); // room is left for what is opened
  let found = known.get(data);
  if (found?.most !== most) {
    const { communities, families } = data.payload;
    const bySize = sorted(communities.count, index => data.members({ kind: "community", index, level: 0 }).length);
    const every = sorted(families.length, index => data.modelsIn(index).length);
    const alone = every.filter(index => data.modelsIn(index).length === 1);
    const shown = (alone.length > MANY_SINGLES ? every.filter(index => !alone.includes(index)) : every).slice(0, most);
    const left = every.filter(index => !shown.includes(index));
    const groups = {
      communities: bySize.slice(0, most),
      small: bySize.slice(most),
      families: shown,
      single: left.flatMap(index => data.modelsIn(index))
    };
    found = { most, groups };
    known.set(data, found);
  }
  return found.groups;
}

function sorted(count: number, size: (index: number) => number): number[] {
  return Array.from({ length: count }, (_, index) => index).sort((a, b) => size(b) - size(a) || a - b);
}

const SMALL = "c+"; // ids of the groups of what is small
const SINGLE = "f+";

/** Communities and families: what is there before anything is opened. */
function groups(data: Knowledge): Draft[] {
  const { communities, small, families, single } = groupsOf(data);
  const every = (kind: ThingKind, found: readonly number[]) =>
    found.map(index => group(data, { kind, index, level: 0 }, ""));
  return [
    ...every("community", communities),
    ...together(SMALL, "Small communities", `${small.length} communities`, every("community", small)),
    ...every("family", families),
    ...together(SINGLE, "Other models", `${single.length} models`, every("model", single))
  ];
}

function together(id: string, title: string, detail: string, drafts: readonly Draft[]): Draft[] {
  if (drafts.length === 0) return [];
  const members = [...new Set(drafts.flatMap(draft => draft.members))];
  return [{ id, kind: "more", thing: null, title, detail, count: drafts.length, members, isGroup: true }];
}

/** The id of the group at the start that has a community or the models of a family. */
export function groupId(data: Knowledge, thing: Thing): string {
  const { small, single } = groupsOf(data);
  if (thing.kind === "community" && small.includes(thing.index)) return idIn(SMALL, thing);
  return thing.kind === "family" && single.some(model => data.payload.models.family[model] === thing.index)
    ? SINGLE
    : idIn("", thing);
}

function shortened(drafts: Draft[], most: number, prefix: string, noun: string): Draft[] {
  if (drafts.length <= most) return drafts;
  const left = drafts.slice(most - 1);
  const members = left.flatMap(draft => draft.members);
  const title = `${left.length} more`;
  const rest = {
    id: `${prefix}+`,
    kind: "more",
    thing: null,
    title,
    detail: noun,
    count: left.length,
    members,
    isGroup: false
  };
  return [...drafts.slice(0, most - 1), rest as Draft];
}

const LETTER: Readonly<Record<ThingKind, string>> = { community: "c", family: "f", model: "m", type: "t", module: "e" };

/** The id of a thing in a group. */
export function idIn(parent: string, { kind, index, level }: Thing): string {
  const own = `${LETTER[kind]}${kind === "type" ? `${level}.` : ""}${index}`;
  return parent ? `${parent}/${own}` : own;
}

function group(data: Knowledge, thing: Thing, parent: string, members = data.members(thing)): Draft {
  const count = thing.kind === "family" ? data.modelsIn(thing.index).length : members.length;
  const title = oneLine(data.name(thing));
  const detail = counted(count, thing.kind === "family" ? "model" : "structure");
  return { id: idIn(parent, thing), kind: thing.kind, thing, title, detail, count, members, isGroup: true };
}

function structure(data: Knowledge, entity: number, parent: string): Draft {
  const thing: Thing = { kind: "module", index: entity, level: 0 };
  const inside = data.children(entity).length;
  const detail = inside > 0 ? `${shortNumber(data.params[entity] ?? 0)} parameters` : hyperLine(data.hyper(entity));
  const title = oneLine(data.name(thing));
  return {
    id: idIn(parent, thing),
    kind: "module",
    thing,
    title,
    detail: oneLine(detail),
    count: inside,
    members: [entity],
    isGroup: false
  };
}

function members(
  data: Knowledge,
  { id, thing, members: found }: MapItem,
  order: (found: readonly number[]) => number[]
): Draft[] {
  if (!thing) {
    const { small, single } = groupsOf(data);
    const [kind, every, noun] =
      id === SMALL ? (["community", small, "communities"] as const) : (["model", single, "models"] as const);
    return shortened(
      every.map(index => group(data, { kind, index, level: 0 }, id)),
      MOST_MEMBERS,
      `${id}/`,
      noun
    );
  }
  if (thing.kind === "family") {
    const models = data.modelsIn(thing.index).map(index => group(data, { kind: "model", index, level: 0 }, id));
    return shortened(models, MOST_MEMBERS, `${id}/`, "models");
  }
  const sorted = order(found);
  const drafts = found.length > MANY && thing.kind !== "type" ? byType(data, sorted, id) : each(data, sorted, id);
  return shortened(drafts, MOST_MEMBERS, `${id}/`, thing.kind === "type" ? "structures" : "types");
}

function each(data: Knowledge, entities: readonly number[], parent: string): Draft[] {
  return entities.map(entity => structure(data, entity, parent));
}

/** Structures of one type stand together; one that is alone stands for itself. */
function byType(data: Knowledge, entities: readonly number[], parent: string): Draft[] {
  const level = data.payload.types[0]?.level ?? 0;
  const of = data.types(level)?.of;
  const found = new Map<number, number[]>();
  for (const entity of entities) {
    const type = of?.[entity] ?? -1;
    const key = type < 0 ? -1 - entity : type; // without a type: on its own
    const known = found.get(key);
    if (known) known.push(entity);
    else found.set(key, [entity]);
  }
  return Array.from(found, ([index, own]) =>
    own.length === 1 ? structure(data, own[0], parent) : group(data, { kind: "type", index, level }, parent, own)
  );
}
