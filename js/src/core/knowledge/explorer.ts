// The knowledge explorer: map, tables, matrix and chart around one store.

import "../../../style/knowledge.css";
import "../../../style/knowledge_views.css";
import "../../../style/metric_charts.css";
import "../../../style/side_panel.css";
import "../../../style/toolbar.css";
import "../../../style/tree.css";
import { button, Disposers, el, isField, box } from "../shared/ui/dom";
import type { CameraPose } from "../shared/stage/viewport";
import { clearHost, drawOrShowError, prepareHost, readOrShowError, StatusLine } from "../shared/ui/widget_frame";
import { readTheme, watchTheme } from "../shared/stage/theme";
import { Knowledge } from "./data/knowledge";
import { FrequencyChart } from "./scatter/frequency";
import { emptyNote, waitingNote } from "./data/descriptions";
import { ExplorerLegend } from "./map/node_colors";
import { KnowledgeMap, type GroupPlacement } from "./map/knowledge_map";
import { OverlapMatrix } from "./overlap_matrix";
import { readKnowledge } from "./data/payload";
import { itemLimit, around, openAlone, toggle } from "./map/map_contents";
import { Scatter } from "./scatter/scatter";
import { ExplorerPanel } from "./side/explorer_panel";
import type { ExplorerStore } from "./data/state";
import { ExplorerToolbar } from "./toolbar";
import { type ExplorerView, TableView } from "./tables/table_view";
import { SidePanes } from "../shared/ui/side_panes";
import { KnowledgeTree, ResultList } from "./side/tree";
import type { MapItem, MapPicture } from "./data/map_items";
import * as words from "../words/knowledge";

// Where the keyboard is in an explorer, so that it stays there when all is drawn anew.

interface Focus {
  readonly selector: string;
  readonly selection?: readonly [number, number]; // in a field
}

const PLACES = [".mkg-search input", ".mkg-graph-canvas", ".mkg-side-panel button", "[role=toolbar] select"];

function focusIn(host: HTMLElement): Focus | undefined {
  const active = document.activeElement;
  if (!(active instanceof HTMLElement) || !host.contains(active)) return undefined;
  const { mkgItem } = active.dataset;
  if (mkgItem !== undefined) return { selector: `[data-mkg-item="${CSS.escape(mkgItem)}"]` };
  const selector = PLACES.find(each => active.matches(each));
  if (selector === undefined) return undefined;
  const field = active instanceof HTMLInputElement ? active : undefined;
  return { selector, selection: field && [field.selectionStart ?? 0, field.selectionEnd ?? 0] };
}

function giveFocus(host: HTMLElement, { selector, selection }: Focus): void {
  const element = host.querySelector<HTMLElement>(selector);
  element?.focus({ preventScroll: true });
  if (element instanceof HTMLInputElement && selection) element.setSelectionRange(...selection);
}

export interface KnowledgeExplorer {
  dispose(): void;
  /** What stays when a payload of the same models takes the place of this one; undefined: they are others. */
  keep(raw: unknown): ViewSnapshot | undefined;
  readonly map?: KnowledgeMap;
}

export interface ViewSnapshot {
  readonly look?: CameraPose; // of the camera
  readonly settled?: GroupPlacement; // groups of the map
  readonly focus?: Focus;
}

const STEPS = new Map<string, readonly [number, number]>([
  ["ArrowRight", [1, 0]],
  ["ArrowLeft", [-1, 0]],
  ["ArrowDown", [0, 1]],
  ["ArrowUp", [0, -1]]
]);
const MARKS = ["drawn", "analysis"];
const SHARES = { left: 0.2, right: 0.23, both: 0.34 }; // of the width

export function createKnowledgeExplorer(
  host: HTMLElement,
  raw: unknown,
  store: ExplorerStore,
  kept: ViewSnapshot = {}
): KnowledgeExplorer {
  prepareHost(host, "knowledge-explorer");
  const payload = readOrShowError(host, raw, readKnowledge);
  const draw = () => payload && new Explorer(host, new Knowledge(payload), store, kept);
  const shown = drawOrShowError(host, draw, words.NOT_DRAWN);
  return shown ?? { dispose: () => clearHost(host, ...MARKS), keep: () => undefined };
}

class Explorer implements KnowledgeExplorer {
  map?: KnowledgeMap;
  private readonly disposers = new Disposers();
  private readonly stage = el("div", "mkg-stage");
  private readonly left = el("div", "mkg-left");
  private readonly dock = el("div"); // of the minimap: beside the canvas, where it covers nothing
  private readonly offer = el("div", "mkg-offer");
  private readonly panes: SidePanes;
  private readonly tree: KnowledgeTree;
  private readonly results: ResultList;
  private readonly legend: ExplorerLegend;
  private readonly counts = el("span", "mkg-kg-counts");
  private view?: ExplorerView;

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    kept: ViewSnapshot
  ) {
    const slot = (name: string) => el("div", `mkg-slot mkg-slot-${name}`);
    const [toolbar, tree, results, legend, panel, status] = [
      "toolbar",
      "tree",
      "results",
      "legend",
      "panel",
      "status"
    ].map(slot);
    this.left.append(tree, results, this.dock);
    const right = box("mkg-right", panel);
    const main = el("div", "mkg-main");
    this.panes = new SidePanes(main, this.left, box("mkg-centre", this.stage, legend), right, "explorer", SHARES);
    host.replaceChildren(box("mkg-bar", toolbar), main, status);
    this.panes.measure();
    this.tree = new KnowledgeTree(tree, data, store, { open: id => this.open(id), narrow: item => this.narrow(item) });
    this.results = new ResultList(results, data, store);
    this.legend = new ExplorerLegend(legend, data, store);
    const bar = new ExplorerToolbar(toolbar, data, store, {
      fit: () => (this.map ?? this.view)?.fit?.(),
      zoom: () => this.map?.zoomToSelection(),
      first: () => this.results.step()
    });
    const line = new StatusLine(status, store, this.counts);
    const parts = [this.panes, this.tree, this.results, this.legend, line, bar, new ExplorerPanel(panel, data, store)];
    parts.forEach(part => this.disposers.add(() => part.dispose()));
    this.listen();
    this.showView(kept);
    this.followKernel();
    host.dataset.mkgAnalysis = data.payload.analysis;
    if (kept.focus) giveFocus(host, kept.focus);
  }

  keep(raw: unknown): ViewSnapshot | undefined {
    if (!hasModels(raw, this.data.payload.models.name)) return undefined;
    return { look: (this.map ?? this.view)?.moved, settled: this.map?.groups, focus: focusIn(this.host) };
  }

  dispose(): void {
    this.closeView();
    this.disposers.dispose();
    clearHost(this.host, ...MARKS);
  }

  private listen(): void {
    const { store, host } = this;
    const key = (event: KeyboardEvent) => this.key(event);
    host.addEventListener("keydown", key);
    this.disposers.add(
      () => host.removeEventListener("keydown", key),
      store.on("view", () => this.showView()),
      store.on("query", () => this.showLeft()),
      store.on(["expanded", "query"], () => this.hideOffer()),
      store.on("connected", () => this.followKernel()),
      watchTheme(() => this.retheme())
    );
  }

  private closeView(): void {
    this.map?.dispose();
    this.map = undefined;
    this.view?.dispose();
    this.view = undefined;
    this.hideOffer();
    this.stage.replaceChildren();
  }

  private showView(kept: ViewSnapshot = {}): void {
    const { data, store } = this;
    const view = store.get("view");
    this.closeView();
    const place = el("div", "mkg-kg-view-place");
    this.stage.append(place);
    this.host.dataset.mkgView = view;
    this.legend.draw(readTheme(this.host).dark, view === "graph");
    this.showLeft();
    if (view === "graph") {
      this.stage.append(this.offer);
      if (data.modelCount === 0) this.stage.append(emptyNote("models", store));
      const events = {
        open: (id: string) => this.open(id),
        narrow: (item: MapItem) => this.narrow(item),
        drawn: (picture: MapPicture) => this.drawn(picture)
      };
      this.map = new KnowledgeMap(place, data, store, events, this.dock, kept);
    } else {
      this.counts.textContent = this.summary();
      delete this.host.dataset.mkgDrawn;
      if (view === "scatter") this.view = new Scatter(place, data, store, kept.look);
      else if (!data.isAnalysed) place.append(waitingNote(data));
      else if (view === "overlap") this.view = new OverlapMatrix(place, data, store);
      else if (view === "frequency") this.view = new FrequencyChart(place, data, store);
      else this.view = new TableView(place, data, store);
    }
    this.host.dataset.mkgReady = "true";
  }

  /** The tree beside the graph, what was found in its place; the tables show themselves what was found. */
  private showLeft(): void {
    const isSearched = this.store.get("query").trim() !== "";
    const [tree, results] = Array.from(this.left.children) as HTMLElement[];
    tree.hidden = isSearched;
    results.hidden = !isSearched;
    this.panes.leaveAway("left", this.store.get("view") !== "graph");
  }

  private drawn(picture: MapPicture): void {
    const { dark } = readTheme(this.host);
    this.tree.draw(picture, dark);
    this.host.dataset.mkgDrawn = String(picture.items.length);
    const drawn = words.circles(picture.items.length, itemLimit());
    this.counts.textContent = `${this.summary()} · ${drawn}`;
  }

  private summary(): string {
    const { payload, modelCount } = this.data;
    return `${words.models(modelCount)} · ${words.structures(payload.size)}${words.ANALYSIS[payload.analysis]}`;
  }

  private retheme(): void {
    const { dark } = readTheme(this.host);
    this.legend.draw(dark, this.map !== undefined);
    if (this.map) this.tree.draw(this.map.picture, dark);
  }

  // ------------------------------------------------------------ opening

  private open(id: string): void {
    if (toggle(this.data, this.store, id) === "too-many") this.offerRoom(id);
  }

  private offerRoom(id: string): void {
    const close = button("mkg-button", words.COLLAPSE_OTHERS);
    close.addEventListener("click", () => {
      if (!openAlone(this.data, this.store, id)) this.store.set("notice", words.GROUP_TOO_LARGE);
      this.hideOffer();
    });
    const item = this.map?.picture.items.find(each => each.id === id);
    const parts: HTMLElement[] = [el("span", "", words.overLimit(itemLimit())), close];
    if (item) parts.push(this.narrowButton(item));
    this.showOffer(parts);
  }

  /** What is left out of a group can be found by a search in it. */
  private narrow(item: MapItem): void {
    const parts = [el("span", "", words.notShown(`${item.title} ${item.detail}`)), this.narrowButton(item)];
    this.showOffer(parts);
  }

  private narrowButton(item: MapItem): HTMLElement {
    const search = button("mkg-button", words.SEARCH_INSIDE);
    search.addEventListener("click", () => {
      const term = this.termOf(item);
      this.store.set("query", term);
      this.hideOffer();
      const input = this.host.querySelector<HTMLInputElement>(".mkg-search input");
      input?.focus();
      input?.setSelectionRange(input.value.length, input.value.length);
    });
    return search;
  }

  /** The search that finds all of the group that an item is or lies in. */
  private termOf(item: MapItem): string {
    const items = this.map?.picture.items ?? [];
    const path = [...around(item.id), item.id].reverse();
    for (const id of path) {
      const thing = items.find(each => each.id === id)?.thing;
      if (thing?.kind === "community") return `community:${thing.index} `;
      if (thing?.kind === "model" || thing?.kind === "family") return `${thing.kind}:${this.data.name(thing)} `;
      if (thing?.kind === "type") return `class:${this.data.className(this.data.members(thing)[0])} `;
    }
    return "";
  }

  private showOffer(parts: readonly HTMLElement[]): void {
    this.offer.setAttribute("role", "status");
    const dismiss = button("mkg-button", words.DISMISS);
    dismiss.addEventListener("click", () => this.hideOffer());
    this.offer.replaceChildren(...parts, dismiss);
    this.offer.hidden = false;
  }

  private hideOffer(): void {
    this.offer.hidden = true;
    this.offer.replaceChildren();
  }

  // ------------------------------------------------------------ keys

  private key(event: KeyboardEvent): void {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (!plain || event.defaultPrevented || isField(event.target) || !this.act(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  private act(event: KeyboardEvent): boolean {
    if (event.key === "Escape") return this.upwards();
    if (!this.map) return false;
    if (event.key === "f") {
      this.map.fit();
      return true;
    }
    if (event.key === "z") {
      this.map.zoomToSelection();
      return true;
    }
    return event.target === this.map.host && this.onCanvas(event.key, this.map);
  }

  private onCanvas(key: string, map: KnowledgeMap): boolean {
    const item = this.selectedItem();
    const step = STEPS.get(key);
    if (step) {
      const next = map.neighbour(...step);
      if (next?.thing) {
        this.store.set("item", next.id);
        this.store.set("selected", this.data.key(next.thing));
      }
      return true;
    }
    if (key !== "Enter" || !item?.isGroup) return false;
    this.open(item.id);
    return true;
  }

  private selectedItem(): MapItem | undefined {
    const [key, id] = [this.store.get("selected"), this.store.get("item")];
    const items = this.map?.picture.items ?? [];
    const shown = items.filter(({ thing }) => thing && this.data.key(thing) === key);
    return shown.find(item => item.id === id) ?? shown[0];
  }

  /** The group around it becomes the selection; from the outermost, nothing is selected. */
  private upwards(): boolean {
    const { store } = this;
    if (store.get("selected") === null) return false;
    const item = this.selectedItem();
    const parent = this.map?.picture.items[item?.parent ?? -1];
    if (parent?.thing) {
      store.set("item", parent.id);
      store.set("selected", this.data.key(parent.thing));
    } else {
      store.set("item", null);
      store.set("selected", null);
    }
    return true;
  }

  private followKernel(): void {
    this.host.classList.toggle("mkg-is-disconnected", !this.store.get("connected"));
  }
}

/** Whether data that nobody has read yet is of these models. */
function hasModels(raw: unknown, names: readonly string[]): boolean {
  const found = (raw as { models?: { name?: unknown } } | null)?.models?.name;
  return Array.isArray(found) && found.length === names.length && names.every((name, i) => found[i] === name);
}
