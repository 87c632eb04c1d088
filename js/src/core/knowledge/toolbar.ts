// Which view, which colours, and the search.

import { button, Debounced, Disposers, el, listen, option, setAttribute, widgetRoot } from "../dom";
import { exactNumber } from "../format";
import { icon } from "../icons";
import type { Knowledge } from "./data";
import { search } from "./search";
import { COLOURS, type ColourBy, type ExplorerStore, type ExplorerView, VIEWS } from "./state";

const LABELS: Readonly<Record<ExplorerView, string>> = {
  graph: "Graph",
  ranking: "Ranking",
  communities: "Communities",
  types: "Types",
  overlap: "Overlap",
  frequency: "Rank–frequency",
  jobs: "Training"
};
const SEARCH_DELAY = 90; // ms without a key before a search runs
const HELP =
  "Text finds names, classes and settings.\nclass:Conv2d finds a class; model:resnet18, family:ResNet and community:3 what is in them.\n" +
  "params>1M, uses>=10, models>5 compare numbers.\nSeveral terms must all hold.";

export class ExplorerToolbar {
  private readonly disposers = new Disposers();
  private readonly tabs = el("div", "mkg-kg-views");
  private readonly colour = el("select");
  private readonly colourLabel = el("label", "mkg-color-by");
  private readonly input = el("input");
  private readonly count = el("span", "mkg-search-count");
  private readonly fit = button("mkg-button mkg-fit", "", "Fit to the window (f)");
  private readonly typed = new Debounced(() => this.store.set("query", this.input.value), SEARCH_DELAY);

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: { fit(): void; first(): void }
  ) {
    host.classList.add("mkg-toolbar");
    host.setAttribute("role", "toolbar");
    host.setAttribute("aria-label", "View, colour and search");
    this.addTabs();
    this.colourLabel.append(el("span", "mkg-label", "Colour"), this.colour);
    this.fit.setAttribute("aria-label", "Fit to the window");
    this.fit.append(icon("fit"));
    const buttons = el("div", "mkg-buttons");
    buttons.append(this.fit);
    host.append(this.tabs, this.colourLabel, buttons, this.searchBox());
    this.fillColours();
    this.listen();
    this.input.value = store.get("query");
    this.showCount();
    this.showView();
  }

  dispose(): void {
    this.typed.cancel();
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private addTabs(): void {
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "View");
    for (const view of VIEWS) {
      if (view === "jobs" && this.data.payload.jobs.name.length === 0) continue;
      const tab = button("mkg-kg-view", LABELS[view]);
      tab.dataset.mkgView = view;
      this.disposers.add(listen(tab, "click", () => this.store.set("view", view)));
      this.tabs.append(tab);
    }
  }

  private searchBox(): HTMLElement {
    const box = el("div", "mkg-search");
    this.input.type = "search";
    this.input.placeholder = "Search: text, class:Conv2d, params>1M";
    this.input.title = HELP;
    this.input.spellcheck = false;
    this.input.autocomplete = "off";
    this.input.setAttribute("aria-label", "Search models and structures");
    this.input.setAttribute("aria-keyshortcuts", "/");
    this.count.setAttribute("role", "status");
    box.append(icon("search"), this.input, this.count);
    return box;
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      listen(this.colour, "change", () => store.set("colorBy", this.colour.value as ColourBy)),
      listen(this.input, "input", () => this.typed.call()),
      listen(this.input, "keydown", event => this.searchKey(event)),
      listen(this.fit, "click", () => this.events.fit()),
      listen(widgetRoot(this.host), "keydown", event => this.shortcut(event)),
      store.on("colorBy", () => void (this.colour.value = store.get("colorBy"))),
      store.on("query", () => this.followQuery()),
      store.on("view", () => this.showView())
    );
  }

  private fillColours(): void {
    this.colour.replaceChildren(...COLOURS.map(name => option(name, name === "class" ? "sort of class" : name)));
    this.colour.value = this.store.get("colorBy");
  }

  private showView(): void {
    const view = this.store.get("view");
    for (const tab of this.tabs.querySelectorAll<HTMLElement>("button")) {
      setAttribute(tab, "aria-pressed", String(tab.dataset.mkgView === view));
    }
    this.colourLabel.hidden = this.fit.hidden = view !== "graph";
  }

  /** "/" anywhere in the widget moves to the search box. */
  private shortcut(event: KeyboardEvent): void {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
    event.preventDefault();
    event.stopPropagation();
    this.input.focus();
    this.input.select();
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    if (event.key === "Enter") {
      this.typed.flush();
      this.events.first();
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.typed.call();
      this.typed.flush();
    } else {
      event.stopPropagation(); // letters are text here, not shortcuts
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private followQuery(): void {
    const query = this.store.get("query");
    if (this.input.value !== query) {
      this.typed.cancel();
      this.input.value = query;
    }
    this.showCount();
  }

  private showCount(): void {
    const query = this.store.get("query");
    const { things, notice } = search(this.data, query);
    const found = things.length === 1 ? "1 match" : `${exactNumber(things.length)} matches`;
    this.count.textContent = !query.trim() ? "" : notice || found;
    this.count.classList.toggle("mkg-is-notice", notice !== "");
  }
}

export function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, select, textarea, [contenteditable]");
}
