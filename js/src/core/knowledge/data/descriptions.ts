// Short descriptions of nodes for tooltips and lists, and the notes of empty views.

import { oneLine } from "../../shared/base/canvas";
import { counted, exactNumber, shortNumber } from "../../shared/base/format";
import { toNumber } from "../../shared/payload/payload";
import type { TooltipRow } from "../../shared/ui/tooltip";
import type { Knowledge, Entity, EntityKind } from "./knowledge";
import type { MapItem } from "./map_items";
import { button, copyText, el, icon } from "../../shared/ui/dom";
import type { ExplorerStore } from "./state";

export const KIND_WORDS: Readonly<Record<EntityKind, string>> = {
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

interface TooltipText {
  readonly heading: string;
  readonly rows: TooltipRow[];
  readonly notes: string[];
}

export function tooltipOf(data: Knowledge, item: MapItem): TooltipText {
  const { thing } = item;
  const how = item.isOpen ? "double click closes it" : "double click opens it";
  if (!thing) {
    const notes = [item.isGroup ? how : "click to narrow by a search"];
    return { heading: item.isGroup ? item.title : `${item.title} ${item.detail}`, rows: [], notes };
  }
  const rows = (thing.kind === "module" ? moduleRows : groupRows)(data, thing);
  return { heading: oneLine(data.name(thing)), rows, notes: item.isGroup ? [how] : [] };
}

function moduleRows(data: Knowledge, { index }: Entity): TooltipRow[] {
  return [
    { name: "class", value: oneLine(data.className(index)) },
    { name: "uses", value: exactNumber(data.uses[index]) },
    { name: "models", value: exactNumber(data.modelsOf[index].length) },
    { name: "parameters", value: shortNumber(data.params[index] ?? 0) }
  ];
}

function groupRows(data: Knowledge, thing: Entity): TooltipRow[] {
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
export function detailOf(data: Knowledge, thing: Entity): string {
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

// What to write where there is nothing to show yet, as code to copy.

interface Advice {
  readonly said: string;
  readonly code: string;
}

const ADVICE = {
  models: {
    said: "The graph has no models yet. With kg as the graph and explorer as this widget:",
    code: 'import torchvision\nkg.add_model(torchvision.models.resnet18(), name="resnet18")\nexplorer.refresh()'
  },
  others: {
    said: "There is only one model, and nothing to compare it with. Add another:",
    code: 'import torchvision\nkg.add_model(torchvision.models.resnet50(), name="resnet50")\nexplorer.refresh()'
  },
  results: {
    said: "No two numbers are known of the same models. Results come from tables, for example those of timm:",
    code: 'kg.add_results(mk.published_results("timm"))\nexplorer.refresh()'
  },
  jobs: {
    said: "No training runs are known yet. A run is a job of the graph, with a model that it has:",
    code:
      'kg.add_user("me")\nkg.add_dataset("my data")\n' +
      'kg.add_job(user="me", dataset="my data", model="resnet18", accuracy=0.91)\nexplorer.refresh()'
  }
} as const satisfies Record<string, Advice>;

/** That something is missing, and the code that would change it, with a button that copies it. */
export function emptyNote(what: keyof typeof ADVICE, store: ExplorerStore): HTMLElement {
  const { said, code } = ADVICE[what];
  const note = el("div", "mkg-kg-nothing");
  const copy = button("mkg-button mkg-kg-copy-code", "");
  copy.append(icon("copy"), el("span", "", "Copy the code"));
  copy.addEventListener("click", () => void tell(copyText(code), store));
  note.append(el("p", "", said), el("pre", "mkg-kg-code", code), copy);
  return note;
}

/** That structures will come, or why they do not. */
export function waitingNote(data: Knowledge): HTMLElement {
  const note = el("div", "mkg-kg-nothing");
  note.setAttribute("role", "status");
  const count = counted(data.payload.size, "structure");
  const said =
    data.payload.analysis === "running"
      ? `${count} are being analysed by the kernel. Graph and Scatter show the models meanwhile.`
      : `${count} could not be analysed: the log of the kernel says why.`;
  note.append(el("p", "", said));
  return note;
}

async function tell(copied: Promise<boolean>, store: ExplorerStore): Promise<void> {
  store.set("notice", (await copied) ? "Copied." : "The browser did not allow copying.");
}
