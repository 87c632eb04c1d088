// The state of a model graph: what is chosen in it.

import { Value } from "../base/schema";
import { StateStore } from "../base/state_store";

export type ViewName = "hierarchy" | "dataflow" | "operators" | "deduplicated" | "diff";

export interface GraphState {
  selected: string | null; // dotted path; "" is the root
  axis: string | null; // name of the axis whose members are lit
  expanded: readonly string[]; // paths of open containers
  openToFit: boolean; // what is open at first is chosen by the page
  colorBy: string;
  query: string;
  view: ViewName;
  overlay: Readonly<Record<string, Value>>;
  pruned: Readonly<Record<string, Value>>; // path -> share of its parameters that a linked editor drops
  // The rest stays in the browser.
  shown: ReadonlyMap<number, number>; // fold.first -> member drawn for that fold
  unfolded: ReadonlySet<number>; // fold.first of folds drawn member by member
  stretches: ReadonlySet<string>; // keys of the groups of operators that are open
  focus: number; // node whose inside fills the canvas
  withFlops: boolean; // on the cards
  operators: readonly number[] | null; // steps of the card of operators that was clicked
  opening: readonly string[] | null; // what the page has opened by itself: `expanded` until somebody opens or closes
  connected: boolean;
  notice: string;
}

function initialState(): GraphState {
  return {
    selected: null,
    axis: null,
    expanded: [],
    openToFit: false,
    colorBy: "none",
    query: "",
    view: "hierarchy",
    overlay: {},
    pruned: {},
    shown: new Map(),
    unfolded: new Set(),
    stretches: new Set(),
    focus: 0,
    withFlops: false,
    operators: null,
    opening: null,
    connected: true,
    notice: ""
  };
}

export class GraphStore extends StateStore<GraphState> {
  constructor(initial: Partial<GraphState> = {}) {
    super({ ...initialState(), ...initial });
  }
}
