// Says above the canvas that a forward pass failed, and why.

import { button, Disposers, el, listen, nameSpan } from "../shared/dom";
import type { Hierarchy } from "../shared/hierarchy";
import { icon } from "../shared/icons";

const PARTLY = "The forward pass stopped: the data flow is drawn as far as it went.";
const NOTHING = "The forward pass could not run: only the structure is shown.";

export class TraceNotice {
  private readonly disposers = new Disposers();

  constructor(
    private readonly host: HTMLElement,
    h: Hierarchy
  ) {
    const { error, traced } = h.payload;
    host.classList.add("mkg-trace-error");
    host.hidden = error === null;
    if (error === null) return;
    host.setAttribute("role", "alert");
    const close = button("mkg-icon-button mkg-close", "", "Dismiss");
    close.setAttribute("aria-label", "Dismiss");
    close.append(icon("close"));
    const text = el("div", "mkg-trace-error-text");
    text.append(el("strong", "", traced ? PARTLY : NOTHING), nameSpan("mkg-trace-error-reason", error));
    host.append(text, close);
    this.disposers.add(listen(close, "click", () => void (host.hidden = true)));
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }
}
