// The picker of metrics and modules: a select, and a list that can be searched.

import {
  button,
  Debounced,
  el,
  listen,
  nameSpan,
  option,
  setAttribute,
  icon,
  Part,
  setRole,
  field,
  setText
} from "../shared/ui/dom";
import * as words from "../words/metrics";
import {
  chosenModules,
  hasLayers,
  matchesQuery,
  kindOf,
  metricOf,
  modulesOf,
  nameOf,
  orderedMetrics,
  autoCount
} from "./data/selection";
import type { Kind, MetricData } from "./data/metric_data";
import type { PanelStore } from "./base/state";

const SEARCH_DELAY = 90; // ms without a key before a search runs
const MAX_ROWS = 1000; // more is found by searching
const PAGE = 12; // rows

/** The modules that are drawn, and the colors that tell them apart. */
interface SelectedModules {
  readonly modules: ReadonlySet<string>;
  readonly colors: ReadonlyMap<string, string>;
  readonly calls: number;
}

interface Row {
  readonly element: HTMLElement;
  readonly box: HTMLInputElement;
  readonly swatch: HTMLElement;
}

export class Picker extends Part {
  private readonly metric = el("select", "mkg-metric-select");
  private readonly search = el("input", "mkg-metric-search");
  private readonly list = el("ul", "mkg-metric-modules");
  private readonly count = el("div", "mkg-metric-module-count");
  private readonly own = button("mkg-link mkg-metric-own", "");
  private readonly all = button("mkg-link mkg-metric-all", "");
  private readonly note = el("div", "mkg-metric-module-note");
  private readonly typed = new Debounced(() => this.store.set("query", this.search.value.trim()), SEARCH_DELAY);
  private rows = new Map<string, Row>();
  private drawn: SelectedModules = { modules: new Set(), colors: new Map(), calls: 0 };
  private built = "";
  private filled = "";

  constructor(
    host: HTMLElement,
    private readonly data: MetricData,
    private readonly store: PanelStore
  ) {
    super(host);
    host.classList.add("mkg-metric-picker");
    setRole(host, "group", words.PICKER);
    const actions = el("div", "mkg-metric-module-actions");
    actions.append(this.own, this.all);
    host.append(
      field("mkg-metric-field", words.METRIC, this.metric),
      this.searchField(),
      this.count,
      this.list,
      this.note,
      actions
    );
    this.list.setAttribute("aria-label", words.MODULES);
    this.count.setAttribute("role", "status");
    this.search.value = store.get("query");
    this.listen();
  }

  override dispose(): void {
    this.typed.cancel();
    super.dispose();
  }

  /** Shows what there is to choose from, and what of it is drawn. */
  draw(drawn: SelectedModules): void {
    this.fillMetrics();
    this.fillModules();
    this.drawn = drawn;
    this.showChosen(drawn.colors);
    this.showCounts(drawn);
  }

  private searchField(): HTMLElement {
    const field = el("div", "mkg-metric-search-field");
    this.search.type = "search";
    this.search.placeholder = words.SEARCH;
    this.search.spellcheck = false;
    this.search.autocomplete = "off";
    this.search.setAttribute("aria-label", words.SEARCH);
    field.append(icon("search"), this.search);
    return field;
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      listen(this.metric, "change", () => this.chooseMetric()),
      listen(this.search, "input", () => this.typed.call()),
      listen(this.search, "keydown", event => this.searchKey(event)),
      listen(this.list, "change", () => this.tick()),
      listen(this.list, "keydown", event => this.listKey(event)),
      listen(this.list, "focusin", event => this.focusRow(event.target)),
      listen(this.own, "click", () => this.chooseOwn()),
      listen(this.all, "click", () => this.tickAll()),
      store.on("query", () => {
        if (this.search.value.trim() !== store.get("query")) this.search.value = store.get("query");
      })
    );
  }

  private fillMetrics(): void {
    const { data, store } = this;
    const [numbers, histograms] = [orderedMetrics(data), data.metrics("histograms")];
    const current = metricOf(data, store);
    const kind = kindOf(store.get("view"));
    const unknown = current !== "" && !data.index(kind, current);
    const hasNone = numbers.length + histograms.length === 0;
    const filled = JSON.stringify([numbers, histograms, unknown ? current : ""]);
    if (filled !== this.filled) {
      this.filled = filled;
      this.metric.replaceChildren(
        option("", hasNone ? words.NONE_YET : words.GRID),
        ...(unknown ? [option(current, words.withoutValues(current))] : []),
        ...group(words.NUMBERS, "numbers", numbers),
        ...group(words.HISTOGRAMS, "histograms", histograms)
      );
    }
    this.metric.value = current;
    // one name may stand for numbers and for histograms
    for (const entry of this.metric.options)
      if (entry.value === current && entry.dataset.mkgKind === kind) entry.selected = true;
    this.metric.disabled = hasNone;
    this.metric.title = current;
  }

  private chooseMetric(): void {
    const { store } = this;
    const { value, selectedOptions } = this.metric;
    const kind = selectedOptions[0]?.dataset.mkgKind;
    if (value === "") store.set("view", "grid");
    if (!kind) return;
    const isHistogram = kind === "histograms";
    store.set("metric", value);
    const view = store.get("view");
    const isStripe = view === "heatmap" && !hasLayers(this.data, this.metric.value); // of the whole run: no map
    if (isHistogram !== (view === "histogram") || isStripe || view === "grid")
      store.set("view", isHistogram ? "histogram" : "lines");
  }

  /** What the panel draws of its own accord; a module that is selected, and drawn alone, goes back among the others. */
  private chooseOwn(): void {
    const { store } = this;
    if (!store.get("modules").length) store.set("selected", null);
    store.set("modules", []);
  }

  private fillModules(): void {
    const modules = modulesOf(this.data, this.store);
    const query = this.store.get("query");
    const kind = kindOf(this.store.get("view"));
    const built = `${this.data.structure} ${kind} ${metricOf(this.data, this.store)}\n${query}`;
    if (built === this.built) return;
    this.built = built;
    const found = modules.filter(module => matchesQuery(module, query));
    const shown = found.slice(0, MAX_ROWS);
    const before = this.rows;
    this.rows = new Map(shown.map(module => [module, before.get(module) ?? makeRow(module)]));
    this.list.replaceChildren(...[...this.rows.values()].map(({ element }) => element));
    this.note.textContent = found.length > shown.length ? words.listed(MAX_ROWS) : "";
    this.note.hidden = this.note.textContent === "";
    const boxes = this.boxes;
    if (!boxes.some(box => box.tabIndex === 0) && boxes[0]) boxes[0].tabIndex = 0;
    this.all.textContent = query ? words.selectFound(found.length) : words.allOf(modules.length);
    this.all.disabled = found.length === 0;
  }

  private showChosen(colors: ReadonlyMap<string, string>): void {
    const chosen = new Set(this.ticked);
    const selected = this.store.get("selected");
    for (const [module, { element, box, swatch }] of this.rows) {
      const isChosen = chosen.has(module);
      if (box.checked !== isChosen) box.checked = isChosen;
      setAttribute(element, "aria-current", module === selected ? "true" : null);
      const color = isChosen ? (colors.get(module) ?? "") : "";
      if (swatch.dataset.mkgColor !== color) {
        swatch.dataset.mkgColor = color;
        swatch.style.backgroundColor = color || "transparent";
      }
    }
  }

  /** Counts and ticks say the same: what is ticked is drawn, or both are counted. */
  private showCounts({ modules: drawn, calls }: SelectedModules): void {
    const { data, store } = this;
    const { ticked: modules } = this;
    const { isOwn } = chosenModules(data, store);
    const view = store.get("view");
    const query = store.get("query");
    const ticked = view === "heatmap" ? modules.filter(module => matchesQuery(module, query)).length : modules.length;
    const offered = modulesOf(data, store);
    const total = offered.join() === "" ? 0 : offered.length; // a number of the whole run has no modules to choose from
    const shown = words.shownOf(drawn.size, total, calls);
    const text = total === 0 ? "" : ticked === drawn.size ? shown : words.selectedOf(ticked, shown);
    setText(this.count, text);
    const own = Math.min(total, autoCount(view));
    const hasChoice = own < total;
    this.own.textContent = hasChoice ? words.mostUnusual(own) : words.allOf(total);
    this.own.title = words.show(this.own.textContent);
    this.own.disabled = isOwn && (view === "grid" || store.get("selected") === null || modules.length === own);
    this.own.hidden = total === 0;
    this.all.hidden = total === 0 || (!query && !hasChoice);
    if (!query) this.all.disabled = modules.length === total;
  }

  /** The modules that are ticked: where the panel chooses, what it draws. */
  private get ticked(): readonly string[] {
    const { modules, isAuto } = chosenModules(this.data, this.store);
    return isAuto ? [...this.drawn.modules] : modules;
  }

  private get boxes(): HTMLInputElement[] {
    return [...this.rows.values()].map(({ box }) => box);
  }

  /** What is ticked in the list, and what is ticked but was not found by the search. */
  private tick(): void {
    const listed = [...this.rows].filter(([, { box }]) => box.checked).map(([module]) => module);
    const others = this.ticked.filter(module => !this.rows.has(module));
    const chosen = new Set([...listed, ...others]);
    this.store.set(
      "modules",
      modulesOf(this.data, this.store).filter(module => chosen.has(module))
    );
  }

  private tickAll(): void {
    const query = this.store.get("query");
    const found = modulesOf(this.data, this.store).filter(module => matchesQuery(module, query));
    const chosen = new Set([...found, ...(query ? this.store.get("modules") : [])]);
    this.store.set(
      "modules",
      modulesOf(this.data, this.store).filter(module => chosen.has(module))
    );
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    if (event.key === "Escape" && this.search.value) {
      this.search.value = "";
      this.typed.call();
      this.typed.flush();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      this.typed.flush();
      this.boxes.find(box => box.tabIndex === 0)?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** The list is one stop of the Tab key; arrows move in it, Space ticks, Enter selects the module. */
  private listKey(event: KeyboardEvent): void {
    const { boxes } = this;
    const at = boxes.findIndex(box => box === event.target);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + PAGE,
      PageUp: at - PAGE,
      Home: 0,
      End: boxes.length - 1
    };
    const next = moves[event.key];
    if (next !== undefined) boxes[Math.min(boxes.length - 1, Math.max(0, next))].focus();
    else if (event.key === "Enter") this.store.set("selected", [...this.rows.keys()][at]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private focusRow(target: EventTarget | null): void {
    if (!(target instanceof HTMLInputElement)) return;
    this.boxes.forEach(box => (box.tabIndex = box === target ? 0 : -1));
  }
}

function group(label: string, kind: Kind, metrics: readonly string[]): HTMLElement[] {
  if (!metrics.length) return [];
  const element = el("optgroup");
  element.label = label;
  for (const metric of metrics) {
    const entry = option(metric, metric);
    entry.dataset.mkgKind = kind;
    element.append(entry);
  }
  return [element];
}

function makeRow(module: string): Row {
  const element = el("li");
  const label = el("label");
  const box = el("input");
  const swatch = el("span", "mkg-metric-swatch");
  box.type = "checkbox";
  box.tabIndex = -1;
  element.dataset.mkgPath = module;
  element.title = nameOf(module);
  label.append(box, swatch, nameSpan("", nameOf(module)));
  element.append(label);
  return { element, box, swatch };
}
