// What a search comes to in every view: structures by their models, models by their structures, and what is said of it.

import { button, el } from "../shared/dom";
import { counted } from "../shared/format";
import type { Knowledge } from "./data";
import { search } from "./search";
import type { ExplorerStore } from "./state";

export interface Found {
  readonly isActive: boolean; // there is a search, and it was understood
  readonly isEmpty: boolean; // and nothing is found
  readonly modules: ReadonlySet<number>;
  readonly models: ReadonlySet<number>;
  readonly byModels: boolean; // the structures are those of models, as none was found itself
  readonly byModules: boolean; // the models are those with structures, as none was found itself
  readonly sources: ReadonlySet<number>; // the models that the structures are of, if they are
  readonly source: string; // these in words: "resnet50", "the 3 models found"
}

const NONE: Found = {
  isActive: false,
  isEmpty: false,
  modules: new Set(),
  models: new Set(),
  byModels: false,
  byModules: false,
  sources: new Set(),
  source: ""
};
const latest = new WeakMap<Knowledge, { readonly query: string; readonly found: Found }>();

/** The latest answer is remembered. */
export function foundBy(data: Knowledge, query: string): Found {
  const known = latest.get(data);
  if (known?.query === query) return known.found;
  const found = query.trim() === "" ? NONE : find(data, query);
  latest.set(data, { query, found });
  return found;
}

/** A model that is called exactly so stands for its structures, even where others have the text in their names. */
function find(data: Knowledge, query: string): Found {
  const { modules, models, notice } = search(data, query);
  if (notice) return NONE;
  const exact = [...models].filter(
    model => data.payload.models.name[model].toLowerCase() === query.trim().toLowerCase()
  );
  const isEmpty = modules.size + models.size === 0;
  const base = { ...NONE, isActive: true, isEmpty, modules, models };
  if (exact.length > 0 || (modules.size === 0 && models.size > 0)) {
    const sources = exact.length > 0 ? exact : [...models];
    const every = new Set([...modules, ...sources.flatMap(model => [...data.memberSet(model)])]);
    const [first] = sources;
    const source =
      sources.length === 1 ? data.payload.models.name[first] : `the ${counted(sources.length, "model")} found`;
    return { ...base, modules: every, byModels: true, sources: new Set(sources), source };
  }
  if (models.size === 0) return { ...base, models: new Set(data.modelsWith([...modules])), byModules: true };
  return base;
}

/** In the place of what a view would show: that there is nothing, why, and the way back. */
export function nothingNote(store: ExplorerStore, isEmpty: boolean): HTMLElement {
  const note = el("div", "mkg-kg-nothing");
  note.setAttribute("role", "status");
  const clear = button("mkg-button mkg-kg-clear", "Clear the search");
  clear.addEventListener("click", () => store.set("query", ""));
  const said = el("p");
  const words = isEmpty ? ["Nothing is found for “", "”."] : ["What is found for “", "” is not in this view."];
  said.append(words[0], el("bdi", "", store.get("query").trim()), words[1]);
  note.append(said, clear, el("p", "mkg-dim", "Escape in the search field clears it, too."));
  return note;
}
