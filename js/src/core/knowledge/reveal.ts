// Opening and closing groups, and bringing what is selected into the picture.

import type { Knowledge, Thing } from "./data";
import { buildPicture, choiceOf, groupId, idIn, mostItems } from "./picture";
import type { ExplorerStore } from "./state";
import type { MapItem } from "./items";

/** What opening a group came to. */
export type Outcome = "done" | "too many";

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
  const picture = buildPicture(data, { ...choiceOf(store), expanded: ids });
  if (picture.isCut || picture.items.length > mostItems()) return false;
  store.set("expanded", ids);
  return true;
}

/** The ids of the groups that a circle lies in, outermost first. */
export function around(id: string): string[] {
  const steps = id.split("/").slice(0, -1);
  return steps.map((_, i) => steps.slice(0, i + 1).join("/"));
}

/** The circle that shows a thing, if one does; the one that was clicked before all others. */
export function itemOf(
  data: Knowledge,
  items: readonly MapItem[],
  key: string | null,
  preferred: string | null
): MapItem | undefined {
  if (key === null) return undefined;
  const shown = items.filter(({ thing }) => thing !== null && data.key(thing) === key);
  return shown.find(({ id }) => id === preferred) ?? shown[0];
}

/** Opens what the selected thing lies in, if it is not drawn yet. */
export function revealSelected(data: Knowledge, store: ExplorerStore): void {
  const key = store.get("selected");
  const thing = data.find(key);
  if (!thing || itemOf(data, buildPicture(data, choiceOf(store)).items, key, store.get("item"))) return;
  for (const path of pathsTo(data, thing)) {
    const needed = [...around(path), path];
    const open = store.get("expanded");
    const more = needed.filter(id => !open.includes(id));
    if (openAll(data, store, [...open, ...more]) || openAll(data, store, needed)) {
      if (itemOf(data, buildPicture(data, choiceOf(store)).items, key, null)) return;
    }
  }
}

/** Groups to open, the best first. */
function pathsTo(data: Knowledge, thing: Thing): string[] {
  const group = (kind: Thing["kind"], index: number, level = 0) => ({ kind, index, level }) as Thing;
  const { models, entities } = data.payload;
  if (thing.kind === "model") return [groupId(data, group("family", models.family[thing.index]))];
  if (thing.kind === "type") {
    const [first] = data.members(thing);
    return first === undefined ? [] : [groupId(data, group("community", entities.community[first]))];
  }
  if (thing.kind === "community") return around(groupId(data, thing)); // small ones stand together
  if (thing.kind !== "module") return [];
  const tables = data.payload.types.slice(0, 1);
  const inType = (parent: string) =>
    tables.flatMap(({ level, of }) =>
      of[thing.index] < 0 ? [] : [idIn(parent, group("type", of[thing.index], level))]
    );
  const community = entities.community[thing.index];
  const inCommunity = community < 0 ? [] : [groupId(data, group("community", community))];
  const inModels = data.modelsOf[thing.index].slice(0, 3).map(({ index }) => {
    return idIn(groupId(data, group("family", models.family[index])), group("model", index));
  });
  return [...inCommunity, ...inModels].flatMap(path => [path, ...inType(path)]);
}
