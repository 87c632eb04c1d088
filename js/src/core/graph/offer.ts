// What helps when a group cannot be opened because too much would be shown.

import { button, Disposers, el, listen } from "../shared/dom";
import type { Hierarchy } from "../shared/hierarchy";
import { collapseOthers, toggle } from "../shared/reveal";
import type { Store } from "../shared/store";

export class Offer {
  private readonly bar = el("div", "mkg-offer");
  private readonly disposers = new Disposers();
  private node = 0;

  constructor(host: HTMLElement, h: Hierarchy, store: Store) {
    const fold = button("mkg-button mkg-offer-fold", "Fold the others");
    const focus = button("mkg-button mkg-offer-focus", "Focus on this one");
    this.bar.hidden = true;
    this.bar.setAttribute("role", "group");
    this.bar.setAttribute("aria-label", "Too many nodes");
    this.bar.append(el("span", "", "Too many nodes to open this here."), fold, focus);
    host.append(this.bar);
    this.disposers.add(
      listen(fold, "click", () => {
        collapseOthers(h, store, this.node);
        toggle(h, store, this.node);
        this.done(store);
      }),
      listen(focus, "click", () => {
        store.set("focus", this.node);
        this.done(store);
      })
    );
  }

  show(node: number): void {
    this.node = node;
    this.bar.hidden = false;
  }

  hide(): void {
    this.bar.hidden = true;
  }

  dispose(): void {
    this.disposers.dispose();
    this.bar.remove();
  }

  private done(store: Store): void {
    this.hide();
    store.set("notice", "");
  }
}
