// The widget ModelGraph: its state bound to the traits of the Python widget.

import { DOMWidgetModel } from "@jupyter-widgets/base";
import { createModelGraph, type ModelGraph } from "../core/graph/model_graph";
import { type GraphState, GraphStore } from "../core/shared/model/graph_store";
import { isEqual } from "../core/shared/base/state_store";
import { modelDefaults, type Binding, BoundView, isFlag, isText, isTextOrNull, oneOf } from "./base";

export class ModelGraphModel extends DOMWidgetModel {
  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("ModelGraph"),
      outdated: "",
      progress: "",
      payload: {},
      selected: null,
      axis: null,
      expanded: [],
      open_to_fit: false,
      color_by: "none",
      query: "",
      view: "hierarchy",
      overlay: {}
    };
  }
}

const isRecord = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);

const EXPANDED: Binding<GraphState> = {
  key: "expanded",
  trait: "expanded",
  delay: 60,
  isValid: Array.isArray,
  read: value => (value as unknown[]).filter(isText)
};

const BINDINGS: readonly Binding<GraphState>[] = [
  { key: "selected", trait: "selected", delay: 20, isValid: isTextOrNull },
  { key: "axis", trait: "axis", delay: 20, isValid: isTextOrNull },
  EXPANDED,
  { key: "openToFit", trait: "open_to_fit", delay: null, isValid: isFlag },
  { key: "colorBy", trait: "color_by", delay: 60, isValid: isText },
  { key: "query", trait: "query", delay: 60, isValid: isText },
  {
    key: "view",
    trait: "view",
    delay: 60,
    isValid: oneOf("hierarchy", "dataflow", "operators", "deduplicated", "diff")
  },
  { key: "overlay", trait: "overlay", delay: null, isValid: isRecord },
  { key: "pruned", trait: "pruned", delay: null, isValid: isRecord } // no trait: a linked editor sets it in the page
];

const REPORT_AFTER = 60; // ms

export class ModelGraphView extends BoundView<GraphState, ModelGraph> {
  protected readonly bindings = BINDINGS;
  private reporting?: ReturnType<typeof setTimeout>;
  private hasChosen = false; // what is open, here

  override render(): void {
    super.render();
    this.listenTo(this.model, "change:open_to_fit", () => this.followChoice());
    this.store?.on("expanded", () => this.noteChoice());
    this.store?.on(["expanded", "opening", "shown", "unfolded", "focus"], () => this.report());
  }

  override remove(): void {
    clearTimeout(this.reporting);
    super.remove();
  }

  protected override mount(): void {
    super.mount();
    this.report();
  }

  /** Python has set what is open, perhaps to what it had before: that holds, and no longer what the page has opened. */
  private followChoice(): void {
    const isOfPage = isEqual(this.store?.get("expanded"), this.store?.get("opening"));
    if (this.model.get("open_to_fit") === false && isOfPage && !this.hasChosen) this.receive(EXPANDED);
  }

  private noteChoice(): void {
    if (!this.isNews("expanded")) return;
    this.hasChosen = true;
    this.store?.set("openToFit", false);
  }

  protected override receive(binding: Binding<GraphState>): void {
    if (binding !== EXPANDED) {
      super.receive(binding);
    } else if (!this.isShown(this.value(EXPANDED)) && !this.isOfOtherPage()) {
      this.hasChosen = false;
      super.receive(binding);
      this.quietly(() => this.shown?.showOpened?.());
      this.report();
    }
  }

  private isShown(paths: unknown): boolean {
    const open = this.shown?.openPaths?.();
    return open !== undefined && Array.isArray(paths) && isEqual([...open].sort(), [...(paths as string[])].sort());
  }

  /** Whether the model has what another page has opened to fit itself. */
  private isOfOtherPage(): boolean {
    return this.model.get("open_to_fit") === true && (this.store?.get("opening") ?? null) !== null;
  }

  /** Tells the kernel what is open, where that is not what it knows. */
  private report(): void {
    clearTimeout(this.reporting);
    this.reporting = setTimeout(() => {
      const paths = this.shown?.openPaths?.();
      const known = this.model.get("expanded") as string[];
      if (!paths || this.isShown(known) || !this.connection?.connected) return;
      this.model.send({ kind: "opened", paths, known, fit: this.model.get("open_to_fit") === true }, {});
    }, REPORT_AFTER);
  }

  protected override outgoing(key: keyof GraphState): unknown {
    return (key === "expanded" ? this.shown?.openPaths?.() : undefined) ?? super.outgoing(key);
  }

  protected override isOwn(key: keyof GraphState): boolean {
    const { store } = this;
    const isFitted = store !== undefined && store.get("openToFit") && !this.hasChosen;
    return key === "expanded" && isFitted && isEqual(store.get("expanded"), store.get("opening"));
  }

  protected createStore(initial: Partial<GraphState>): GraphStore {
    return new GraphStore(initial);
  }

  protected create(store: GraphStore): ModelGraph {
    return createModelGraph(this.el, this.model.get("payload"), store);
  }

  /** Another model: selection and open groups survive where their paths still exist. */
  protected override rebuild(): void {
    const { store } = this;
    if (!this.shown || !store) return;
    this.shown.dispose();
    store.set("shown", new Map());
    store.set("unfolded", new Set());
    store.set("stretches", new Set());
    store.set("focus", 0);
    store.set("operators", null);
    store.set("notice", "");
    this.mount();
  }
}
