// The toolbar of an explorer, with the choice of view and colors and the search; and its status line.

import { button, Disposers, el, listen, option, setAttribute, widgetRoot, icon } from "../shared/ui/dom";
import { counted, exactNumber } from "../shared/base/format";
import { SearchBox, type SearchTexts } from "../shared/search/search_box";
import { addWindowButtons } from "../shared/ui/window_buttons";
import type { Knowledge } from "./data/knowledge";
import { search } from "./data/search";
import { type ColorBy, COLORS, type ExplorerStore, GROUPS, type Groups, VIEW_NAMES, VIEWS } from "./data/state";
import { DISCONNECTED } from "../shared/ui/status";

const GROUP_WORDS: Readonly<Record<Groups, string>> = {
  families: "families of models",
  communities: "communities and families"
};

const SEARCH: SearchTexts = {
  placeholder: "Search: text, class:Conv2d, params>1M",
  help:
    "Text finds names, classes and settings.\nclass:Conv2d finds a class; model:resnet18, family:ResNet and community:3 what is in them.\n" +
    "params>1M, uses>=10, models>5 compare numbers.\nSeveral terms must all hold.",
  label: "Search models and structures"
};

export class ExplorerToolbar {
  private readonly disposers = new Disposers();
  private readonly tabs = el("div", "mkg-kg-views");
  private readonly color = el("select");
  private readonly colorLabel = el("label", "mkg-color-by");
  private readonly groups = el("select", "mkg-kg-groups");
  private readonly groupsLabel = el("label", "mkg-view");
  private readonly search: SearchBox;
  private readonly fit = button("mkg-button mkg-fit", "", "Fit to the window (f)");
  private readonly zoom = button("mkg-button mkg-zoom-selection", "", "Zoom to the selection (z)");

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: { fit(): void; zoom(): void; first(): void }
  ) {
    host.classList.add("mkg-toolbar");
    host.setAttribute("role", "toolbar");
    host.setAttribute("aria-label", "View, color and search");
    this.addTabs();
    this.colorLabel.append(el("span", "mkg-label", "Color"), this.color);
    this.groupsLabel.append(el("span", "mkg-label", "Circles"), this.groups);
    this.groups.append(...GROUPS.map(name => option(name, GROUP_WORDS[name])));
    this.groups.value = store.get("groups");
    this.fit.setAttribute("aria-label", "Fit to the window");
    this.fit.setAttribute("aria-keyshortcuts", "f");
    this.fit.append(icon("fit"));
    this.zoom.setAttribute("aria-label", "Zoom to the selection");
    this.zoom.setAttribute("aria-keyshortcuts", "z");
    this.zoom.append(icon("zoom-selection"));
    const buttons = el("div", "mkg-buttons");
    buttons.append(this.fit, this.zoom);
    this.search = new SearchBox(widgetRoot(host), SEARCH, {
      search: query => store.set("query", query),
      step: () => events.first()
    });
    host.append(this.tabs, this.groupsLabel, this.colorLabel, buttons, this.search.element);
    this.disposers.add(addWindowButtons(host));
    this.fillColors();
    this.listen();
    this.followQuery();
    this.showView();
  }

  dispose(): void {
    this.search.dispose();
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private addTabs(): void {
    this.tabs.setAttribute("role", "group");
    this.tabs.setAttribute("aria-label", "View");
    for (const view of VIEW_NAMES) {
      const tab = button("mkg-kg-view", VIEWS[view]);
      tab.dataset.mkgView = view;
      this.disposers.add(listen(tab, "click", () => this.store.set("view", view)));
      this.tabs.append(tab);
    }
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      listen(this.color, "change", () => store.set("colorBy", this.color.value as ColorBy)),
      listen(this.fit, "click", () => this.events.fit()),
      listen(this.zoom, "click", () => this.events.zoom()),
      listen(this.groups, "change", () => store.set("groups", this.groups.value as Groups)),
      store.on("groups", () => void (this.groups.value = store.get("groups"))),
      store.on("colorBy", () => void (this.color.value = store.get("colorBy"))),
      store.on("query", () => this.followQuery()),
      store.on("view", () => this.showView())
    );
  }

  private fillColors(): void {
    this.color.replaceChildren(...COLORS.map(name => option(name, name === "class" ? "sort of class" : name)));
    this.color.value = this.store.get("colorBy");
  }

  private showView(): void {
    const view = this.store.get("view");
    for (const tab of this.tabs.querySelectorAll<HTMLElement>("button")) {
      setAttribute(tab, "aria-pressed", String(tab.dataset.mkgView === view));
    }
    this.fit.hidden = view !== "graph" && view !== "scatter";
    this.zoom.hidden = view !== "graph";
    this.colorLabel.hidden = view !== "graph" && view !== "scatter";
    // it has its place before communities are known: nothing moves when they come
    const { analysis, communities } = this.data.payload;
    this.groupsLabel.hidden = view !== "graph" || (analysis !== "running" && communities.count === 0);
    this.groups.disabled = communities.count === 0;
  }

  private followQuery(): void {
    this.search.follow(this.store.get("query"));
    this.showCount();
  }

  private showCount(): void {
    const query = this.store.get("query");
    const { things, models, modules, notice } = search(this.data, query);
    const both = `${counted(models.size, "model")}, ${counted(modules.size, "structure")}`;
    const one = things.length === 1 ? "1 match" : `${exactNumber(things.length)} matches`;
    const found = models.size > 0 && modules.size > 0 ? both : one;
    this.search.say(query.trim() ? notice || found : "", notice !== "");
  }
}

// The last line: a lost kernel first, then what has to be said, and what is drawn.

export class ExplorerStatus {
  private readonly disposers = new Disposers();
  private readonly text = el("span", "mkg-status-text");
  private readonly counts = el("span", "mkg-kg-counts");
  private readonly close = button("mkg-icon-button mkg-close", "", "Dismiss");

  constructor(
    private readonly host: HTMLElement,
    private readonly store: ExplorerStore
  ) {
    host.classList.add("mkg-status");
    this.text.setAttribute("role", "status");
    this.close.setAttribute("aria-label", "Dismiss");
    this.close.append(icon("close"));
    host.append(this.text, this.counts, this.close);
    this.disposers.add(
      store.on(["connected", "notice"], () => this.draw()),
      listen(this.close, "click", () => store.set("notice", ""))
    );
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  count(text: string): void {
    this.counts.textContent = text;
  }

  private draw(): void {
    const [connected, notice] = [this.store.get("connected"), this.store.get("notice")];
    this.text.textContent = [connected ? "" : DISCONNECTED, notice].filter(Boolean).join(" · ");
    this.close.hidden = notice === "";
    this.host.classList.toggle("mkg-is-warning", !connected);
  }
}
