// The lines beside the buttons: the latest notice, and the counters of parameters, FLOPs and bytes.

import { button, Disposers, el, listen } from "../../shared/ui/dom";
import { icon } from "../../shared/ui/icons";
import { DISCONNECTED } from "../../shared/ui/status";
import type { EditorContext } from "../session/editor_context";
import type { Action } from "../session/session";
import { exactNumber } from "../../shared/base/format";
import type { Amount } from "../draft/counters";
import { amountText, changeText, type Counter, COUNTERS, removalText } from "../draft/number_texts";

const WAITING: Readonly<Record<Action, string>> = {
  mask: "Waiting for the kernel to mask the model…",
  cut: "Waiting for the kernel to cut the model…",
  undo: "Waiting for the kernel to undo…",
  save: "Waiting for the kernel to save the plan…",
  load: "Waiting for the kernel to load the plan…",
  recalibrate: "Waiting for the kernel to recalibrate the model…",
  evaluate: "Waiting for the kernel to evaluate the model…"
};

export class MaskStatus {
  private readonly disposers = new Disposers();
  private readonly text = el("span", "mkg-status-text");
  private readonly close = button("mkg-icon-button mkg-close", "", "Dismiss");

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    host.classList.add("mkg-status", "mkg-mask-status");
    this.text.setAttribute("role", "status");
    this.close.setAttribute("aria-label", "Dismiss");
    this.close.append(icon("close"));
    host.append(this.text, this.close);
    this.disposers.add(
      scene.store.on("connected", () => this.draw()),
      scene.session.events.on(["status", "scores"], () => this.draw()),
      listen(this.close, "click", () => scene.session.say(""))
    );
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private draw(): void {
    const { store, session, data } = this.scene;
    const connected = store.get("connected");
    const parts = [
      connected ? "" : DISCONNECTED,
      connected && session.action ? WAITING[session.action] : "",
      data.scores ? "" : "The importances are not there yet.",
      session.notice
    ];
    const text = parts.filter(Boolean).join(" · ");
    if (this.text.textContent !== text) this.text.textContent = text;
    this.text.title = text; // a long one is cut off
    this.close.hidden = session.notice === "";
    this.host.classList.toggle("mkg-is-warning", !connected);
    this.host.classList.toggle("mkg-is-failed", session.isRefused && session.notice !== "");
  }
}

// Parameters, FLOPs and bytes, before and after, as the draft stands.

export class CounterLine {
  private readonly disposers = new Disposers();
  private readonly gauges: readonly Gauge[];
  private readonly dropped = el("div", "mkg-mask-dropped");

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    host.classList.add("mkg-mask-counters");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Size before and after");
    const [first = "", ...more] = scene.session.offers.inputs;
    const per = first && ` for an input of ${first}${more.length ? ` and ${more.length} more` : ""}`;
    this.gauges = COUNTERS.map(([counter, label]) => new Gauge(counter, label, counter === "flops" ? per : ""));
    host.append(...this.gauges.map(({ element }) => element), this.dropped);
    this.disposers.add(scene.data.draft.onChange(() => scene.frames.add(this.draw)));
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private readonly draw = (): void => {
    const totals = this.scene.data.counters.totals();
    const { isApproximate } = this.scene.data;
    for (const gauge of this.gauges) gauge.draw(totals[gauge.counter], gauge.counter === "flops" && isApproximate);
    const dropped = this.scene.data.dropped();
    const verb = dropped.indices + dropped.blocks === 1 ? "goes" : "go";
    const going = removalText(dropped);
    const text = going ? `${going} ${verb}` : "nothing goes yet";
    if (this.dropped.textContent !== text) this.dropped.textContent = this.dropped.title = text;
  };
}

class Gauge {
  readonly element = el("div", "mkg-mask-counter");
  private readonly amount = el("span", "mkg-mask-amount");
  private readonly change = el("span", "mkg-mask-change");
  private readonly bar = el("span", "mkg-mask-left");

  constructor(
    readonly counter: Counter,
    label: string,
    private readonly per: string
  ) {
    this.element.dataset.mkgCounter = counter;
    const line = el("div", "mkg-mask-counter-line");
    line.append(this.amount, this.change);
    const track = el("div", "mkg-mask-track");
    track.setAttribute("aria-hidden", "true");
    track.append(this.bar);
    this.element.append(el("div", "mkg-label", `${label}${per}`), line, track);
  }

  draw({ before, after }: Amount, isRough: boolean): void {
    const { counter } = this;
    const text = `${isRough ? "≈ " : ""}${amountText(counter, before)} → ${amountText(counter, after)}`;
    if (this.amount.textContent !== text) this.amount.textContent = text;
    this.change.textContent = changeText(before, after);
    this.element.title = `${exactNumber(before)} → ${exactNumber(after)}${this.per}`;
    this.element.dataset.mkgAfter = String(after);
    this.bar.style.width = `${before > 0 ? (100 * after) / before : 100}%`;
  }
}
