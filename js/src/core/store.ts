// The state that all parts of one view share, with a listener list for each key.

import { Value } from "./payload";

export type ViewName = "hierarchy" | "dataflow" | "operators" | "deduplicated" | "diff";

export interface GraphState {
  selected: string | null; // dotted path; "" is the root
  axis: string | null; // name of the axis whose members are lit
  expanded: readonly string[]; // paths of open containers
  colorBy: string;
  query: string;
  view: ViewName;
  overlay: Readonly<Record<string, Value>>;
  pruned: Readonly<Record<string, Value>>; // path -> share of its parameters that a linked editor drops
  // The rest stays in the browser.
  shown: ReadonlyMap<number, number>; // fold.first -> member drawn for that fold
  unfolded: ReadonlySet<number>; // fold.first of folds drawn member by member
  focus: number; // node whose inside fills the canvas
  operator: number | null; // step of the data flow that was clicked
  connected: boolean;
  notice: string;
}

export function initialState(): GraphState {
  return {
    selected: null,
    axis: null,
    expanded: [],
    colorBy: "none",
    query: "",
    view: "hierarchy",
    overlay: {},
    pruned: {},
    shown: new Map(),
    unfolded: new Set(),
    focus: 0,
    operator: null,
    connected: true,
    notice: ""
  };
}

type Listener = () => void;

export class Store {
  private readonly state: GraphState;
  private readonly listeners = new Map<keyof GraphState, Set<Listener>>();

  constructor(initial: Partial<GraphState> = {}) {
    this.state = { ...initialState(), ...initial };
  }

  get<K extends keyof GraphState>(key: K): GraphState[K] {
    return this.state[key];
  }

  /** Nobody is told when the value is equal to the one before. */
  set<K extends keyof GraphState>(key: K, value: GraphState[K]): void {
    if (isEqual(this.state[key], value)) {
      return;
    }
    this.state[key] = value;
    for (const listener of [...(this.listeners.get(key) ?? [])]) {
      listener();
    }
  }

  /** Returns the disposer. */
  on<K extends keyof GraphState>(key: K, listener: Listener): () => void {
    const listeners = this.listeners.get(key) ?? new Set<Listener>();
    this.listeners.set(key, listeners);
    const entry = () => listener(); // a wrapper, so that one function may listen twice
    listeners.add(entry);
    return () => void listeners.delete(entry);
  }
}

/** Equality of values, one level deep for arrays, maps, sets and records. */
export function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) {
    return true;
  }
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) {
    return false;
  }
  const left = entries(a);
  const right = entries(b);
  return (
    left.length === right.length &&
    left.every(([key, value], i) => Object.is(key, right[i][0]) && Object.is(value, right[i][1]))
  );
}

function entries(value: object): [unknown, unknown][] {
  return value instanceof Map || value instanceof Set ? [...value.entries()] : Object.entries(value);
}
