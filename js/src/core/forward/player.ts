// The whole player: controls, the list of steps, and what is known of the current one.

import "../../../style/forward_player.css";
import "../../../style/forward_details.css";
import { Disposers, el, listen } from "../shared/ui/dom";
import { captureKeys } from "../shared/ui/keys";
import { exactNumber } from "../shared/base/format";
import { PayloadError } from "../shared/base/schema";
import { DISCONNECTED } from "../shared/ui/status";
import { Clock, type ForwardStore, goTo, tieStepAndSelection, togglePlaying } from "./state";
import { Controls } from "./controls";
import { Details } from "./details";
import { FeatureMaps } from "./feature_maps";
import type { MapsFeed } from "./maps_feed";
import { Forward } from "./payload";
import { type RevealedShapes, Quiz } from "./quiz";
import { StepList } from "./step_list";

export interface ForwardPlayer {
  dispose(): void;
}

/** What all views of one widget share. */
interface Shared {
  readonly feed: MapsFeed;
  readonly found: RevealedShapes;
  mayTick(): boolean;
}

const MAX_NAME_LENGTH = 120;
const NO_DATA = "There is nothing to show yet: run the cell.";
let created = 0;

export function createForwardPlayer(
  host: HTMLElement,
  raw: unknown,
  store: ForwardStore,
  shared: Shared
): ForwardPlayer {
  host.classList.add("mkg-widget", "mkg-forward-player");
  host.dataset.mkgId ??= `forward-player-${++created}`;
  captureKeys(host);
  delete host.dataset.mkgReady;
  try {
    return new Player(host, new Forward(raw), store, shared);
  } catch (error) {
    explain(host, raw, error);
    return { dispose: () => host.replaceChildren() };
  }
}

/** An error with text of the user's would be shown as HTML elsewhere, so only fixed texts are shown here. */
function explain(host: HTMLElement, raw: unknown, error: unknown): void {
  const isEmpty = typeof raw === "object" && raw !== null && Object.keys(raw).length === 0;
  const text = error instanceof PayloadError && !isEmpty ? error.message : NO_DATA;
  const message = el("div", "mkg-message", text);
  message.setAttribute("role", "status");
  host.replaceChildren(message);
}

class Player implements ForwardPlayer {
  private readonly disposers = new Disposers();
  private readonly status = el("span", "mkg-status-text");
  private readonly line = el("div", "mkg-status mkg-forward-status");

  constructor(
    private readonly host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    shared: Shared
  ) {
    if (store.get("step") >= forward.size) store.set("step", 0);
    const quiz = new Quiz(forward, store, shared.found);
    const [bar, left, right] = [el("div", "mkg-bar"), el("div", "mkg-forward-steps"), el("div", "mkg-forward-details")];
    const [facts, maps] = [el("div", "mkg-forward-facts"), el("div", "mkg-forward-pictures")];
    const controls = el("div");
    const main = el("div", "mkg-forward-main");
    bar.append(controls);
    right.append(facts, maps);
    right.tabIndex = 0; // scrolls by keyboard
    right.setAttribute("role", "region");
    right.setAttribute("aria-label", "The current step");
    main.append(left, right);
    this.line.append(this.status);
    this.status.setAttribute("role", "status");
    host.replaceChildren(bar, main, this.line);
    this.disposers.add(tieStepAndSelection(store, forward));
    const parts = [
      new Controls(controls, forward, store, quiz),
      new StepList(left, forward, store, quiz, shared.found),
      new Details(facts, forward, store, quiz, shared.found),
      new FeatureMaps(maps, forward, store, quiz, shared.feed, shared.found),
      new Clock(forward, store, shared.mayTick)
    ];
    this.disposers.add(
      ...parts.map(part => () => part.dispose()),
      store.on("step", () => this.mark()),
      store.on("connected", () => this.followKernel()),
      listen(host, "keydown", event => this.keyed(event))
    );
    this.mark();
    this.followKernel();
    host.dataset.mkgReady = "true";
  }

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
    this.host.classList.remove("mkg-is-disconnected");
  }

  private mark(): void {
    this.host.dataset.mkgStep = String(this.store.get("step"));
  }

  private followKernel(): void {
    const connected = this.store.get("connected");
    const { error, dropped, firstNotFinite } = this.forward;
    const notes = [
      ...(connected ? [] : [DISCONNECTED]),
      ...(error === null ? [] : [`The forward pass raised ${error}`]),
      ...(firstNotFinite === undefined ? [] : [notFiniteText(this.forward, firstNotFinite)]),
      ...(dropped ? [`${dropped} further calls are not listed.`] : [])
    ];
    this.status.textContent = notes.join(" · ");
    this.line.hidden = notes.length === 0;
    this.line.classList.toggle("mkg-is-warning", !connected || error !== null || firstNotFinite !== undefined);
    this.host.classList.toggle("mkg-is-disconnected", !connected);
  }

  private keyed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || hasKeysOfItsOwn(event)) return;
    const { store, forward } = this;
    const step = store.get("step");
    const moves: Readonly<Record<string, () => number>> = {
      ArrowRight: () => step + 1,
      ArrowDown: () => step + 1,
      ArrowLeft: () => step - 1,
      ArrowUp: () => step - 1,
      Home: () => 0,
      End: () => forward.size - 1
    };
    const move = Object.prototype.hasOwnProperty.call(moves, event.key) ? moves[event.key] : undefined;
    if (event.key === " ") togglePlaying(store, forward);
    else if (!move) return;
    else {
      store.set("playing", false);
      goTo(store, forward, move());
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

function notFiniteText(forward: Forward, first: number): string {
  const name = (forward.path(first) || "The model").slice(0, MAX_NAME_LENGTH);
  return `${name} is the first to give values that are not finite: ${exactNumber(forward.notFinite(first))} of them`;
}

/** Whether the key belongs to the control or the scrolled part that has the focus. */
function hasKeysOfItsOwn({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.matches("input:not([type=checkbox]), select, textarea")) return true;
  if (target.matches("input[type=checkbox], button")) return key === " ";
  return target.matches(".mkg-forward-details") && key !== " " && !/^Arrow(Left|Right)$/.test(key);
}
