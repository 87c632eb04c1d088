// The contents of the map: groups, open ones with their members, and links between them; and how groups open and close.

import { hyperLine, counted, shortNumber } from "../../shared/base/format";
import { nodeLimits } from "../../shared/base/settings";
import type { Knowledge, Entity, EntityKind } from "../data/knowledge";
import { type SearchHits, searchHits } from "../data/search";
import { groupLinks, type MapItem, type MapPicture, memberLinks } from "../data/map_items";
import { type ExplorerState, type ExplorerStore, GROUPS, type Groups } from "../data/state";
import { oneLine } from "../../shared/base/canvas";
import { push } from "../../shared/base/multimap";
import * as words from "../../words/knowledge";

export const MAX_ITEMS = 500; // never more, whatever the settings say
const MAX_GROUPS = 40; // of one kind at the start
const MANY_SINGLES = 8; // families of one model; more of them stand together
const MAX_MEMBERS = 60; // of an open group
const MANY = 36; // structures of a group; more of them stand together by type

/** What a picture depends on. */
export type MapOptions = Readonly<Pick<ExplorerState, "groups" | "expanded" | "query" | "selected">>;

export function mapOptions(store: ExplorerStore): MapOptions {
  const [groups, expanded] = [store.get("groups"), store.get("expanded")];
  return { groups, expanded, query: store.get("query"), selected: store.get("selected") };
}

type UnplacedItem = Omit<MapItem, "parent" | "depth" | "isOpen" | "isHit">;

export const itemLimit = (): number => Math.min(MAX_ITEMS, nodeLimits().refusal);

export function buildPicture(data: Knowledge, options: MapOptions): MapPicture {
  const found = searchHits(data, options.query);
  const isSearched = found.isActive && !found.isEmpty;
  const order = memberOrder(data, options, found);
  const open = new Set(options.expanded);
  const items: MapItem[] = [];
  let isCut = false;
  const place = (unplaced: readonly UnplacedItem[], parent: number, depth: number) => {
    for (const item of unplaced) {
      const hit = isHit(data, item, found);
      items.push({ ...item, parent, depth, isHit: isSearched && hit, isOpen: false });
    }
  };
  place(groups(data, options.groups), -1, 0);
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at];
    if (!item.isGroup || !open.has(item.id)) continue;
    const inside = members(data, item, options.groups, order);
    if (items.length + inside.length > itemLimit()) {
      isCut = true;
      continue;
    }
    items[at] = { ...item, isOpen: true };
    place(inside, at, item.depth + 1);
  }
  return { items, links: [...groupLinks(data, items), ...memberLinks(data, items)], isSearched, isCut };
}

/** Models that were found themselves are no hit by what they share with others. */
function isHit(data: Knowledge, { id, thing, members }: UnplacedItem, found: SearchHits): boolean {
  const models = modelsFor(data, id, thing);
  if (models?.some(model => found.models.has(model))) return true;
  return !(models && found.byModels) && members.some(entity => found.modules.has(entity));
}

/** The models that a circle stands for; undefined: it stands for structures. */
function modelsFor(data: Knowledge, id: string, thing: Entity | null): readonly number[] | undefined {
  return thing ? data.modelsFor(thing) : othersOf(data, id);
}

interface Order {
  structures(members: readonly number[]): number[];
  isFirst(model: number): boolean;
}

/** What was found comes first, then what is selected, so that neither is left out. */
function memberOrder(data: Knowledge, options: MapOptions, found: SearchHits): Order {
  const selected = data.find(options.selected);
  const first = (kind: EntityKind, hits: ReadonlySet<number>) => (index: number) =>
    (selected?.kind === kind && selected.index === index ? 2 : 0) + (hits.has(index) ? 1 : 0);
  const [structure, model] = [first("module", found.modules), first("model", found.models)];
  const open = new Set(options.expanded.map(openModel));
  return {
    structures: every => [...every].sort((a, b) => structure(b) - structure(a) || data.uses[b] - data.uses[a] || a - b),
    isFirst: index => model(index) > 0 || open.has(index)
  };
}

/** The model that an id of an open group is of; -1: it is of none. */
const openModel = (id: string): number => Number(/(?:^|\/)m(\d+)$/.exec(id)?.[1] ?? -1);

/** How what the graph has is shared out over the groups at the start. */
interface Start {
  readonly communities: readonly number[];
  readonly small: readonly number[]; // communities that stand together
  readonly families: readonly Entity[]; // and superfamilies
  readonly others: readonly number[]; // models of families that do not stand for themselves
}

type Starts = Record<Groups, Start>;
const known = new WeakMap<Knowledge, { readonly most: number; readonly starts: Starts }>();

function startOf(data: Knowledge, groups: Groups): Start {
  const most = Math.min(MAX_GROUPS, Math.floor(itemLimit() / 4)); // room is left for what is opened
  let found = known.get(data);
  if (found?.most !== most) {
    found = { most, starts: { families: byFamilies(data, most), communities: byCommunities(data, most) } };
    known.set(data, found);
  }
  return found.starts[groups];
}

/** Superfamilies; one of a single family is that family. */
function byFamilies(data: Knowledge, most: number): Start {
  const every = data.payload.superfamilies.name.map((_, index) => aloneOrAll(data, index));
  const sorted = bySize(every, thing => data.modelsFor(thing)?.length ?? 0);
  const others = sorted.slice(most).flatMap(thing => data.modelsFor(thing) ?? []);
  return { communities: [], small: [], families: sorted.slice(0, most), others };
}

function byCommunities(data: Knowledge, most: number): Start {
  const { communities, families } = data.payload;
  const numbers = Array.from({ length: communities.count }, (_, index) => index);
  const sorted = bySize(numbers, index => data.members({ kind: "community", index, level: 0 }).length);
  const every = bySize(
    families.map((_, index): Entity => ({ kind: "family", index, level: 0 })),
    ({ index }) => data.modelsIn(index).length
  );
  const large = every.filter(({ index }) => data.modelsIn(index).length > 1);
  const shown = (every.length - large.length > MANY_SINGLES ? large : every).slice(0, most);
  const left = every.filter(family => !shown.includes(family));
  return {
    communities: sorted.slice(0, most),
    small: sorted.slice(most),
    families: shown,
    others: left.flatMap(({ index }) => data.modelsIn(index))
  };
}

/** Largest first, else as they come. */
function bySize<T>(things: readonly T[], size: (thing: T) => number): T[] {
  const sized = things.map(thing => [thing, size(thing)] as const);
  return sized.sort((a, b) => b[1] - a[1]).map(([thing]) => thing);
}

function aloneOrAll(data: Knowledge, superfamily: number): Entity {
  const families = data.familiesIn(superfamily);
  return families.length === 1
    ? { kind: "family", index: families[0], level: 0 }
    : { kind: "superfamily", index: superfamily, level: 0 };
}

const SMALL = "c+"; // ids of the groups of what is small
const OTHERS = "f+";
const OTHERS_OF: Readonly<Record<Groups, string>> = { families: `${OTHERS}f`, communities: OTHERS };

/** The models in the group of those whose families do not stand for themselves. */
function othersOf(data: Knowledge, id: string): readonly number[] | undefined {
  const groups = GROUPS.find(each => OTHERS_OF[each] === id);
  return groups && startOf(data, groups).others;
}

/** What is there before anything is opened. */
function groups(data: Knowledge, choice: Groups): UnplacedItem[] {
  const { communities, small, families, others } = startOf(data, choice);
  const every = (kind: EntityKind, found: readonly number[]) =>
    found.map(index => group(data, { kind, index, level: 0 }, ""));
  return [
    ...every("community", communities),
    ...together(SMALL, words.SMALL_COMMUNITIES, words.communities(small.length), every("community", small)),
    ...families.map(thing => group(data, thing, "")),
    ...together(OTHERS_OF[choice], words.OTHER_MODELS, words.otherModels(others.length), every("model", others))
  ];
}

function together(id: string, title: string, detail: string, unplaced: readonly UnplacedItem[]): UnplacedItem[] {
  if (unplaced.length === 0) return [];
  const members = [...new Set(unplaced.flatMap(item => item.members))];
  return [{ id, kind: "more", thing: null, title, detail, count: unplaced.length, members, isGroup: true }];
}

/** The id of the group that has the models of a family, or of the circle of a community. */
function groupId(data: Knowledge, thing: Entity, choice: Groups): string {
  const { small, others } = startOf(data, choice);
  if (thing.kind === "community" && small.includes(thing.index)) return idIn(SMALL, thing);
  if (thing.kind !== "family") return idIn("", thing);
  const models = data.modelsIn(thing.index);
  if (models.length > 0 && others.includes(models[0])) return OTHERS_OF[choice];
  const around = aloneOrAll(data, data.payload.superfamilies.of[thing.index]);
  if (choice === "communities" || around.kind === "family") return idIn("", thing);
  return models.length === 1 ? idIn("", around) : idIn(idIn("", around), thing);
}

function shortened(unplaced: UnplacedItem[], most: number, prefix: string, noun: string): UnplacedItem[] {
  if (unplaced.length <= most) return unplaced;
  const left = unplaced.slice(most - 1);
  const members = left.flatMap(item => item.members);
  const title = words.more(left.length);
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
  return [...unplaced.slice(0, most - 1), rest as UnplacedItem];
}

const LETTER: Readonly<Record<EntityKind, string>> = {
  community: "c",
  superfamily: "s",
  family: "f",
  model: "m",
  type: "t",
  module: "e"
};

/** The id of a thing in a group. */
function idIn(parent: string, { kind, index, level }: Entity): string {
  const own = `${LETTER[kind]}${kind === "type" ? `${level}.` : ""}${index}`;
  return parent ? `${parent}/${own}` : own;
}

function group(data: Knowledge, thing: Entity, parent: string, members = data.members(thing)): UnplacedItem {
  const { kind, index } = thing;
  const models = kind === "family" || kind === "superfamily" ? data.modelsFor(thing) : undefined;
  const structures = kind === "model" ? data.payload.models.structures[index] : members.length;
  const count = models?.length ?? structures;
  const title = oneLine(data.name(thing));
  const families = kind === "superfamily" ? `${counted(data.familiesIn(index).length, "family", "families")}, ` : "";
  const detail = families + counted(count, models ? "model" : "structure");
  // before the analysis there is nothing in a model
  const isGroup = kind !== "model" || data.isAnalysed;
  return { id: idIn(parent, thing), kind, thing, title, detail, count, members, isGroup };
}

function structure(data: Knowledge, entity: number, parent: string): UnplacedItem {
  const thing: Entity = { kind: "module", index: entity, level: 0 };
  const inside = data.children(entity).length;
  const detail = inside > 0 ? words.parameters(shortNumber(data.params[entity] ?? 0)) : hyperLine(data.hyper(entity));
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

function members(data: Knowledge, item: MapItem, choice: Groups, order: Order): UnplacedItem[] {
  const { id, thing, members: found } = item;
  const models = (every: readonly number[]) =>
    firsts(every, order.isFirst).map(index => group(data, { kind: "model", index, level: 0 }, id));
  const most = (unplaced: UnplacedItem[], noun: string) => shortened(unplaced, MAX_MEMBERS, `${id}/`, noun);
  if (id === SMALL) {
    const { small } = startOf(data, choice);
    return most(
      small.map(index => group(data, { kind: "community", index, level: 0 }, id)),
      words.NOUNS.communities[1]
    );
  }
  if (!thing) return most(models(othersOf(data, id) ?? []), words.MODELS_ROW);
  if (thing.kind === "superfamily") return most(familiesIn(data, thing.index, id, order), words.FAMILIES_ROW);
  if (thing.kind === "family") return most(models(data.modelsIn(thing.index)), words.MODELS_ROW);
  const sorted = order.structures(found);
  const unplaced = found.length > MANY && thing.kind !== "type" ? byType(data, sorted, id) : each(data, sorted, id);
  return most(unplaced, thing.kind === "type" ? words.STRUCTURES_ROW : words.NOUNS.types[1]);
}

/** Where some will be left out, others than those that come first. */
const firsts = <T>(every: readonly T[], isFirst: (one: T) => boolean): readonly T[] =>
  every.length > MAX_MEMBERS ? bySize(every, one => Number(isFirst(one))) : every;

/** A family of one model is that model. */
function familiesIn(data: Knowledge, superfamily: number, parent: string, order: Order): UnplacedItem[] {
  const hasFirst = (family: number) => data.modelsIn(family).some(order.isFirst);
  return firsts(data.familiesIn(superfamily), hasFirst).map(family => {
    const models = data.modelsIn(family);
    const alone: Entity = { kind: "model", index: models[0], level: 0 };
    return group(data, models.length === 1 ? alone : { kind: "family", index: family, level: 0 }, parent);
  });
}

function each(data: Knowledge, entities: readonly number[], parent: string): UnplacedItem[] {
  return entities.map(entity => structure(data, entity, parent));
}

/** Structures of one type stand together; one that is alone stands for itself. */
function byType(data: Knowledge, entities: readonly number[], parent: string): UnplacedItem[] {
  const level = data.payload.types[0]?.level ?? 0;
  const of = data.types(level)?.of;
  const found = new Map<number, number[]>();
  for (const entity of entities) {
    const type = of?.[entity] ?? -1;
    const key = type < 0 ? -1 - entity : type; // without a type: on its own
    push(found, key, entity);
  }
  return Array.from(found, ([index, own]) =>
    own.length === 1 ? structure(data, own[0], parent) : group(data, { kind: "type", index, level }, parent, own)
  );
}

// Opening and closing groups, and bringing what is selected into the picture.

/** What opening a group came to. */
type Outcome = "done" | "too-many";

export function toggle(data: Knowledge, store: ExplorerStore, id: string): Outcome {
  const open = store.get("expanded");
  if (open.includes(id)) {
    store.set(
      "expanded",
      open.filter(other => other !== id && !other.startsWith(`${id}/`))
    );
    return "done";
  }
  return openAll(data, store, [...open, id]) ? "done" : "too-many";
}

/** Closes all other groups, then opens this one with what it lies in. */
export function openAlone(data: Knowledge, store: ExplorerStore, id: string): boolean {
  return openAll(data, store, [...around(id), id]);
}

/** Opens groups if all of them fit into the picture. */
function openAll(data: Knowledge, store: ExplorerStore, ids: readonly string[]): boolean {
  const picture = buildPicture(data, { ...mapOptions(store), expanded: ids });
  if (picture.isCut || picture.items.length > itemLimit()) return false;
  store.set("expanded", ids);
  return true;
}

/** The ids of the groups that a circle lies in, outermost first. */
export function around(id: string): string[] {
  const steps = id.split("/").slice(0, -1);
  return steps.map((_, i) => steps.slice(0, i + 1).join("/"));
}

/** The circle that shows a thing, if one does; the one that was clicked before all others. A model stands for its family. */
export function itemOf(
  data: Knowledge,
  items: readonly MapItem[],
  key: string | null,
  preferred: string | null
): MapItem | undefined {
  if (key === null) return undefined;
  const shown = items.filter(({ thing }) => thing !== null && data.key(thing) === key);
  if (shown.length > 0) return shown.find(({ id }) => id === preferred) ?? shown[0];
  const family = data.find(key);
  const [only, ...others] = family?.kind === "family" ? data.modelsIn(family.index) : [];
  if (only === undefined || others.length > 0) return undefined;
  return items.find(({ thing }) => thing?.kind === "model" && thing.index === only);
}

/** The groups among which a thing is drawn; undefined: among both. */
const GROUPS_OF: Partial<Record<Entity["kind"], Groups>> = { community: "communities", superfamily: "families" };

/** Opens what the selected thing lies in, if it is not drawn yet. */
export function revealSelected(data: Knowledge, store: ExplorerStore): void {
  const key = store.get("selected");
  const thing = data.find(key);
  const groups = thing && GROUPS_OF[thing.kind];
  if (groups) store.set("groups", groups);
  if (!thing || itemOf(data, buildPicture(data, mapOptions(store)).items, key, store.get("item"))) return;
  for (const path of pathsTo(data, thing, store.get("groups"), modelsAtHand(data, store))) {
    const needed = [...around(path), path];
    const open = store.get("expanded");
    const more = needed.filter(id => !open.includes(id));
    if (openAll(data, store, [...open, ...more]) || openAll(data, store, needed)) {
      if (itemOf(data, buildPicture(data, mapOptions(store)).items, key, null)) return;
    }
  }
}

/** Models that are open, or are being compared: where a structure is looked for first. */
function modelsAtHand(data: Knowledge, store: ExplorerStore): ReadonlySet<number> {
  const compared = [store.get("comparing"), store.get("other")].map(key => data.find(key)?.index ?? -1);
  return new Set([...store.get("expanded").map(openModel), ...compared]);
}

/** Groups to open, the best first; in models that are `near` before others. */
function pathsTo(data: Knowledge, thing: Entity, choice: Groups, near: ReadonlySet<number>): string[] {
  const group = (kind: Entity["kind"], index: number, level = 0) => ({ kind, index, level }) as Entity;
  const { models, entities } = data.payload;
  const family = (model: number) => groupId(data, group("family", models.family[model]), choice);
  const community = (entity: number) => {
    const index = entities.community[entity];
    return choice === "families" || index < 0 ? [] : [groupId(data, group("community", index), choice)];
  };
  const inModels = (entity: number) => {
    const isNear = (model: number) => near.has(model);
    const every = data.modelsOf[entity].map(({ index }) => index);
    const best = [...every.filter(isNear), ...every.filter(model => !isNear(model))].slice(0, 3);
    return best.map(index => idIn(family(index), group("model", index)));
  };
  if (thing.kind === "model") return [family(thing.index)];
  if (thing.kind === "family") {
    const own = groupId(data, thing, choice);
    return data.modelsIn(thing.index).length === 1 ? [own] : around(own);
  }
  if (thing.kind === "type") {
    const [first] = data.members(thing);
    return first === undefined ? [] : [...community(first), ...inModels(first)];
  }
  if (thing.kind === "community") return around(groupId(data, thing, choice)); // small ones stand together
  if (thing.kind !== "module") return [];
  const tables = data.payload.types.slice(0, 1);
  const inType = (parent: string) =>
    tables.flatMap(({ level, of }) =>
      of[thing.index] < 0 ? [] : [idIn(parent, group("type", of[thing.index], level))]
    );
  return [...community(thing.index), ...inModels(thing.index)].flatMap(path => [path, ...inType(path)]);
}
