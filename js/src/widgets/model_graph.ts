// ModelGraph: the explorer's state bound to the traits of the Python widget.

import { DOMWidgetModel, DOMWidgetView } from "@jupyter-widgets/base";
import { createModelGraph, type ModelGraph } from "../core/model_graph";
import type { Value } from "../core/payload";
import { type GraphState, Store, type ViewName } from "../core/store";
import { Connection, modelDefaults, TraitWriter } from "./_base";

export class ModelGraphModel extends DOMWidgetModel {
  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("ModelGraph"),
      payload: {},
      selected: null,
      axis: null,
      expanded: [],
      color_by: "none",
      query: "",
      view: "hierarchy",
      overlay: {}
    };
  }
}

type Key = "selected" | "axis" | "expanded" | "colorBy" | "query" | "view";

interface Binding<K extends Key = Key> {
  key: K;
  trait: string;
  delay: number; // ms until the kernel hears of it
}

const BINDINGS: readonly Binding[] = [
  { key: "selected", trait: "selected", delay: 20 },
  { key: "axis", trait: "axis", delay: 20 },
  { key: "expanded", trait: "expanded", delay: 60 },
  { key: "colorBy", trait: "color_by", delay: 60 },
  { key: "query", trait: "query", delay: 60 },
  { key: "view", trait: "view", delay: 60 }
];

const isText = (value: unknown): value is string => typeof value === "string";
const isView = (value: unknown): value is ViewName => isText(value) && /^(hierarchy|dataflow|operators|deduplicated|diff)$/.test(value);

export class ModelGraphView extends DOMWidgetView {
  private store?: Store;
  private graph?: ModelGraph;
  private connection?: Connection;
  private writer?: TraitWriter;
  private disposers: (() => void)[] = [];
  private fromKernel = false;

  override render(): void {
    super.render();
    const store = new Store(this.traits());
    this.store = store;
    this.writer = new TraitWriter(this, () => this.connection?.connected ?? false);
    this.connection = new Connection(this.model, connected => store.set("connected", connected));
    store.set("connected", this.connection.connected);
    this.el.dataset.mkgId = this.model.model_id;
    this.bindTraits(store);
    // the canvas needs the size that it has on the page
    void this.displayed.then(() => this.mount());
  }

  override remove(): void {
    this.writer?.dispose();
    this.connection?.dispose();
    this.graph?.dispose();
    this.disposers.forEach(dispose => dispose());
    this.disposers = [];
    this.store = undefined;
    super.remove();
  }

  private bindTraits(store: Store): void {
    for (const { key, trait, delay } of BINDINGS) {
      this.disposers.push(
        store.on(key, () => {
          if (!this.fromKernel) {
            this.writer?.write(trait, store.get(key), delay);
          }
        })
      );
      this.listenTo(this.model, `change:${trait}`, () => this.receive(trait));
    }
    this.listenTo(this.model, "change:overlay", () => this.receive("overlay"));
    this.listenTo(this.model, "change:pruned", () => this.receive("pruned"));
    this.listenTo(this.model, "change:payload", () => this.rebuild());
  }

  /** The traits as the explorer's state; anything of the wrong kind is left out. */
  private traits(): Partial<GraphState> {
    const get = (trait: string): unknown => this.model.get(trait);
    const state: Partial<GraphState> = {};
    const [selected, axis, expanded, colorBy, query, view] = BINDINGS.map(({ trait }) => get(trait));
    if (selected === null || isText(selected)) {
      state.selected = selected;
    }
    if (axis === null || isText(axis)) {
      state.axis = axis;
    }
    if (Array.isArray(expanded)) {
      state.expanded = expanded.filter(isText);
    }
    if (isText(colorBy)) {
      state.colorBy = colorBy;
    }
    if (isText(query)) {
      state.query = query;
    }
    if (isView(view)) {
      state.view = view;
    }
    state.overlay = (get("overlay") ?? {}) as Record<string, Value>;
    state.pruned = (get("pruned") ?? {}) as Record<string, Value>; // no trait: a linked editor sets it in the page
    return state;
  }

  private receive(trait: string): void {
    const { store } = this;
    if (!store) {
      return;
    }
    const state = this.traits();
    // every change that follows from the kernel's is part of it: none is sent back
    this.fromKernel = true;
    try {
      this.writer?.forget(trait);
      if (trait === "overlay" || trait === "pruned") {
        store.set(trait, state[trait] ?? {});
      } else {
        const key = BINDINGS.find(binding => binding.trait === trait)?.key;
        if (key) {
          this.apply(store, key, state);
        }
      }
    } finally {
      this.fromKernel = false;
    }
  }

  private apply<K extends Key>(store: Store, key: K, state: Partial<GraphState>): void {
    const value = state[key];
    if (value !== undefined) {
      store.set(key, value as GraphState[K]);
    }
  }

  private mount(): void {
    if (!this.store) {
      return; // closed before it was shown
    }
    this.fromKernel = true;
    try {
      this.graph = createModelGraph(this.el, this.model.get("payload"), this.store);
    } finally {
      this.fromKernel = false;
    }
  }

  /** Another model: selection and open groups survive where their paths still exist. */
  private rebuild(): void {
    if (!this.graph || !this.store) {
      return;
    }
    this.graph.dispose();
    this.store.set("shown", new Map());
    this.store.set("unfolded", new Set());
    this.store.set("focus", 0);
    this.store.set("operator", null);
    this.store.set("notice", "");
    this.mount();
  }
}
