// The forward player: controls, the list of steps, and what is known of the current one.

import "../../../style/forward_player.css";
import "../../../style/forward_details.css";
import {
  Disposers,
  el,
  listen,
  button,
  Debounced,
  option,
  setAttribute,
  nameSpan,
  type IconName,
  icon,
  Part,
  setRole,
  iconButton,
  box,
  field,
  checkbox
} from "../shared/ui/dom";
import { shortNumber } from "../shared/base/format";
import { PayloadError } from "../shared/base/schema";
import { keepHeight, prepareHost } from "../shared/ui/widget_frame";
import { Clock, type ForwardStore, goTo, tieStepAndSelection, togglePlaying } from "./state";
import { Details } from "./details";
import { FeatureMaps } from "./feature_maps";
import type { MapsFeed } from "./maps_feed";
import { Forward, itemCount, shapesText, type Step } from "./payload";
import { type RevealedShapes, Quiz } from "./quiz";
import { addWindowButtons } from "../shared/ui/window_buttons";
import { familyColor } from "../shared/stage/theme";
import { VirtualList } from "../shared/ui/virtual_list";
import * as words from "../words/forward";
import { DISCONNECTED, NO_DATA } from "../words/shared";

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

export function createForwardPlayer(
  host: HTMLElement,
  raw: unknown,
  store: ForwardStore,
  shared: Shared
): ForwardPlayer {
  prepareHost(host, "forward-player");
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
    setRole(right, "region", words.CURRENT_STEP);
    main.append(left, right);
    this.line.append(this.status);
    this.status.setAttribute("role", "status");
    host.replaceChildren(bar, main, this.line);
    this.disposers.add(tieStepAndSelection(store, forward), keepHeight(main, "forward"));
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
      ...(error === null ? [] : [words.failed(error)]),
      ...(firstNotFinite === undefined ? [] : [notFiniteText(this.forward, firstNotFinite)]),
      ...(dropped ? [words.notListed(dropped)] : [])
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
  const name = (forward.path(first) || words.WHOLE_MODEL).slice(0, MAX_NAME_LENGTH);
  return words.firstNonFinite(name, forward.notFinite(first));
}

/** Whether the key belongs to the control or the scrolled part that has the focus. */
function hasKeysOfItsOwn({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.matches("input:not([type=checkbox]), select, textarea")) return true;
  if (target.matches("input[type=checkbox], button")) return key === " ";
  return target.matches(".mkg-forward-details") && key !== " " && !/^Arrow(Left|Right)$/.test(key);
}

// The line of controls on top: where in the pass, play and pause, speed, item of the batch, and the quiz.

const TYPING = 250; // ms
const SPEEDS: readonly number[] = [0.5, 1, 2, 5, 10, 20];

class Controls extends Part {
  private readonly slider = el("input", "mkg-forward-slider");
  private readonly place = el("span", "mkg-forward-place");
  private readonly play = button("mkg-button mkg-forward-play", "");
  private readonly speed = el("select", "mkg-forward-speed");
  private readonly sample = el("input", "mkg-forward-sample");
  private readonly typed = new Debounced(() => this.setSample(), TYPING);
  private readonly samples = el("span", "mkg-label");
  private readonly hide = el("input", "mkg-forward-hide");
  private readonly score = el("span", "mkg-forward-score");
  private readonly restart = button("mkg-link mkg-forward-restart", words.RESTART);
  private readonly buttons: Record<"first" | "back" | "next" | "last", HTMLButtonElement>;

  constructor(
    host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz
  ) {
    super(host);
    host.classList.add("mkg-forward-controls");
    setRole(host, "toolbar", words.CONTROLS);
    this.buttons = {
      first: this.mover("first", words.FIRST, () => 0),
      back: this.mover("back", words.BACK, step => step - 1),
      next: this.mover("next", words.NEXT, step => step + 1),
      last: this.mover("last", words.LAST, () => forward.size - 1)
    };
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.max = String(Math.max(0, forward.size - 1));
    this.slider.setAttribute("aria-label", words.STEP);
    this.sample.type = "number";
    this.sample.min = "1";
    this.sample.title = words.SAMPLE_TITLE;
    this.sample.dataset.mkgNeedsKernel = "";
    this.hide.type = "checkbox";
    this.build();
    this.listen();
    this.show();
  }

  override dispose(): void {
    this.typed.cancel();
    super.dispose();
  }

  private build(): void {
    const { first, back, next, last } = this.buttons;
    const moves = box("mkg-forward-moves", first, back, this.play, next, last);
    const quiz = box(
      "mkg-forward-quiz",
      checkbox("mkg-forward-check", this.hide, words.HIDE_SHAPES),
      this.score,
      this.restart
    );
    this.host.append(
      moves,
      box("mkg-forward-where", this.slider, this.place),
      field("mkg-forward-field", words.SPEED, this.speed),
      field("mkg-forward-field", words.SAMPLE, this.sample, this.samples),
      quiz
    );
    this.disposers.add(addWindowButtons(this.host));
  }

  private mover(name: IconName, title: string, to: (step: number) => number): HTMLButtonElement {
    const element = iconButton(`mkg-button mkg-forward-${name}`, name, title);
    this.disposers.add(
      listen(element, "click", () => {
        this.store.set("playing", false);
        goTo(this.store, this.forward, to(this.store.get("step")));
      })
    );
    return element;
  }

  private listen(): void {
    const { store, forward } = this;
    this.disposers.add(
      listen(this.play, "click", () => togglePlaying(store, forward)),
      listen(this.slider, "input", () => {
        store.set("playing", false);
        goTo(store, forward, Number(this.slider.value));
      }),
      listen(this.speed, "change", () => store.set("speed", Number(this.speed.value))),
      listen(this.sample, "input", () => this.typed.call()),
      listen(this.sample, "change", () => this.setSample()),
      listen(this.hide, "change", () => store.set("hideShapes", this.hide.checked)),
      listen(this.restart, "click", () => this.quiz.restart()),
      store.on(["step", "playing", "speed", "sample", "hideShapes", "quiz", "connected"], () => this.show())
    );
  }

  private setSample(): void {
    this.typed.cancel();
    const place = Number(this.sample.value); // from 1 on; "" is 0
    if (Number.isInteger(place) && place > 0) this.store.set("sample", Math.min(place, this.items()) - 1);
    this.show();
  }

  private items(): number {
    return this.forward.size ? Math.max(1, itemCount(this.forward.step(this.store.get("step")))) : 1;
  }

  private show(): void {
    const { store, forward } = this;
    const step = store.get("step");
    const [isFirst, isLast] = [step <= 0, step >= forward.size - 1];
    const { first, back, next, last } = this.buttons;
    // a disabled button would lose the focus of who presses it again and again
    for (const element of [first, back]) setAttribute(element, "aria-disabled", String(isFirst));
    for (const element of [next, last]) setAttribute(element, "aria-disabled", String(isLast));
    this.slider.value = String(step);
    this.slider.setAttribute("aria-valuetext", words.stepOf(step + 1, forward.size));
    this.place.textContent = words.stepOf(forward.size ? step + 1 : 0, forward.size);
    this.showPlaying(store.get("playing"));
    this.showSpeed(store.get("speed"));
    this.showItems();
    this.showQuiz();
  }

  private showPlaying(playing: boolean): void {
    const title = playing ? words.PAUSE : words.PLAY;
    if (this.play.getAttribute("aria-label") === title) return;
    this.play.setAttribute("aria-label", title);
    this.play.title = words.withSpaceKey(title);
    this.play.replaceChildren(icon(playing ? "pause" : "play"));
  }

  private showSpeed(speed: number): void {
    const speeds = SPEEDS.includes(speed) ? SPEEDS : [...SPEEDS, speed].sort((a, b) => a - b);
    if (this.speed.options.length !== speeds.length || this.speed.value !== String(speed))
      this.speed.replaceChildren(...speeds.map(one => option(String(one), words.perSecond(one))));
    this.speed.value = String(speed);
  }

  /** In the quiz the number of items is part of the answer. */
  private showItems(): void {
    const items = this.items();
    const isHidden = this.forward.size > 0 && !this.quiz.showsOutput(this.forward.step(this.store.get("step")));
    this.sample.max = isHidden ? "" : String(items);
    this.sample.value = String(this.store.get("sample") + 1);
    this.samples.textContent = isHidden || items === 1 ? "" : words.ofSamples(items);
    this.sample.disabled = !this.store.get("connected") || (items === 1 && !isHidden);
  }

  private showQuiz(): void {
    const { asked, right } = this.store.get("quiz");
    this.hide.checked = this.store.get("hideShapes");
    this.score.textContent = asked ? words.score(right, asked) : "";
    this.restart.hidden = asked === 0;
  }
}

// The steps as an indented list: what flows in stands on the line into each step. Only the rows in sight are in the page.

const ROW_HEIGHT = 44;
const OVERSCAN = 6;
const ASSUMED = 12; // rows in view of a list without a size
const INDENT = 12;
const MAX_INDENT = 10;
const HIDDEN = "?";
const MAX_TITLE_LENGTH = 400;

class StepList {
  readonly list = el("div", "mkg-forward-list");
  private readonly rows: VirtualList<number>;
  private readonly contents = new WeakMap<Element, string>(); // what was drawn last
  private readonly end = el("div", "mkg-forward-end");
  private readonly disposers = new Disposers();

  constructor(
    host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz,
    found: RevealedShapes
  ) {
    setRole(this.list, "listbox", words.STEPS);
    this.rows = new VirtualList(
      this.list,
      { rowHeight: ROW_HEIGHT, overscan: OVERSCAN, assumed: ASSUMED, below: 1 },
      {
        count: () => forward.size,
        key: index => index,
        make: index => this.newRow(index),
        draw: (element, index) => this.draw(element, index),
        active: () => store.get("step")
      }
    );
    const { space } = this.rows;
    space.className = "mkg-forward-space";
    space.setAttribute("role", "none");
    this.end.style.top = `${forward.size * ROW_HEIGHT}px`;
    this.end.setAttribute("aria-hidden", "true");
    space.append(this.end);
    host.append(this.list);
    this.disposers.add(
      listen(this.list, "click", event => this.clicked(event)),
      listen(this.list, "keydown", event => this.keyed(event)),
      store.on("step", () => this.follow()),
      store.on("hideShapes", () => this.render()),
      found.onChange(() => this.render())
    );
    this.follow();
  }

  dispose(): void {
    this.disposers.dispose();
    this.rows.dispose();
    this.list.remove();
  }

  /** Bring the step into view, two rows off the edge where there is room. */
  private follow(): void {
    this.rows.show(this.store.get("step"), 2);
    this.render();
  }

  private render(): void {
    this.rows.render();
    this.drawEnd();
  }

  private draw(element: HTMLElement, index: number): void {
    const isCurrent = index === this.store.get("step");
    setAttribute(element, "aria-selected", String(isCurrent));
    element.tabIndex = isCurrent ? 0 : -1;
    const step = this.forward.step(index);
    const edge = this.edgeText(step);
    if (edge === this.contents.get(element)) return;
    this.contents.set(element, edge);
    this.fill(element, step, edge);
  }

  private newRow(index: number): HTMLElement {
    const element = el("div", "mkg-forward-row");
    const { depth, path } = this.forward.step(index);
    element.setAttribute("role", "option");
    setAttribute(element, "aria-posinset", index + 1);
    setAttribute(element, "aria-setsize", this.forward.size);
    element.style.setProperty("--mkg-indent", `${Math.min(depth, MAX_INDENT) * INDENT}px`);
    element.dataset.mkgStep = String(index);
    element.dataset.mkgPath = path;
    return element;
  }

  private fill(element: HTMLElement, step: Step, edge: string): void {
    const name = step.path || words.WHOLE_MODEL;
    const line = el("span", "mkg-forward-edge");
    line.append(el("span", "mkg-forward-shape", edge));
    const head = el("span", "mkg-forward-module");
    const chip = el("span", "mkg-chip");
    chip.style.backgroundColor = familyColor(step.className, false);
    head.append(
      chip,
      nameSpan("mkg-row-name", this.forward.name(step.index)),
      nameSpan("mkg-row-class", step.className)
    );
    if (step.error !== null) head.append(el("span", "mkg-row-mark", "!"));
    const notFinite = this.forward.notFinite(step.index);
    if (notFinite > 0) head.append(el("span", "mkg-row-mark", words.nonFinite(shortNumber(notFinite))));
    const input = edge === HIDDEN ? words.INPUT_HIDDEN : words.input(edge);
    const broke = step.error === null ? "" : words.RAISED;
    const values = notFinite === 0 ? "" : words.nonFiniteOutputs(notFinite);
    setAttribute(element, "aria-label", `${name}, ${step.className}, ${input}${values}${broke}`);
    element.classList.toggle("mkg-is-broken", step.error !== null || notFinite > 0);
    element.title = [name, step.className].join("\n").slice(0, MAX_TITLE_LENGTH);
    element.replaceChildren(line, head);
  }

  private edgeText(step: Step): string {
    return this.quiz.showsInput(step) ? shapesText(step.inputs) : HIDDEN;
  }

  /** What the model returns flows out of the last step. */
  private drawEnd(): void {
    if (!this.forward.size) return;
    const root = this.forward.step(0);
    const shape = this.quiz.showsOutput(root) ? shapesText(root.outputs) : HIDDEN;
    const text = this.forward.error === null ? words.output(shape) : words.STOPPED;
    if (this.end.textContent === text) return;
    const line = el("span", "mkg-forward-edge");
    line.append(el("span", "mkg-forward-shape", text));
    this.end.replaceChildren(line);
  }

  private clicked(event: MouseEvent): void {
    const index = this.rows.keyAt(event.target);
    if (index === undefined) return;
    this.store.set("playing", false);
    this.store.set("step", index);
    this.rows.focus(index);
  }

  private keyed(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { page } = this.rows;
    const by = { PageDown: page, PageUp: -page }[event.key];
    if (by === undefined) return; // the other keys are those of the whole player
    goTo(this.store, this.forward, this.store.get("step") + by);
    event.preventDefault();
    event.stopPropagation();
  }
}
