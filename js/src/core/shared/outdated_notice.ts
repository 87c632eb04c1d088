// A line above a widget whose model has changed since it was drawn, with a button that shows it as it is.

import { button, el, setAttribute } from "./dom";

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
