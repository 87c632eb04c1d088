// What a thing is, in a few words: for the box beside the pointer, and for lists.

import { oneLine } from "../shared/canvas";
import { counted, exactNumber, shortNumber } from "../shared/format";
import { toNumber } from "../shared/payload";
import type { TipRow } from "../shared/tip";
import type { ThingKind, Knowledge, Thing } from "./data";
import type { MapItem } from "./items";

export const KIND_WORDS: Readonly<Record<ThingKind, string>> = {
  module: "structure",
  model: "model",
  family: "family of models",
  superfamily: "families that are alike",
  community: "community",
  type: "type"
};

/** "In degree" for in_degree. */
export function measureLabel(measure: string): string {
  return measure === "pagerank" ? "PageRank" : measure.charAt(0).toUpperCase() + measure.slice(1).replace(/_/g, " ");
}

export interface TipText {
  readonly heading: string;
  readonly rows: TipRow[];
  readonly notes: string[];
}

export function tipOf(data: Knowledge, item: MapItem): TipText {
  const { thing } = item;
  const how = item.isOpen ? "double click closes it" : "double click opens it";
  if (!thing) {
    const notes = [item.isGroup ? how : "click to narrow by a search"];
    return { heading: item.isGroup ? item.title : `${item.title} ${item.detail}`, rows: [], notes };
  }
  const rows = (thing.kind === "module" ? moduleRows : groupRows)(data, thing);
  return { heading: oneLine(data.name(thing)), rows, notes: item.isGroup ? [how] : [] };
}

function moduleRows(data: Knowledge, { index }: Thing): TipRow[] {
  return [
    { name: "class", value: oneLine(data.className(index)) },
    { name: "uses", value: exactNumber(data.uses[index]) },
    { name: "models", value: exactNumber(data.modelsOf[index].length) },
    { name: "parameters", value: shortNumber(data.params[index] ?? 0) }
  ];
}

function groupRows(data: Knowledge, thing: Thing): TipRow[] {
  const { kind, index } = thing;
  const { models } = data.payload;
  const row = (name: string, count: number) => ({ name, value: exactNumber(count) });
  if (kind === "model") {
    const params = shortNumber(toNumber(models.params[index]) ?? 0);
    return [{ name: "parameters", value: params }, row("structures", models.structures[index])];
  }
  const every = data.modelsFor(thing);
  const rows = every ? [row("models", every.length)] : [];
  if (kind === "superfamily") rows.unshift(row("families", data.familiesIn(index).length));
  return data.isAnalysed ? [...rows, row("structures", data.members(thing).length)] : rows;
}

/** One line under a name. */
export function detailOf(data: Knowledge, thing: Thing): string {
  const { kind, index } = thing;
  if (kind === "module") {
    const uses = counted(data.uses[index], "use");
    return `${oneLine(data.className(index))} · ${uses} in ${counted(data.modelsOf[index].length, "model")}`;
  }
  if (kind === "model") {
    const { params, structures } = data.payload.models;
    const size = shortNumber(toNumber(params[index]) ?? 0);
    return `model · ${size} parameters · ${counted(structures[index], "structure")}`;
  }
  const models = data.modelsFor(thing);
  const families = kind === "superfamily" ? counted(data.familiesIn(index).length, "family", "families") : "family";
  if (models) return `${families} · ${counted(models.length, "model")}`;
  return `${KIND_WORDS[kind]} · ${counted(data.members(thing).length, "structure")}`;
}
