// The frame of a widget: its host element, its status line, the notice that its model has changed, and the text in place of
// what cannot be read or drawn.

import { button, el, listen, onResize, setAttribute, Part, iconButton, type Disposer } from "./dom";
import { captureKeys } from "./keys";
import { PayloadError } from "../base/schema";
import { remember, remembered } from "../base/settings";
import * as words from "../../words/shared";

export { DISCONNECTED } from "../../words/shared";

interface StatusStore {
  get(key: "connected"): boolean;
  get(key: "notice"): string;
  set(key: "notice", text: string): void;
  on(keys: readonly ("connected" | "notice")[], listener: () => void): () => void;
}

export class StatusLine extends Part {
  private readonly text = el("span", "mkg-status-text");
  private readonly close = iconButton("mkg-icon-button mkg-close", "close", words.DISMISS);

  /** `counts`: of what is drawn, which are not read out when they change. */
  constructor(
    host: HTMLElement,
    private readonly store: StatusStore,
    counts?: HTMLElement
  ) {
    super(host);
    host.classList.add("mkg-status");
    (counts ? this.text : host).setAttribute("role", "status");
    host.append(this.text, ...(counts ? [counts] : []), this.close);
    this.disposers.add(
      store.on(["connected", "notice"], () => this.render()),
      listen(this.close, "click", () => store.set("notice", ""))
    );
    this.render();
  }

  private render(): void {
    const connected = this.store.get("connected");
    const notice = this.store.get("notice");
    this.text.textContent = [connected ? "" : words.DISCONNECTED, notice].filter(Boolean).join(" · ");
    this.close.hidden = notice === "";
    this.host.classList.toggle("mkg-is-warning", !connected);
  }
}

// A line above a widget whose model has changed since it was drawn, with a button that shows it as it is; while the kernel
// does that, its progress and a button that cancels.

export class OutdatedNotice {
  private readonly element = el("div", "mkg-outdated");
  private readonly text = el("span");
  private readonly act = button("mkg-button", "");
  private isRunning = false;

  constructor(send: (kind: "refresh" | "cancel_refresh") => void) {
    this.element.setAttribute("role", "status");
    this.act.dataset.mkgNeedsKernel = "";
    this.act.addEventListener("click", () => {
      this.act.disabled = true; // until the kernel has answered
      send(this.isRunning ? "cancel_refresh" : "refresh");
    });
    this.element.append(this.text, this.act);
  }

  /** `outdated`: what has changed, `progress`: of a refresh that runs; with neither the line is taken away. */
  show(host: HTMLElement, outdated: string, progress: string, isConnected: boolean): void {
    const text = progress || outdated;
    const isRunning = progress !== "";
    this.text.textContent = text;
    // the button stays as a click has left it while the progress alone is another
    if (!isConnected || !isRunning || !this.isRunning) setAttribute(this.act, "disabled", isConnected ? null : "");
    this.isRunning = isRunning;
    this.act.textContent = isRunning ? words.CANCEL : words.REFRESH;
    this.act.title = isRunning ? words.CANCEL_REFRESH_TITLE : words.REFRESH_TITLE;
    if (text === "") this.element.remove();
    else if (this.element.parentElement !== host || host.firstChild !== this.element) host.prepend(this.element);
  }
}

const LOWEST = 200; // px

/** The height that the user gives an element at its corner, which the browser remembers for all of its kind. */
export function keepHeight(element: HTMLElement, kind: string): Disposer {
  const key = `${kind}:height`;
  const known = remembered(key);
  if (typeof known === "number") {
    element.style.setProperty("--mkg-height", `${Math.min(Math.max(known, LOWEST), 2 * innerHeight)}px`);
  }
  let last: string | undefined; // what a layout says, until the corner says otherwise
  return onResize(element, () => {
    const { height } = element.style;
    if (height !== (last ??= height) && height.endsWith("px")) remember(key, parseFloat(height));
    last = height;
  });
}

// A sentence in a widget's place, when there is nothing that can be drawn.

export function showMessage(host: HTMLElement, text: string): void {
  const message = el("div", "mkg-message", text);
  message.setAttribute("role", "alert");
  host.replaceChildren(message);
}

/** What `read` makes of the kernel's data; undefined, and a sentence on the page, when it cannot be read. */
export function readOrShowError<T>(host: HTMLElement, raw: unknown, read: (raw: unknown) => T): T | undefined {
  try {
    if (typeof raw === "object" && raw !== null && Object.keys(raw).length > 0) return read(raw);
    showMessage(host, words.NO_DATA);
  } catch (error) {
    showMessage(host, error instanceof PayloadError ? error.message : words.UNREADABLE);
  }
  return undefined;
}

// The element that a widget is in.

const created = new Map<string, number>(); // by the name of their kind

/** Makes an element the host of a widget, whose kind names its class and, where it has no id yet, its id. */
export function prepareHost(host: HTMLElement, kind: string): void {
  host.classList.add("mkg-widget", `mkg-${kind}`);
  if (host.dataset.mkgId === undefined) {
    const number = (created.get(kind) ?? 0) + 1;
    created.set(kind, number);
    host.dataset.mkgId = `${kind}-${number}`;
  }
  captureKeys(host);
  delete host.dataset.mkgReady;
}

/** `marks`: of the data that a widget of this kind leaves on its host, beside that it is ready. */
export function clearHost(host: HTMLElement, ...marks: readonly string[]): void {
  host.replaceChildren();
  host.classList.remove("mkg-is-disconnected");
  for (const mark of ["ready", ...marks]) host.removeAttribute(`data-mkg-${mark}`);
}

/** What `draw` makes; undefined, and a sentence on the page, when it fails. */
export function drawOrShowError<T>(host: HTMLElement, draw: () => T, problem: string): T | undefined {
  try {
    return draw();
  } catch (error) {
    console.error("modulekg-widgets", error); // not thrown on: its text would reach the page as HTML
    showMessage(host, problem);
    return undefined;
  }
}
