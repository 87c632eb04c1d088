// The boxes, tabs and links of ipywidgets that a page may hold.

import { el } from "../core/shared/ui/dom";
import { DOMWidgetModel, DOMWidgetView, type Serializers, unpack_models, WidgetModel } from "./base";

export class LayoutModel extends WidgetModel {}

export class LinkModel extends WidgetModel {
  static override serializers: Serializers = {
    source: { deserialize: unpack_models },
    target: { deserialize: unpack_models }
  };

  override initialize(): void {
    const [source, from] = this.get("source") as [WidgetModel, string];
    const [target, to] = this.get("target") as [WidgetModel, string];
    this.join(source, from, target, to);
  }

  protected join(source: WidgetModel, from: string, target: WidgetModel, to: string): void {
    this.follow(source, from, target, to);
    this.listenTo(target, `change:${to}`, () => put(source, from, target.get(to)));
  }

  protected follow(source: WidgetModel, from: string, target: WidgetModel, to: string): void {
    const update = () => put(target, to, source.get(from));
    this.listenTo(source, `change:${from}`, update);
    update();
  }
}

/** As a click in a view of that model would. */
function put(model: WidgetModel, name: string, value: unknown): void {
  model.set(name, value);
  model.save_changes();
}

export class DirectionalLinkModel extends LinkModel {
  protected override join(source: WidgetModel, from: string, target: WidgetModel, to: string): void {
    this.follow(source, from, target, to);
  }
}

export class BoxModel extends DOMWidgetModel {
  static override serializers: Serializers = {
    ...DOMWidgetModel.serializers,
    children: { deserialize: unpack_models }
  };

  override defaults(): Record<string, unknown> {
    return { ...super.defaults(), children: [], titles: [], selected_index: null };
  }

  get children(): readonly WidgetModel[] {
    return this.get("children") as WidgetModel[];
  }
}

export class BoxView extends DOMWidgetView {
  protected readonly views: DOMWidgetView[] = [];

  /** "vbox", "hbox", "tab", … */
  private get kind(): string {
    return String(this.model.get("_view_name")).replace(/View$/, "").toLowerCase();
  }

  protected get box(): BoxModel {
    return this.model as BoxModel;
  }

  override render(): void {
    super.render();
    this.el.classList.add("mkg-page-box", `mkg-page-${this.kind}`);
    this.on("displayed", () => this.views.forEach(view => view.trigger("displayed")));
    void this.fill();
  }

  /** Puts the child in its place; the view is told when it stands in the page. */
  protected place(view: DOMWidgetView, _index: number): void {
    this.el.append(view.el);
  }

  private async fill(): Promise<void> {
    for (const [index, child] of this.box.children.entries()) {
      const view = await this.create_child_view(child);
      this.views.push(view);
      this.place(view, index);
      if (this.el.isConnected) view.trigger("displayed");
    }
  }
}

let groups = 0;

/** Tabs: one child at a time, chosen by click or arrow keys. */
export class TabView extends BoxView {
  private readonly list = el("div", "mkg-page-tabs");
  private readonly group = ++groups;

  override render(): void {
    this.list.setAttribute("role", "tablist");
    this.el.append(this.list);
    this.list.addEventListener("keydown", event => this.key(event));
    this.listenTo(this.model, "change:selected_index", () => this.choose());
    super.render();
  }

  protected override place(view: DOMWidgetView, index: number): void {
    const title = (this.model.get("titles") as readonly string[])[index] || `${index + 1}`;
    const tab = el("button", "mkg-page-tab-button", title);
    const [tabId, pageId] = [`mkg-tab-${this.group}-${index}`, `mkg-tab-page-${this.group}-${index}`];
    Object.assign(tab, { type: "button", id: tabId });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", pageId);
    tab.addEventListener("click", () => put(this.model, "selected_index", index));
    const page = el("div", "mkg-page-tab-page");
    page.id = pageId;
    page.setAttribute("role", "tabpanel");
    page.setAttribute("aria-labelledby", tabId);
    page.append(view.el);
    this.list.append(tab);
    this.el.append(page);
    this.choose();
  }

  private choose(): void {
    const chosen = this.model.get("selected_index");
    [...this.list.children].forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === chosen));
      (tab as HTMLElement).tabIndex = index === (chosen ?? 0) ? 0 : -1;
      (this.el.children[index + 1] as HTMLElement).hidden = index !== chosen;
    });
  }

  private key(event: KeyboardEvent): void {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const count = this.list.children.length;
    const next = (Number(this.model.get("selected_index") ?? 0) + step + count) % count;
    put(this.model, "selected_index", next);
    (this.list.children[next] as HTMLElement).focus();
    event.preventDefault();
  }
}

export { BoxModel as GridBoxModel, BoxModel as HBoxModel, BoxModel as TabModel, BoxModel as VBoxModel };
export { BoxView as GridBoxView, BoxView as HBoxView, BoxView as VBoxView };
