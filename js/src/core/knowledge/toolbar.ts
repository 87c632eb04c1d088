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
import { SearchBox } from "../shared/search/search_box";
import { addWindowButtons } from "../shared/ui/window_buttons";
import type { Knowledge } from "./data/knowledge";
import { search, suggest } from "./data/search";
import { type ColorBy, COLORS, type ExplorerStore, GROUPS, type Groups, VIEW_NAMES } from "./data/state";
import * as words from "../words/knowledge";

export class ExplorerToolbar extends Part {
  private readonly tabs = el("div", "mkg-kg-views");
  private readonly color = el("select");
  private readonly colorLabel = field("mkg-color-by", words.COLOR, this.color);
  private readonly groups = el("select", "mkg-kg-groups");
  private readonly groupsLabel = field("mkg-view", words.GROUP_BY, this.groups);
  private readonly search: SearchBox;
  private readonly fit = iconButton("mkg-button mkg-fit", "fit", words.FIT, "f");
  private readonly zoom = iconButton("mkg-button mkg-zoom-selection", "zoom-selection", words.ZOOM, "z");

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: { fit(): void; zoom(): void; first(): void }
  ) {
    super(host);
    host.classList.add("mkg-toolbar");
    setRole(host, "toolbar", words.TOOLBAR);
    this.addTabs();
    this.groups.append(...GROUPS.map(name => option(name, words.GROUPS[name])));
    this.groups.value = store.get("groups");
    this.search = new SearchBox(
      widgetRoot(host),
      { ...words.SEARCH, suggest: query => suggest(data, query) },
      {
        search: query => store.set("query", query),
        step: () => events.first()
      }
    );
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
    setRole(this.tabs, "group", words.VIEW);
    for (const view of VIEW_NAMES) {
      const tab = button("mkg-kg-view", words.VIEWS[view]);
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
    this.color.replaceChildren(...COLORS.map(name => option(name, name === "class" ? words.CLASS_TYPE : name)));
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
    const { things, models, modules, why } = search(this.data, query);
    const both = `${words.models(models.size)}, ${words.structures(modules.size)}`;
    const found = models.size > 0 && modules.size > 0 ? both : words.matches(things.length);
    this.search.say(query.trim() ? why || found : "", why !== "");
  }
}
