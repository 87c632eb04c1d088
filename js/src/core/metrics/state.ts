// What is chosen in a panel, with a listener list for each key.

import { isEqual } from "../store";

export type PanelView = "lines" | "heatmap" | "histogram";
export type Phase = "train" | "eval" | "both";
export type Span = readonly [first: number, last: number]; // steps

export interface PanelState {
  selected: string | null; // dotted path; "" is the whole model
  metric: string; // "" is the first that comes
  modules: readonly string[]; // [] is the panel's own choice
  view: PanelView;
  window: number | null; // the last so many steps; null is all
  logScale: boolean;
  paused: boolean;
  phase: Phase;
  // The rest stays in the browser.
  query: string; // what the list of modules is searched for
  zoom: Span | null;
  step: number | null; // of the histograms; null is the latest
  ridge: boolean; // histograms of all steps, one behind the other
  pointed: number | null; // the series whose name is pointed at
  connected: boolean;
  notice: string;
}

export function initialPanelState(): PanelState {
  return {
    selected: null,
    metric: "",
    modules: [],
    view: "lines",
    window: null,
    logScale: false,
    paused: false,
    phase: "train",
    query: "",
    zoom: null,
    step: null,
    ridge: false,
    pointed: null,
    connected: true,
    notice: ""
  };
}

type Listener = () => void;

export class PanelStore {
  private readonly state: PanelState;
  private readonly listeners = new Map<keyof PanelState, Set<Listener>>();

  constructor(initial: Partial<PanelState> = {}) {
    this.state = { ...initialPanelState(), ...initial };
  }

  get<K extends keyof PanelState>(key: K): PanelState[K] {
    return this.state[key];
  }

  /** Nobody is told when the value is equal to the one before. */
  set<K extends keyof PanelState>(key: K, value: PanelState[K]): void {
    if (isEqual(this.state[key], value)) return;
    this.state[key] = value;
    for (const listener of [...(this.listeners.get(key) ?? [])]) listener();
  }

  /** Returns the disposer. */
  on(keys: keyof PanelState | readonly (keyof PanelState)[], listener: Listener): () => void {
    const entry = () => listener(); // a wrapper, so that one function may listen twice
    const watched = typeof keys === "string" ? [keys] : keys;
    for (const key of watched) {
      const listeners = this.listeners.get(key) ?? new Set<Listener>();
      this.listeners.set(key, listeners);
      listeners.add(entry);
    }
    return () => watched.forEach(key => this.listeners.get(key)?.delete(entry));
  }
}
