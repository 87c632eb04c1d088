// One line for what has to be said: a lost kernel first, then the latest notice.

import { button, Disposers, el, listen } from "./dom";
import type { Hierarchy } from "./hierarchy";
import { icon } from "./icons";
import type { Store } from "./store";

export const DISCONNECTED = "disconnected: the kernel is gone. Looking still works; run the cell again to reconnect.";

export class StatusLine {
  private readonly disposers = new Disposers();
  private readonly text = el("span", "mkg-status-text");
  private readonly close = button("mkg-icon-button mkg-close", "", "Dismiss");

  constructor(
    private readonly host: HTMLElement,
    _h: Hierarchy,
    private readonly store: Store
  ) {
    host.classList.add("mkg-status");
    host.setAttribute("role", "status");
    this.close.setAttribute("aria-label", "Dismiss");
    this.close.append(icon("close"));
    host.append(this.text, this.close);
    this.disposers.add(
      store.on("notice", () => this.render()),
      store.on("connected", () => this.render()),
      listen(this.close, "click", () => store.set("notice", ""))
    );
    this.render();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private render(): void {
    const connected = this.store.get("connected");
    const notice = this.store.get("notice");
    this.text.textContent = [connected ? "" : DISCONNECTED, notice].filter(Boolean).join(" · ");
    this.close.hidden = notice === "";
    this.host.classList.toggle("mkg-is-warning", !connected);
  }
}
