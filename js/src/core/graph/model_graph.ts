// The model graph: canvas, tree, panels and toolbar around one store.

import * as words from "../words/graph";
import { axesOf } from "../shared/model/axes";
import { Breadcrumb, Legend, isOffered, Toolbar } from "./parts/toolbar";
import { DiffView } from "./diff_view";
import { FileNotice, TraceNotice } from "./parts/notices";
import { comparedOf } from "../shared/model/differences";
import { Disposers, el, isField, box } from "../shared/ui/dom";
import { clearHost, drawOrShowError, prepareHost, readOrShowError, StatusLine } from "../shared/ui/widget_frame";
import { ExportMenu } from "../export/menu";
import { GraphView } from "./graph_view";
import { KeyHelp } from "./parts/key_help";
import { Hierarchy } from "../shared/model/hierarchy";
import { readPayload } from "../shared/payload/payload";
import { visibleRows, openPaths, revealOpened } from "../shared/model/expansion";
import type { FileActions } from "../panel/file_panel";
import { ModulePanel } from "../panel/module_panel";
import type { GraphStore } from "../shared/model/graph_store";
import { SidePanes } from "../shared/ui/side_panes";
import { InstanceStrip } from "./parts/instance_strip";
import { TreeView } from "../tree/tree_view";

// of the width: two thirds are left to the canvas
const SHARES = { left: 0.16, right: 0.19, both: 0.31 };
const FILE_SHARES = { left: 0.3, right: 0.23, both: 0.38 }; // names of tensors are long, and the graph is small

export interface ModelGraph {
  dispose(): void;
  readonly graph?: GraphView;
  /** The paths of the containers that are open where they are seen. */
  openPaths?(): string[];
  /** Has all that is listed as open seen. */
  showOpened?(): void;
}

export function createModelGraph(
  host: HTMLElement,
  raw: unknown,
  store: GraphStore,
  actions: FileActions = {}
): ModelGraph {
  prepareHost(host, "model-graph");
  const payload = readOrShowError(host, raw, readPayload);
  const draw = () => payload && new MountedGraph(host, new Hierarchy(payload), store, actions);
  return drawOrShowError(host, draw, words.UNDRAWABLE) ?? { dispose: () => clearHost(host) };
}

class MountedGraph implements ModelGraph {
  private readonly disposers = new Disposers();
  private readonly stage = el("div", "mkg-stage");
  private readonly dock = el("div"); // of the minimap: beside the canvas, where it covers nothing
  private view?: GraphView | DiffView;

  constructor(
    private readonly host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly actions: FileActions
  ) {
    host.classList.toggle("mkg-of-file", Boolean(h.payload.file));
    prune(h, store);
    if (!store.get("openToFit")) this.showOpened();
    this.build();
    this.disposers.add(
      store.on("view", () => this.showView()),
      store.on("connected", () => this.followKernel()),
      bindKeys(host, h, store, () => this.graph)
    );
    this.hear("mkg-fit", () => this.graph?.fit());
    const help = new KeyHelp(host);
    this.disposers.add(() => help.dispose());
    this.hear("mkg-help", () => help.toggle());
    this.hear("mkg-zoom", () => this.graph?.navigator.toSelection());
    this.showView();
    this.followKernel();
  }

  /** The canvas; of a comparison the left one. */
  get graph(): GraphView | undefined {
    return this.view instanceof DiffView ? this.view.active : this.view;
  }

  openPaths(): string[] {
    return openPaths(this.h, this.store);
  }

  showOpened(): void {
    revealOpened(this.h, this.store);
  }

  dispose(): void {
    this.view?.dispose();
    this.disposers.dispose();
    clearHost(this.host);
  }

  /** What the buttons ask of the canvas. */
  private hear(what: string, act: () => void): void {
    this.host.addEventListener(what, act);
    this.disposers.add(() => this.host.removeEventListener(what, act));
  }

  private build(): void {
    const { h, store } = this;
    const slot = (name: string) => el("div", `mkg-slot mkg-slot-${name}`);
    const [toolbar, exports, error, file, breadcrumb, tree, legend, strip, panel, status] = [
      "toolbar",
      "export",
      "error",
      "file",
      "breadcrumb",
      "tree",
      "legend",
      "strip",
      "panel",
      "status"
    ].map(slot);
    const bar = box("mkg-bar", toolbar, exports);
    const centre = box("mkg-centre", this.stage, legend);
    const main = el("div", "mkg-main");
    const [left, right] = [box("mkg-left", tree, this.dock), box("mkg-right", strip, panel)];
    const usual = h.payload.file ? FILE_SHARES : SHARES;
    const panes = new SidePanes(main, left, centre, right, h.payload.file ? "file" : "graph", usual);
    this.host.replaceChildren(bar, error, file, breadcrumb, main, status);
    const parts: { dispose(): void }[] = [
      panes,
      new Toolbar(toolbar, h, store),
      new ExportMenu(exports, h, store, { graph: () => this.graph }),
      new TraceNotice(error, h),
      new FileNotice(file, h),
      new Breadcrumb(breadcrumb, h, store),
      new Legend(legend, h, store),
      new InstanceStrip(strip, h, store),
      new ModulePanel(panel, h, store, this.actions),
      new StatusLine(status, store)
    ];
    // last: to ask for sizes lays out the page, and what is selected comes into view of the tree as large as it is then
    const listed = new TreeView(tree, h, store);
    parts.push(listed);
    panes.measure();
    listed.showActive();
    parts.forEach(part => this.disposers.add(() => part.dispose()));
  }

  private showView(): void {
    const view = this.store.get("view");
    const canvas = el("div");
    this.view?.dispose();
    this.stage.querySelector(":scope > .mkg-canvas-wrap, :scope > .mkg-diff")?.remove();
    this.stage.prepend(canvas);
    const onReady = () => void (this.host.dataset.mkgReady = "true");
    const models = view === "diff" ? comparedOf(this.h) : undefined;
    if (models) {
      this.view = new DiffView(canvas, this.store, models, onReady);
    } else {
      const kind = view === "diff" || !isOffered(this.h, view) ? "hierarchy" : view;
      this.view = new GraphView(canvas, this.h, this.store, { view: kind, onReady, dock: this.dock });
    }
  }

  private followKernel(): void {
    const connected = this.store.get("connected");
    this.host.classList.toggle("mkg-is-disconnected", !connected);
    for (const element of this.host.querySelectorAll("[data-mkg-needs-kernel]")) {
      element.toggleAttribute("disabled", !connected);
    }
  }
}

/** Drops what a former payload had and this one has not. */
function prune(h: Hierarchy, store: GraphStore): void {
  const selected = store.get("selected");
  if (selected !== null && h.find(selected) === undefined) {
    store.set("selected", null);
  }
  const expanded = store.get("expanded");
  if (axesOf(h)?.find(store.get("axis")) === undefined) {
    store.set("axis", null);
  }
  store.set("operators", null);
  store.set(
    "expanded",
    expanded.filter(path => h.find(path) !== undefined)
  );
}

// Keys of the whole widget ("f", "z", Backspace, Esc) and of the canvas (Enter, arrows).

/** Returns the disposer. `graph`: the canvas that the keys act on now. */
function bindKeys(root: HTMLElement, h: Hierarchy, store: GraphStore, graph: () => GraphView | undefined): () => void {
  const handler = (event: KeyboardEvent) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && !event.defaultPrevented && !isField(event.target) && act(event, h, store, graph())) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  root.addEventListener("keydown", handler);
  return () => root.removeEventListener("keydown", handler);
}

function act(event: KeyboardEvent, h: Hierarchy, store: GraphStore, graph: GraphView | undefined): boolean {
  if (event.key === "f") {
    graph?.fit();
    return graph !== undefined;
  }
  if (event.key === "?") {
    graph?.host.dispatchEvent(new CustomEvent("mkg-help", { bubbles: true }));
    return true;
  }
  if (event.key === "z" && graph !== undefined) {
    return graph.navigator.toSelection();
  }
  if (event.key === "Backspace" && graph !== undefined) {
    graph.navigator.out();
    return true;
  }
  if (event.key === "Escape") {
    return upwards(h, store);
  }
  return graph !== undefined && event.target === graph.host && onCanvas(event.key, h, store, graph);
}

/** The parent becomes the selection; at the edge of the canvas the focus moves out too. */
function upwards(h: Hierarchy, store: GraphStore): boolean {
  const focus = store.get("focus");
  const node = selectedNode(h, store) ?? focus;
  if (node === 0) {
    return false;
  }
  const parent = h.parent(node);
  if (parent === focus && focus !== 0) {
    store.set("focus", h.parent(focus));
  }
  store.set("selected", h.path(parent));
  return true;
}

function selectedNode(h: Hierarchy, store: GraphStore): number | undefined {
  const path = store.get("selected");
  return path === null ? undefined : h.find(path);
}

const STEPS = new Map([
  ["ArrowRight", 1],
  ["ArrowDown", 1],
  ["ArrowLeft", -1],
  ["ArrowUp", -1]
]);

function onCanvas(key: string, h: Hierarchy, store: GraphStore, graph: GraphView): boolean {
  const node = selectedNode(h, store);
  if (key === "Enter" && node !== undefined) {
    if (!graph.toggleSelected()) graph.toggle(node);
    return true;
  }
  const step = STEPS.get(key);
  if (step === undefined) {
    return false;
  }
  if (graph.step(step)) return true;
  const next = neighbour(h, store, node, step);
  if (next !== undefined) {
    store.set("selected", h.path(next));
  }
  return true;
}

/** The card before or after among those drawn in the same frame; into and out of frames at the ends. */
function neighbour(h: Hierarchy, store: GraphStore, node: number | undefined, step: number): number | undefined {
  const focus = store.get("focus");
  if (node === undefined || node === focus || !h.isInside(node, focus)) {
    return visibleRows(h, store, focus)[0];
  }
  const rows = visibleRows(h, store, h.parent(node));
  const inner = step > 0 && store.get("expanded").includes(h.path(node)) ? visibleRows(h, store, node)[0] : undefined;
  const next = inner ?? rows[rows.indexOf(node) + step];
  if (next !== undefined) {
    return next;
  }
  const parent = h.parent(node);
  if (parent === focus) {
    return undefined;
  }
  if (step < 0) {
    return parent;
  }
  const around = visibleRows(h, store, h.parent(parent));
  return around[around.indexOf(parent) + 1];
}
