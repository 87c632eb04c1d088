// What the last button did, beside the buttons: a lost kernel first, then what is waited for, then the latest notice.

import { button, Disposers, el, listen } from "../shared/dom";
import { icon } from "../shared/icons";
import { DISCONNECTED } from "../shared/status";
import type { Scene } from "./scene";
import type { Action } from "./session";

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
    private readonly scene: Scene
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
