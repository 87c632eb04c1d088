// The way from the root to the selected module, and what the canvas is showing the inside of.

import { button, Disposers, el, listen, nameSpan } from "../../shared/ui/dom";
import { counted, shortNumber } from "../../shared/base/format";
import type { Hierarchy } from "../../shared/model/hierarchy";
import { reveal } from "../../shared/model/expansion";
import type { GraphStore } from "../../shared/model/graph_store";

const HEAD = 2; // crumbs kept at the start of a deep path
const TAIL = 4; // and at its end
const STEP = 50; // crumbs that "…" brings back at a time

export class Breadcrumb {
  private readonly disposers = new Disposers();
  private tail = TAIL;

  constructor(
    private readonly host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    host.classList.add("mkg-breadcrumb");
    host.setAttribute("role", "navigation");
    host.setAttribute("aria-label", "Path of the selected module");
    this.disposers.add(
      store.on("selected", () => {
        this.tail = TAIL;
        this.render();
      }),
      store.on("focus", () => this.render()),
      listen(host, "click", event => this.clicked(event))
    );
    this.render();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
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
    this.host.replaceChildren(list, ...this.inside(), el("span", "mkg-summary", this.summary()));
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
    const size = counted(this.h.size, "module");
    return typeof params === "number"
      ? `${size} · ${shortNumber(params)} ${params === 1 ? "parameter" : "parameters"}`
      : size;
  }

  private inside(): HTMLElement[] {
    const focus = this.store.get("focus");
    if (focus === 0) return [];
    const note = el("span", "mkg-inside");
    note.append("showing inside ", nameSpan("mkg-path", this.shortPath(focus)));
    return [note, button("mkg-button mkg-show-all", "Show the whole model")];
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
  const element = button("mkg-crumb mkg-crumb-more", "…", counted(hidden, "more level"));
  element.setAttribute("aria-label", element.title);
  item.append(element);
  return item;
}
