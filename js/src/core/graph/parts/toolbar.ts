// The toolbar of a graph, its color legend, and the breadcrumb of the selected module.

import "../../../../style/toolbar.css";
import { titleOf, MISSING_COLOR, NOT_FINITE_COLOR, sample, Scale, scaleOf } from "../../shared/stage/color";
import {
  button,
  el,
  listen,
  option,
  widgetRoot,
  svg,
  nameSpan,
  type IconName,
  Part,
  setRole,
  iconButton,
  field
} from "../../shared/ui/dom";
import { counted, exactNumber, shortColumn, shortNumber } from "../../shared/base/format";
import type { Hierarchy } from "../../shared/model/hierarchy";
import { collapseAll, expandAll, reveal } from "../../shared/model/expansion";
import { exampleClass, modelSuggestions, search } from "../../shared/search/search";
import * as words from "../../words/graph";
import * as treeWords from "../../words/tree";
import { helpButton } from "./key_help";
import { ToolMenu } from "../../shared/ui/tool_menu";
import { SearchBox, type SearchTexts } from "../../shared/search/search_box";
import type { GraphStore, ViewName } from "../../shared/model/graph_store";
import { Copier, copyButton } from "../../panel/parts";
import { addWindowButtons } from "../../shared/ui/window_buttons";
import { below } from "../../tree/tree_rows";

const VIEWS: readonly [ViewName, string][] = [
  ["hierarchy", words.HIERARCHY],
  ["dataflow", words.DATAFLOW],
  ["operators", words.OPERATORS],
  ["deduplicated", words.UNIQUE],
  ["diff", words.DIFF]
];

/** With a class that this model has. */
function searchTexts(h: Hierarchy): SearchTexts {
  const byClass = `class:${exampleClass(h)}`;
  return {
    placeholder: treeWords.placeholder(byClass),
    help: treeWords.help(byClass),
    label: treeWords.SEARCH,
    suggest: query => modelSuggestions(h, query)
  };
}

export class Toolbar extends Part {
  private readonly view = el("select");
  private readonly color = el("select");
  private readonly search: SearchBox;

  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    super(host);
    host.classList.add("mkg-toolbar");
    setRole(host, "toolbar", words.TOOLBAR);
    this.search = new SearchBox(widgetRoot(host), searchTexts(h), {
      search: query => store.set("query", query),
      step: direction => this.step(direction)
    });
    host.append(
      labelled("mkg-view", words.VIEW, this.view),
      labelled("mkg-color-by", words.COLOR, this.color),
      this.search.element,
      this.buttons()
    );
    this.disposers.add(addWindowButtons(host));
    this.fillViews();
    this.fillColors();
    this.listen();
    this.followQuery();
  }

  override dispose(): void {
    this.search.dispose();
    super.dispose();
  }

  private buttons(): HTMLElement {
    const group = el("div", "mkg-buttons");
    const add = (name: IconName, title: string, key: string, act: () => void) => {
      const element = iconButton(`mkg-button mkg-${name}`, name, title, key);
      this.disposers.add(listen(element, "click", act));
      group.append(element);
    };
    const ask = (what: string) => () => this.host.dispatchEvent(new CustomEvent(what, { bubbles: true }));
    add("expand-all", words.EXPAND_ALL, "", () => expandAll(this.h, this.store));
    add("collapse-all", words.COLLAPSE_ALL, "", () => collapseAll(this.h, this.store));
    add("fit", words.FIT, "f", ask("mkg-fit"));
    add("zoom-selection", words.ZOOM, "z", ask("mkg-zoom"));
    const help = helpButton();
    this.disposers.add(listen(help, "click", ask("mkg-help")));
    group.append(...this.flopsButton(), help);
    const menu = new ToolMenu(group);
    this.disposers.add(() => menu.dispose());
    return menu.element;
  }

  /** Shows FLOPs on the cards, where they are known. */
  private flopsButton(): HTMLElement[] {
    if (!this.h.column("flops")) return [];
    const { store } = this;
    const element = button("mkg-button mkg-flops", words.FLOPS, words.FLOPS_HELP);
    const follow = () => element.setAttribute("aria-pressed", String(store.get("withFlops")));
    follow();
    this.disposers.add(
      listen(element, "click", () => store.set("withFlops", !store.get("withFlops"))),
      store.on("withFlops", follow)
    );
    return [element];
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      listen(this.view, "change", () => store.set("view", this.view.value as ViewName)),
      listen(this.color, "change", () => store.set("colorBy", this.color.value)),
      store.on("view", () => this.fillViews()),
      store.on("colorBy", () => this.fillColors()),
      store.on("overlay", () => this.fillColors()),
      store.on("pruned", () => this.fillColors()),
      store.on("query", () => this.followQuery()),
      store.on("selected", () => this.showCount())
    );
  }

  private fillViews(): void {
    const views = VIEWS.filter(([name]) => isOffered(this.h, name));
    this.view.replaceChildren(...views.map(([name, label]) => option(name, label)));
    this.view.value = this.store.get("view");
    this.view.title = views.map(([name, label]) => `${label}: ${words.VIEW_HELP[name]}`).join("\n");
  }

  private fillColors(): void {
    const chosen = this.store.get("colorBy");
    const columns = [...Object.keys(this.h.payload.columns), "occurrences"];
    for (const given of ["overlay", "pruned"] as const) {
      if (Object.keys(this.store.get(given)).length > 0 || chosen === given) columns.push(given);
    }
    this.color.replaceChildren(option("none", words.NO_COLOR));
    for (const column of new Set(columns)) this.color.append(option(column, titleOf(this.h, column)));
    this.color.value = chosen;
  }

  /** Select the next or previous match, in tree order and around the ends. */
  private step(direction: 1 | -1): void {
    const { nodes } = search(this.h, this.store.get("query"));
    if (!nodes.length) return;
    const at = this.place(nodes);
    const next = at < 0 ? (direction > 0 ? 0 : nodes.length - 1) : (at + direction + nodes.length) % nodes.length;
    const path = this.h.path(nodes[next]);
    reveal(this.h, this.store, path);
    this.store.set("selected", path);
    this.showCount();
  }

  /** Where the selected module stands among the matches; -1 when it is none. */
  private place(nodes: readonly number[]): number {
    const path = this.store.get("selected");
    const node = path === null ? undefined : this.h.find(path);
    if (node === undefined) return -1;
    const at = below(nodes, node);
    return nodes[at] === node ? at : -1;
  }

  private followQuery(): void {
    this.search.follow(this.store.get("query"));
    this.showCount();
  }

  private showCount(): void {
    const query = this.store.get("query");
    const { nodes, why } = search(this.h, query);
    const at = this.place(nodes);
    const found = why || (at < 0 ? treeWords.matches(exactNumber(nodes.length)) : words.matchOf(at + 1, nodes.length));
    this.search.say(query.trim() ? found : "", why !== "");
  }
}

/** Whether the payload has what a view shows. */
export function isOffered(h: Hierarchy, view: ViewName): boolean {
  const { compare, flow } = h.payload;
  return view === "diff" ? compare !== null : view === "dataflow" || view === "operators" ? flow !== null : true;
}

function labelled(className: string, text: string, control: HTMLElement): HTMLElement {
  control.setAttribute("aria-label", text); // in a narrow window it stands alone
  control.title = text;
  return field(className, text, control);
}

// The legend of colors: scale, ends, how containers got their value, which have none.

const STEPS = 48;

export class Legend extends Part {
  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    super(host);
    host.classList.add("mkg-legend");
    setRole(host, "group", words.LEGEND);
    this.disposers.add(
      store.on("colorBy", () => this.render()),
      store.on("overlay", () => this.render()),
      store.on("pruned", () => this.render())
    );
    this.render();
  }

  private render(): void {
    const scale = scaleOf(this.h, this.store);
    this.host.hidden = scale === null;
    this.host.replaceChildren(...(scale ? parts(scale) : []));
  }
}

function parts(scale: Scale): HTMLElement[] {
  const title = el("div", "mkg-legend-title", scale.label);
  if (scale.logarithmic) title.append(el("span", "mkg-legend-note", ` ${words.LOG_SCALE}`));
  const found = [title, ...(Number.isNaN(scale.min) ? [] : rampWithEnds(scale))];
  const containers = words.CONTAINERS[scale.aggregate];
  if (containers) found.push(el("div", "mkg-legend-note", containers));
  if (scale.column === "pruned") found.push(el("div", "mkg-legend-note", words.NOT_PRUNED));
  if (scale.missing) found.push(key(MISSING_COLOR, words.noValue(counted(scale.missing, "module"))));
  if (scale.notFinite) found.push(key(NOT_FINITE_COLOR, words.notFinite(counted(scale.notFinite, "module"))));
  return found;
}

function rampWithEnds(scale: Scale): HTMLElement[] {
  const picture = el("div", "mkg-legend-ramp");
  const flat = scale.min === scale.max;
  picture.append(ramp(scale, flat));
  if (flat) return [picture, end(scale, scale.min)];
  picture.title = words.inTheMiddle(shortColumn(scale.column, scale.at(0.5)));
  return [end(scale, scale.min), picture, end(scale, scale.max)];
}

function ramp(scale: Scale, flat: boolean): SVGElement {
  const picture = svg("svg", { viewBox: `0 0 ${STEPS} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (let step = 0; step < STEPS; step += 1) {
    const fill = sample(flat ? scale.position(scale.min) : step / (STEPS - 1));
    // each reaches to the end, under the next ones, or hairlines show between them
    picture.append(svg("rect", { x: step, y: 0, width: STEPS - step, height: 1, fill }));
  }
  return picture;
}

function end(scale: Scale, value: number): HTMLElement {
  const mark = el("span", "mkg-legend-end", shortColumn(scale.column, value));
  mark.title = exactNumber(value);
  return mark;
}

function key(color: string, text: string): HTMLElement {
  const line = el("div", "mkg-legend-key");
  const swatch = el("span", "mkg-swatch");
  swatch.style.backgroundColor = color;
  line.append(swatch, el("span", "", text));
  return line;
}

// The way from the root to the selected module, and what the canvas is showing the inside of.

const HEAD = 2; // crumbs kept at the start of a deep path
const TAIL = 4; // and at its end
const STEP = 50; // crumbs that "…" brings back at a time

export class Breadcrumb extends Part {
  private tail = TAIL;
  private readonly copier: Copier;

  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    super(host);
    this.copier = new Copier(store);
    host.classList.add("mkg-breadcrumb");
    setRole(host, "navigation", words.PATH);
    this.disposers.add(
      () => this.copier.dispose(),
      store.on("selected", () => {
        this.tail = TAIL;
        this.render();
      }),
      store.on(["focus", "view"], () => this.render()),
      listen(host, "click", event => this.clicked(event))
    );
    this.render();
  }

  private render(): void {
    const { h, store } = this;
    const path = store.get("selected");
    const node = (path === null ? undefined : h.find(path)) ?? 0;
    const chain = [...h.ancestors(node), node];
    const list = el("ol", "mkg-crumbs");
    const hidden = chain.length - HEAD - this.tail;
    const cut = hidden > 1 ? [HEAD, HEAD + hidden] : [chain.length, chain.length];
    for (const step of chain.slice(0, cut[0])) list.append(this.crumb(step, step === node));
    if (hidden > 1) list.append(more(hidden));
    for (const step of chain.slice(cut[1])) list.append(this.crumb(step, step === node));
    this.host.replaceChildren(list, ...this.inside(), ...this.order(), el("span", "mkg-summary", this.summary()));
    if (chain.length > 1) list.scrollLeft = list.scrollWidth; // to ask for the width costs a layout of the page
  }

  private crumb(node: number, current: boolean): HTMLElement {
    const item = el("li");
    const name = node === 0 ? this.h.payload.title : this.h.name(node);
    const element = button("mkg-crumb", "", this.h.className(node));
    element.append(nameSpan("", name));
    element.setAttribute("data-mkg-path", this.h.path(node));
    if (current) element.setAttribute("aria-current", "true");
    item.append(element);
    return item;
  }

  private summary(): string {
    const params = this.h.column("params")?.[0];
    const known = typeof params === "number" ? words.params(shortNumber(params), params === 1) : "";
    return words.size(this.h.size, known);
  }

  /** Without inputs: what the arrows are, and what to pass to get more. */
  private order(): HTMLElement[] {
    const { traced, file, error } = this.h.payload;
    if (traced || file || error !== null || this.store.get("view") !== "hierarchy") return [];
    const said = el("span", "mkg-order-note", words.ORDER_NOTICE);
    said.title = words.ORDER;
    return [
      said,
      el("code", "mkg-code mkg-order-code", words.ORDER_CODE),
      copyButton(words.COPY_CODE, words.ORDER_CODE)
    ];
  }

  private inside(): HTMLElement[] {
    const focus = this.store.get("focus");
    if (focus === 0) return [];
    const note = el("span", "mkg-inside");
    note.append(words.SHOWING, nameSpan("mkg-path", this.shortPath(focus)));
    return [note, button("mkg-button mkg-show-all", words.SHOW_ALL)];
  }

  /** The path, without its beginning when it is long. */
  private shortPath(node: number): string {
    const above = this.h.ancestors(node).slice(1);
    const names = [...above, node].slice(-TAIL).map(step => this.h.name(step));
    return (above.length >= TAIL ? "…." : "") + names.join(".");
  }

  private clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest("button") : null;
    const path = target?.getAttribute("data-mkg-path");
    if (typeof path === "string") {
      reveal(this.h, this.store, path);
      this.store.set("selected", path);
    } else if (target?.dataset.mkgCopy !== undefined) {
      void this.copier.copy(target, target.dataset.mkgCopy);
    } else if (target?.classList.contains("mkg-show-all")) {
      this.store.set("focus", 0);
    } else if (target?.classList.contains("mkg-crumb-more")) {
      this.tail += STEP;
      this.render();
    }
  }
}

function more(hidden: number): HTMLElement {
  const item = el("li");
  const element = button("mkg-crumb mkg-crumb-more", "…", words.moreLevels(hidden));
  element.setAttribute("aria-label", element.title);
  item.append(element);
  return item;
}
