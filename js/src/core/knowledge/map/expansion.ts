// Opening and closing groups, and bringing what is selected into the picture.

import type { Knowledge, Entity } from "../data/knowledge";
import { buildPicture, mapOptions, groupId, idIn, itemLimit, openModel } from "./map_contents";
import type { ExplorerStore, Groups } from "../data/state";
import type { MapItem } from "../data/map_items";

/** What opening a group came to. */
type Outcome = "done" | "too many";

export function toggle(data: Knowledge, store: ExplorerStore, id: string): Outcome {
  const open = store.get("expanded");
  if (open.includes(id)) {
    store.set(
      "expanded",
      open.filter(other => other !== id && !other.startsWith(`${id}/`))
    );
    return "done";
  }
  return openAll(data, store, [...open, id]) ? "done" : "too many";
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
