// The last line: a lost kernel first, then what has to be said, and what is drawn.

import { button, Disposers, el, listen } from "../shared/dom";
import { icon } from "../shared/icons";
import { DISCONNECTED } from "../shared/status";
import type { ExplorerStore } from "./state";

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
