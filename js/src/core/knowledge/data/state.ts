// The state of a knowledge explorer: what is chosen in it.

import { StateStore } from "../../shared/base/state_store";
import type { Level } from "./payload";
import * as words from "../../words/knowledge";

type ExplorerView = keyof typeof words.VIEWS;
export const VIEW_NAMES = Object.keys(words.VIEWS) as ExplorerView[];
export const COLORS = ["family", "community", "class", "uses", "importance", "none"] as const;
export type ColorBy = (typeof COLORS)[number];

/** What the circles of the graph stand for at first: families of models alone, or communities of structures too. */
export const GROUPS = ["families", "communities"] as const;
export type Groups = (typeof GROUPS)[number];

export interface Sorting {
  readonly column: string;
  readonly descending: boolean;
}

export interface ExplorerState {
  selected: string | null; // a fingerprint, or "Model:…", "Family:…", "Community:…", "Type:…"
  view: ExplorerView;
  colorBy: ColorBy;
  query: string;
  // The rest stays in the browser.
  groups: Groups;
  scatter: Readonly<Record<"x" | "y", string | null>>; // keys of what is set against each other; null: the first
  less: Readonly<Record<string, boolean>>; // by key, where somebody has said which way is better
  powers: Readonly<Record<string, boolean>>; // and whether its axis goes by powers of ten
  expanded: readonly string[]; // ids of the open groups of the graph
  item: string | null; // id of the selected circle, where a structure is drawn more than once
  rows: "modules" | "models"; // what is ranked
  level: Level | "all"; // of the uses in the ranking
  typeLevel: number;
  sorting: Readonly<Record<string, Sorting>>; // by table
  logarithmic: boolean; // axes of the rank–frequency plot
  comparing: string | null; // a model, and the one that it is compared with
  other: string | null;
  connected: boolean;
  notice: string;
}

function initialState(): ExplorerState {
  return {
    selected: null,
    view: "graph",
    colorBy: "family",
    query: "",
    groups: "families",
    scatter: { x: null, y: null },
    less: {},
    powers: {},
    expanded: [],
    item: null,
    rows: "modules",
    level: "all",
    typeLevel: 1,
    sorting: {},
    logarithmic: true,
    comparing: null,
    other: null,
    connected: true,
    notice: ""
  };
}

export class ExplorerStore extends StateStore<ExplorerState> {
  constructor(initial: Partial<ExplorerState> = {}) {
    super({ ...initialState(), ...initial });
  }
}
