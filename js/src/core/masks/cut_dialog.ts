// Asks once, inside the widget, before the model is cut, and says what will change.

import { button, Disposers, el, listen } from "../shared/dom";
import type { Scene } from "./scene";
import { amountText, changeText, COUNTERS, goingText } from "./words";

let dialogs = 0;

export class CutDialog {
  private readonly disposers = new Disposers();
  private readonly veil = el("div", "mkg-mask-veil");
  private readonly confirm = button("mkg-button mkg-mask-confirm", "Cut");
  private readonly cancel = button("mkg-button mkg-mask-cancel", "Cancel");
  private isOpen = true;

  constructor(
    private readonly scene: Scene,
    private readonly answer: (isConfirmed: boolean) => void
  ) {
    const box = this.box();
    const { host, store } = scene;
    const others = ([...host.children] as HTMLElement[]).filter(child => !child.inert);
    this.confirm.dataset.mkgNeedsKernel = "";
    this.veil.append(box);
    host.append(this.veil);
    others.forEach(child => (child.inert = true));
    const follow = () => void (this.confirm.disabled = !store.get("connected"));
    this.disposers.add(
      () => others.forEach(child => (child.inert = false)),
      () => this.veil.remove(),
      listen(this.confirm, "click", () => this.close(true)),
      listen(this.cancel, "click", () => this.close(false)),
      listen(this.veil, "keydown", event => this.key(event)),
      store.on("connected", follow)
    );
    follow();
    this.cancel.focus();
  }

  close(isConfirmed: boolean): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.disposers.dispose();
    this.answer(isConfirmed);
  }

  private box(): HTMLElement {
    const { data, session, store } = this.scene;
    const report = session.isReportCurrent && !session.report?.error ? session.report : null;
    const [heading, text] = [`mkg-mask-ask-${++dialogs}`, `mkg-mask-says-${dialogs}`];
    const box = el("div", "mkg-mask-dialog");
    box.setAttribute("role", "dialog");
    box.setAttribute("aria-modal", "true");
    box.setAttribute("aria-labelledby", heading);
    box.setAttribute("aria-describedby", text);
    const title = el("div", "mkg-mask-dialog-title", `Cut ${goingText(data.dropped(), "on")}?`);
    title.id = heading;
    const body = el("div", "mkg-mask-dialog-body");
    body.id = text;
    body.append(this.sizes(report), el("p", "", noteOf(report !== null)));
    if (session.offers.recalibrate && store.get("recalibrating"))
      body.append(el("p", "", "Then its running statistics are renewed from the batches."));
    body.append(el("p", "", "The model is changed in place. “Undo cut” makes it what it was before."));
    const buttons = el("div", "mkg-mask-dialog-buttons");
    buttons.append(this.cancel, this.confirm);
    box.append(title, body, buttons);
    return box;
  }

  private sizes(report: Scene["session"]["report"]): HTMLElement {
    const { data } = this.scene;
    const own = data.counters.totals();
    const table = el("table", "mkg-mask-sizes");
    for (const [counter, label] of COUNTERS) {
      const { before, after } = own[counter];
      const [old, fresh] = report?.[counter] ?? [before, after];
      const row = el("tr");
      const head = el("th", "", label);
      head.scope = "row";
      const approximately = counter === "flops" && data.isApproximate && !report ? "≈ " : "";
      row.append(
        head,
        el("td", "", `${approximately}${amountText(counter, old)} → ${amountText(counter, fresh)}`),
        el("td", "mkg-dim", changeText(old, fresh))
      );
      table.append(row);
    }
    return table;
  }

  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape") {
      event.preventDefault();
      this.close(false);
    } else if (event.key === "Tab") {
      event.preventDefault();
      const focused = this.veil.ownerDocument.activeElement;
      const next = focused === this.cancel && !this.confirm.disabled ? this.confirm : this.cancel;
      next.focus();
    }
  }
}

function noteOf(isChecked: boolean): string {
  return isChecked
    ? "These are the sizes that the dry run of this draft came to."
    : "These are the editor's own sizes: the dry run before the cut may correct them.";
}
