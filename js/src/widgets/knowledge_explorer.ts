// The widget KnowledgeExplorer: what is chosen bound to the traits of the Python widget.

import { DOMWidgetModel } from "@jupyter-widgets/base";
import { createKnowledgeExplorer, type ViewSnapshot, type KnowledgeExplorer } from "../core/knowledge/explorer";
import type { StateStore } from "../core/shared/base/state_store";
import { COLORS, type ExplorerState, ExplorerStore, VIEW_NAMES } from "../core/knowledge/data/state";
import { type LinkedModel, linkedModels, StructureLink } from "./linked_models";
import { modelDefaults, otherModels, type Binding, BoundView, isText, isTextOrNull, oneOf } from "./base";

export class KnowledgeExplorerModel extends DOMWidgetModel {
  static override serializers = { ...DOMWidgetModel.serializers, graphs: otherModels };

  // set in initialize(), which the base class calls before field initializers would run
  declare link: StructureLink;

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    return {
      ...super.defaults(),
      ...modelDefaults("KnowledgeExplorer"),
      payload: {},
      selected: null,
      view: "graph",
      color_by: "community",
      query: "",
      graphs: []
    };
  }

  override initialize(...options: Parameters<DOMWidgetModel["initialize"]>): void {
    super.initialize(...options);
    this.link = new StructureLink(this as unknown as LinkedModel);
    this.link.follow(this.graphs());
    this.on("change:graphs", () => this.link.follow(this.graphs()));
    this.on("change:selected", () => this.link.toGraphs());
    this.on("destroy", () => this.link.dispose());
  }

  private graphs(): LinkedModel[] {
    return linkedModels<LinkedModel>(this.get("graphs"), "save_changes");
  }
}

const BINDINGS: readonly Binding<ExplorerState>[] = [
  { key: "selected", trait: "selected", delay: 20, isValid: isTextOrNull },
  { key: "view", trait: "view", delay: 60, isValid: oneOf(...VIEW_NAMES) },
  { key: "colorBy", trait: "color_by", delay: 60, isValid: oneOf(...COLORS) },
  { key: "query", trait: "query", delay: 60, isValid: isText }
];

export class KnowledgeExplorerView extends BoundView<ExplorerState, KnowledgeExplorer> {
  protected readonly bindings = BINDINGS;
  private kept?: ViewSnapshot;

  protected createStore(initial: Partial<ExplorerState>): ExplorerStore {
    return new ExplorerStore(initial);
  }

  protected create(store: ExplorerStore): KnowledgeExplorer {
    return createKnowledgeExplorer(this.el, this.model.get("payload"), store, this.kept);
  }

  /** More is known of the same models, or the graph has changed: then positions are others, so groups close. */
  protected override rebuild(): void {
    const { store } = this;
    if (!this.shown || !store) return;
    this.kept = this.shown.keep(this.model.get("payload"));
    this.shown.dispose();
    if (!this.kept) forget(store);
    this.mount();
    this.kept = undefined;
  }
}

function forget(store: StateStore<ExplorerState>): void {
  store.set("expanded", []);
  store.set("item", null);
  store.set("comparing", null);
  store.set("other", null);
  store.set("notice", "");
}
