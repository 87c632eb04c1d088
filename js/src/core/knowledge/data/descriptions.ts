// Short descriptions of nodes for tooltips and lists, and the notes of empty views.

import { oneLine } from "../../shared/base/canvas";
import { exactNumber, shortNumber } from "../../shared/base/format";
import { toNumber } from "../../shared/payload/payload";
import type { TooltipRow } from "../../shared/ui/tooltip";
import type { Knowledge, Entity } from "./knowledge";
import type { MapItem } from "./map_items";
import { button, copyText, el, icon } from "../../shared/ui/dom";
import type { ExplorerStore } from "./state";
import * as words from "../../words/knowledge";

/** "In degree" for in_degree. */
export function measureLabel(measure: string): string {
  return measure === "pagerank" ? "PageRank" : measure.charAt(0).toUpperCase() + measure.slice(1).replace(/_/g, " ");
}

interface TooltipText {
  readonly heading: string;
  readonly rows: TooltipRow[];
  readonly notes: string[];
}

export function tooltipOf(data: Knowledge, item: MapItem): TooltipText {
  const { thing } = item;
  const how = item.isOpen ? words.TO_COLLAPSE : words.TO_EXPAND;
  if (!thing) {
    const notes = [item.isGroup ? how : words.TO_SEARCH];
    return { heading: item.isGroup ? item.title : `${item.title} ${item.detail}`, rows: [], notes };
  }
  const rows = (thing.kind === "module" ? moduleRows : groupRows)(data, thing);
  return { heading: oneLine(data.name(thing)), rows, notes: item.isGroup ? [how] : [] };
}

function moduleRows(data: Knowledge, { index }: Entity): TooltipRow[] {
  return [
    { name: words.CLASS_ROW, value: oneLine(data.className(index)) },
    { name: words.USES_ROW, value: exactNumber(data.uses[index]) },
    { name: words.MODELS_ROW, value: exactNumber(data.modelsOf[index].length) },
    { name: words.PARAMETERS_ROW, value: shortNumber(data.params[index] ?? 0) }
  ];
}

function groupRows(data: Knowledge, thing: Entity): TooltipRow[] {
  const { kind, index } = thing;
  const { models } = data.payload;
  const row = (name: string, count: number) => ({ name, value: exactNumber(count) });
  if (kind === "model") {
    const params = shortNumber(toNumber(models.params[index]) ?? 0);
    return [{ name: words.PARAMETERS_ROW, value: params }, row(words.STRUCTURES_ROW, models.structures[index])];
  }
  const every = data.modelsFor(thing);
  const rows = every ? [row(words.MODELS_ROW, every.length)] : [];
  if (kind === "superfamily") rows.unshift(row(words.FAMILIES_ROW, data.familiesIn(index).length));
  return data.isAnalysed ? [...rows, row(words.STRUCTURES_ROW, data.members(thing).length)] : rows;
}

/** One line under a name. */
export function detailOf(data: Knowledge, thing: Entity): string {
  const { kind, index } = thing;
  if (kind === "module") {
    const used = words.usesIn(words.uses(data.uses[index]), words.models(data.modelsOf[index].length));
    return `${oneLine(data.className(index))} · ${used}`;
  }
  if (kind === "model") {
    const { params, structures } = data.payload.models;
    const size = shortNumber(toNumber(params[index]) ?? 0);
    return [words.KINDS.model, words.parameters(size), words.structures(structures[index])].join(" · ");
  }
  const models = data.modelsFor(thing);
  const families = kind === "superfamily" ? words.families(data.familiesIn(index).length) : words.FAMILY;
  if (models) return `${families} · ${words.models(models.length)}`;
  return `${words.KINDS[kind]} · ${words.structures(data.members(thing).length)}`;
}

// What to write where there is nothing to show yet, as code to copy.

/** That something is missing, and the code that would change it, with a button that copies it. */
export function emptyNote(what: keyof typeof words.ADVICE, store: ExplorerStore): HTMLElement {
  const { said, code } = words.ADVICE[what];
  const note = el("div", "mkg-kg-nothing");
  const copy = button("mkg-button mkg-kg-copy-code", "");
  copy.append(icon("copy"), el("span", "", words.COPY_CODE));
  copy.addEventListener("click", () => void tell(copyText(code), store));
  note.append(el("p", "", said), el("pre", "mkg-kg-code", code), copy);
  return note;
}

/** That structures will come, or why they do not. */
export function waitingNote(data: Knowledge): HTMLElement {
  const note = el("div", "mkg-kg-nothing");
  note.setAttribute("role", "status");
  const count = words.structures(data.payload.size);
  const said = data.payload.analysis === "running" ? words.analyzing(count) : words.notAnalyzed(count);
  note.append(el("p", "", said));
  return note;
}

async function tell(copied: Promise<boolean>, store: ExplorerStore): Promise<void> {
  store.set("notice", (await copied) ? words.COPIED : words.NOT_COPIED);
}
