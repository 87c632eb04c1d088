// The instances of the fold around the selected module: one button each, a page at a time.

import * as words from "../../words/graph";
import "../../../../style/strip.css";
import { button, el, listen, nameSpan, setAttribute, Part, setRole } from "../../shared/ui/dom";
import { exactNumber } from "../../shared/base/format";
import type { Fold, Hierarchy } from "../../shared/model/hierarchy";
import { reveal, unfold } from "../../shared/model/expansion";
import type { GraphStore } from "../../shared/model/graph_store";
import { below } from "../../tree/tree_rows";

export const PAGE = 200;
const GAP = 3; // px between the lines of instances

export class InstanceStrip extends Part {
  private fold: Fold | undefined;
  private current = 0; // the member that the selection is, or lies in
  private page = 0;

  constructor(
    host: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore
  ) {
    super(host);
    host.classList.add("mkg-strip");
    setRole(host, "group", words.COPIES);
    this.disposers.add(
      store.on("selected", () => this.follow()),
      store.on("unfolded", () => this.render()),
      listen(host, "click", event => this.clicked(event)),
      listen(host, "change", event => this.jump(event)),
      listen(host, "keydown", event => this.key(event))
    );
    this.follow();
  }

  private follow(): void {
    const path = this.store.get("selected");
    const node = path === null ? undefined : this.h.find(path);
    this.fold = undefined;
    for (let at = node ?? -1; at > 0 && !this.fold; at = this.h.parent(at)) {
      this.fold = this.h.fold(at);
      if (this.fold) this.current = at;
    }
    if (this.fold) this.page = Math.floor(this.indexOf(this.current) / PAGE);
    this.render();
  }

  private indexOf(node: number): number {
    return this.fold ? below(this.fold.members, node) : 0;
  }

  private render(): void {
    const { fold } = this;
    const focused = this.host.contains(document.activeElement) ? document.activeElement : null;
    const held = focused?.getAttribute("data-mkg-path") ?? null;
    const heldClass = focused?.className;
    this.host.hidden = fold === undefined;
    this.host.replaceChildren(...(fold ? [this.head(fold), this.instances(fold)] : []));
    this.scrollToCurrent();
    if (!focused) return;
    // the buttons are new ones: hand the focus on
    for (const element of this.host.querySelectorAll<HTMLElement>(":is(button,input)")) {
      const same = held === null ? element.className === heldClass : element.getAttribute("aria-current") === "true";
      if (same) return element.focus({ preventScroll: true });
    }
  }

  /** Two lines of instances are in view: the current one is in the second, unless it is in the first of all. */
  private scrollToCurrent(): void {
    const list = this.host.querySelector<HTMLElement>(".mkg-instances");
    const first = list?.firstElementChild;
    const current = list?.querySelector<HTMLElement>("[aria-current]");
    if (!list || !current || !(first instanceof HTMLElement)) return;
    list.scrollTop = Math.max(0, current.offsetTop - first.offsetTop - current.offsetHeight - GAP);
  }

  private head(fold: Fold): HTMLElement {
    const head = el("div", "mkg-strip-head");
    const title = el("span", "mkg-strip-title");
    title.append(
      nameSpan("mkg-strip-class", this.h.className(fold.first)),
      ` ${fold.kind === "exact" ? "" : "≈ "}×${exactNumber(fold.count)}`
    );
    const how = fold.kind === "exact" ? words.SAME : fold.label || words.SIZES_VARY;
    const unfolded = this.store.get("unfolded").has(fold.first);
    const toggle = button(
      "mkg-button mkg-unfold",
      unfolded ? words.FOLD : words.UNFOLD,
      unfolded ? words.FOLD_HELP : words.UNFOLD_HELP
    );
    toggle.setAttribute("aria-pressed", String(unfolded));
    head.append(title, nameSpan("mkg-dim mkg-strip-how", how), toggle, ...this.pager(fold));
    return head;
  }

  private pager(fold: Fold): HTMLElement[] {
    const number = el("input", "mkg-strip-number");
    number.type = "number";
    number.min = "1";
    number.max = String(fold.count);
    number.value = String(this.indexOf(this.current) + 1);
    number.setAttribute("aria-label", words.COPY_NUMBER);
    const field = el("label", "mkg-strip-jump");
    field.append(`${words.COPY} `, number, ` ${words.copyOf(exactNumber(fold.count))}`);
    if (fold.count <= PAGE) return [field];
    const last = Math.ceil(fold.count / PAGE) - 1;
    const before = button("mkg-button mkg-prev", "‹", words.PREVIOUS_COPIES);
    const after = button("mkg-button mkg-next", "›", words.NEXT_COPIES);
    before.disabled = this.page === 0;
    after.disabled = this.page === last;
    const range = `${exactNumber(this.page * PAGE + 1)}–${exactNumber(Math.min(fold.count, (this.page + 1) * PAGE))}`;
    return [field, before, el("span", "mkg-dim", range), after];
  }

  private instances(fold: Fold): HTMLElement {
    const list = el("div", "mkg-instances");
    for (const member of fold.members.slice(this.page * PAGE, (this.page + 1) * PAGE)) {
      const element = button("mkg-instance", "");
      element.append(nameSpan("", this.h.name(member)));
      element.setAttribute("data-mkg-path", this.h.path(member));
      setAttribute(element, "aria-current", member === this.current ? "true" : null);
      list.append(element);
    }
    return list;
  }

  private clicked(event: MouseEvent): void {
    const target = event.target instanceof Element ? event.target.closest("button") : null;
    const path = target?.getAttribute("data-mkg-path");
    if (typeof path === "string") this.select(path);
    else if (target?.classList.contains("mkg-unfold")) this.toggle();
    else if (target?.classList.contains("mkg-prev")) this.turn(-1);
    else if (target?.classList.contains("mkg-next")) this.turn(1);
  }

  private turn(direction: number): void {
    this.page += direction;
    this.render();
  }

  private jump(event: Event): void {
    const { fold } = this;
    const field = event.target;
    if (!fold || !(field instanceof HTMLInputElement)) return;
    const wanted = Math.round(Number(field.value));
    const member = fold.members[Math.min(Math.max(wanted, 1), fold.count) - 1];
    if (member === undefined)
      this.render(); // no number: show again where we are
    else this.select(this.h.path(member));
  }

  /** Arrows walk along the instances. */
  private key(event: KeyboardEvent): void {
    const direction = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const target = event.target;
    if (!direction || !(target instanceof Element) || !target.hasAttribute("data-mkg-path")) return;
    const member = this.fold?.members[this.indexOf(this.current) + direction];
    event.preventDefault();
    event.stopPropagation();
    if (member !== undefined) this.select(this.h.path(member));
  }

  private select(path: string): void {
    reveal(this.h, this.store, path);
    this.store.set("selected", path);
  }

  private toggle(): void {
    const { fold, store } = this;
    if (!fold) return;
    const unfolded = new Set(store.get("unfolded"));
    if (unfolded.delete(fold.first)) store.set("unfolded", unfolded);
    else if (!unfold(this.h, store, fold)) return;
    const selected = store.get("selected");
    if (selected !== null) reveal(this.h, store, selected); // folded again, the fold is drawn by the selected instance
  }
}
