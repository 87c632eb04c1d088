// View, color, search and the buttons that act on the whole picture.

import "../../../../style/toolbar.css";
import { labelOf } from "../../shared/stage/color";
import { button, Disposers, el, listen, option, widgetRoot } from "../../shared/ui/dom";
import { counted } from "../../shared/base/format";
import type { Hierarchy } from "../../shared/model/hierarchy";
import { icon, type IconName } from "../../shared/ui/icons";
import { collapseAll, expandAll, reveal } from "../../shared/model/expansion";
import { exampleClass, search } from "../../shared/search/search";
import { SearchBox, type SearchTexts } from "../../shared/search/search_box";
import type { GraphStore, ViewName } from "../../shared/model/graph_store";
import { addWindowButtons } from "../../shared/ui/window_buttons";
import { below } from "../../tree/tree_rows";

const VIEWS: readonly [ViewName, string][] = [
  ["hierarchy", "Hierarchy"],
  ["dataflow", "Data flow"],
  ["operators", "Operators"],
  ["deduplicated", "Each structure once"],
  ["diff", "Side by side"]
];

/** With a class that this model has. */
function searchTexts(h: Hierarchy): SearchTexts {
  const byClass = `type:${exampleClass(h)}`;
  return {
    placeholder: `Search: text, ${byClass}, params>1M`,
    help: `Text finds paths and classes.\n${byClass} finds a class.\nparams>1M, bytes<=2k compare numbers.\nSeveral terms must all hold.`,
    label: "Search modules"
  };
}

export class Toolbar {
  private readonly disposers = new Disposers();
  private readonly view = el("select");
  private readonly color = el("select");
  private readonly search: SearchBox;

  constructor(
    private readonly host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    host.classList.add("mkg-toolbar");
    host.setAttribute("role", "toolbar");
    host.setAttribute("aria-label", "View, color and search");
    this.search = new SearchBox(widgetRoot(host), searchTexts(h), {
      search: query => store.set("query", query),
      step: direction => this.step(direction)
    });
    host.append(
      labelled("mkg-view", "View", this.view),
      labelled("mkg-color-by", "Color", this.color),
      this.search.element,
      this.buttons()
    );
    this.disposers.add(addWindowButtons(host));
    this.fillViews();
    this.fillColors();
    this.listen();
    this.followQuery();
  }

  dispose(): void {
    this.search.dispose();
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private buttons(): HTMLElement {
    const group = el("div", "mkg-buttons");
    const add = (name: IconName, title: string, key: string, act: () => void) => {
      const element = button(`mkg-button mkg-${name}`, "", key === "" ? title : `${title} (${key})`);
      element.setAttribute("aria-label", title);
      if (key !== "") element.setAttribute("aria-keyshortcuts", key);
      element.append(icon(name));
      this.disposers.add(listen(element, "click", act));
      group.append(element);
    };
    const ask = (what: string) => () => this.host.dispatchEvent(new CustomEvent(what, { bubbles: true }));
    add("expand-all", "Expand all", "", () => expandAll(this.h, this.store));
    add("collapse-all", "Collapse all", "", () => collapseAll(this.h, this.store));
    add("fit", "Fit to the window", "f", ask("mkg-fit"));
    add("zoom-selection", "Zoom to the selection", "z", ask("mkg-zoom"));
    return group;
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
  }

  private fillColors(): void {
    const chosen = this.store.get("colorBy");
    const columns = [...Object.keys(this.h.payload.columns), "occurrences"];
    for (const given of ["overlay", "pruned"] as const) {
      if (Object.keys(this.store.get(given)).length > 0 || chosen === given) columns.push(given);
    }
    this.color.replaceChildren(option("none", "none"));
    for (const column of new Set(columns)) this.color.append(option(column, labelOf(this.h, column)));
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
    const { nodes, notice } = search(this.h, query);
    const at = this.place(nodes);
    const total = counted(nodes.length, "match").replace(/matchs$/, "matches");
    const found = notice || (at < 0 ? total : `${at + 1} of ${nodes.length}`);
    this.search.say(query.trim() ? found : "", notice !== "");
  }
}

/** Whether the payload has what a view shows. */
export function isOffered(h: Hierarchy, view: ViewName): boolean {
  const { compare, flow } = h.payload;
  return view === "diff" ? compare !== null : view === "dataflow" || view === "operators" ? flow !== null : true;
}

function labelled(className: string, text: string, control: HTMLElement): HTMLElement {
  const label = el("label", className);
  label.append(el("span", "mkg-label", text), control);
  control.setAttribute("aria-label", text); // in a narrow window it stands alone
  control.title = text;
  return label;
}
