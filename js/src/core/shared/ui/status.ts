// Messages of a widget: its status line, the notice that its model has changed, and the text in place of data that cannot be read.

import { button, Disposers, el, listen, setAttribute, icon } from "./dom";
import type { Hierarchy } from "../model/hierarchy";
import type { GraphStore } from "../model/graph_store";
import { PayloadError } from "../base/schema";

export const DISCONNECTED = "disconnected: the kernel is gone. Looking still works; run the cell again to reconnect.";

export class StatusLine {
  private readonly disposers = new Disposers();
  private readonly text = el("span", "mkg-status-text");
  private readonly close = button("mkg-icon-button mkg-close", "", "Dismiss");

  constructor(
    private readonly host: HTMLElement,
    _h: Hierarchy,
    private readonly store: GraphStore
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

// A line above a widget whose model has changed since it was drawn, with a button that shows it as it is.

export class OutdatedNotice {
  private readonly element = el("div", "mkg-outdated");
  private readonly text = el("span");
  private readonly refresh = button("mkg-button", "Refresh", "Show the model as it is now");

  constructor(refresh: () => void) {
    this.element.setAttribute("role", "status");
    this.refresh.dataset.mkgNeedsKernel = "";
    this.refresh.addEventListener("click", () => {
      this.refresh.disabled = true; // until the kernel has answered
      refresh();
    });
    this.element.append(this.text, this.refresh);
  }

  /** `text`: what has changed; "" takes the line away. */
  show(host: HTMLElement, text: string, isConnected: boolean): void {
    this.text.textContent = text;
    setAttribute(this.refresh, "disabled", isConnected ? null : "");
    if (text === "") this.element.remove();
    else if (this.element.parentElement !== host || host.firstChild !== this.element) host.prepend(this.element);
  }
}

// A sentence in a widget's place, when there is nothing that can be drawn.

export const NO_DATA = "There is nothing to show yet: run the cell.";

export function showMessage(host: HTMLElement, text: string): void {
  const message = el("div", "mkg-message", text);
  message.setAttribute("role", "alert");
  host.replaceChildren(message);
}

/** What `read` makes of the kernel's data; undefined, and a sentence on the page, when it cannot be read. */
export function readOrShowError<T>(host: HTMLElement, raw: unknown, read: (raw: unknown) => T): T | undefined {
  try {
    if (typeof raw === "object" && raw !== null && Object.keys(raw).length > 0) return read(raw);
    showMessage(host, NO_DATA);
  } catch (error) {
    showMessage(host, error instanceof PayloadError ? error.message : "This widget's data cannot be read.");
  }
  return undefined;
}
