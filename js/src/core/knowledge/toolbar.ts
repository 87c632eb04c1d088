// The toolbar of an explorer, with the choice of view and colors and the search.

import {
  button,
  el,
  listen,
  option,
  setAttribute,
  widgetRoot,
  Part,
  setRole,
  iconButton,
  field,
  box
} from "../shared/ui/dom";
import { counted, exactNumber } from "../shared/base/format";
import { SearchBox, type SearchTexts } from "../shared/search/search_box";
import { addWindowButtons } from "../shared/ui/window_buttons";
import type { Knowledge } from "./data/knowledge";
import { search } from "./data/search";
import { type ColorBy, COLORS, type ExplorerStore, GROUPS, type Groups, VIEW_NAMES, VIEWS } from "./data/state";

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

export class ExplorerToolbar extends Part {
  private readonly tabs = el("div", "mkg-kg-views");
  private readonly color = el("select");
  private readonly colorLabel = field("mkg-color-by", "Color", this.color);
  private readonly groups = el("select", "mkg-kg-groups");
  private readonly groupsLabel = field("mkg-view", "Circles", this.groups);
  private readonly search: SearchBox;
  private readonly fit = iconButton("mkg-button mkg-fit", "fit", "Fit to the window", "f");
  private readonly zoom = iconButton("mkg-button mkg-zoom-selection", "zoom-selection", "Zoom to the selection", "z");

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: { fit(): void; zoom(): void; first(): void }
  ) {
    super(host);
    host.classList.add("mkg-toolbar");
    setRole(host, "toolbar", "View, color and search");
    this.addTabs();
    this.groups.append(...GROUPS.map(name => option(name, GROUP_WORDS[name])));
    this.groups.value = store.get("groups");
    this.search = new SearchBox(widgetRoot(host), SEARCH, {
      search: query => store.set("query", query),
      step: () => events.first()
    });
    const buttons = box("mkg-buttons", this.fit, this.zoom);
    host.append(this.tabs, this.groupsLabel, this.colorLabel, buttons, this.search.element);
    this.disposers.add(addWindowButtons(host));
    this.fillColors();
    this.listen();
    this.followQuery();
    this.showView();
  }

  override dispose(): void {
    this.search.dispose();
    super.dispose();
  }

  private addTabs(): void {
    setRole(this.tabs, "group", "View");
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
