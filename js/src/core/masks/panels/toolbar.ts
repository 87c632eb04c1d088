// The toolbar of the editor with its ratio of indices, its status line, and the counters of parameters, FLOPs and bytes.

import {
  box,
  button,
  Debounced,
  Disposers,
  el,
  listen,
  option,
  icon,
  Part,
  setRole,
  iconButton,
  field,
  setText
} from "../../shared/ui/dom";
import { ToolMenu } from "../../shared/ui/tool_menu";
import { addWindowButtons } from "../../shared/ui/window_buttons";
import type { Scope } from "../draft/scores";
import type { EditorContext } from "../session/editor_context";
import { exactNumber } from "../../shared/base/format";
import type { Amount } from "../draft/counters";
import { amountText, changeText, type Counter, COUNTERS, removalText } from "../draft/number_texts";
import * as words from "../../words/masks";
import { DISCONNECTED, DISMISS } from "../../words/shared";

const SEARCH_DELAY = 120; // ms without a key before a search runs
const SCOPES: readonly [Scope, string][] = [
  ["local", words.WITHIN_GROUPS],
  ["global", words.ACROSS_MODEL]
];

export class MaskToolbar extends Part {
  readonly ratio: RatioControl;
  private readonly importance = el("select", "mkg-mask-importance");
  private readonly scope = el("select", "mkg-mask-scope");
  private readonly undo = button("mkg-button mkg-mask-undo", "", `${words.UNDO} (Ctrl+Z)`);
  private readonly redo = button("mkg-button mkg-mask-redo", "", `${words.REDO} (Ctrl+Shift+Z)`);
  private readonly input = el("input");
  private readonly count = el("span", "mkg-search-count");
  private readonly typed = new Debounced(() => this.scene.store.set("query", this.input.value), SEARCH_DELAY);

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    super(host);
    const { data, store, session } = scene;
    host.classList.add("mkg-mask-toolbar");
    setRole(host, "toolbar", words.TOOLBAR);
    this.importance.dataset.mkgNeedsKernel = "";
    this.scope.title = words.COMPARE_TITLE;
    this.importance.setAttribute("aria-label", words.IMPORTANCE);
    this.scope.setAttribute("aria-label", words.COMPARE);
    this.importance.append(...this.importances(data.payload.importances));
    this.scope.append(...SCOPES.map(([value, text]) => option(value, text)));
    this.ratio = new RatioControl(scene);
    this.disposers.add(() => this.ratio.dispose());
    const menu = new ToolMenu(box("mkg-mask-tools", field("mkg-mask-field", words.COMPARE, this.scope), this.steps()));
    this.disposers.add(() => menu.dispose());
    host.append(
      field("mkg-mask-field mkg-mask-by", words.IMPORTANCE, this.importance),
      this.ratio.element,
      menu.element,
      this.searchBox()
    );
    this.disposers.add(addWindowButtons(host));
    this.disposers.add(
      listen(this.importance, "change", () => store.set("importance", this.importance.value)),
      listen(this.scope, "change", () => store.set("scope", this.scope.value as Scope)),
      listen(this.input, "input", () => this.typed.call()),
      listen(this.input, "keydown", event => this.searchKey(event)),
      store.on(["importance", "scope", "query"], () => this.show()),
      session.events.on("history", () => this.show())
    );
    this.show();
  }

  override dispose(): void {
    this.typed.cancel();
    super.dispose();
  }

  /** How many rows the search has left. */
  showCount(text: string): void {
    this.count.textContent = text;
  }

  focusSearch(): void {
    this.input.focus();
    this.input.select();
  }

  private importances(names: readonly string[]): HTMLOptionElement[] {
    const chosen = this.scene.store.get("importance");
    const every = names.includes(chosen) || chosen === "" ? names : [...names, chosen];
    return every.map(name => {
      const element = option(name, name);
      element.title = words.IMPORTANCES.get(name) ?? "";
      return element;
    });
  }

  private steps(): HTMLElement {
    const group = el("div", "mkg-buttons");
    for (const [element, name] of [
      [this.undo, "undo"],
      [this.redo, "redo"]
    ] as const) {
      element.append(icon(name));
      element.setAttribute("aria-label", name === "undo" ? words.UNDO : words.REDO);
      this.disposers.add(listen(element, "click", () => this.scene.session.step(name)));
      group.append(element);
    }
    return group;
  }

  private searchBox(): HTMLElement {
    const host = el("label", "mkg-search");
    this.input.type = "search";
    this.input.placeholder = words.SEARCH;
    this.input.title = words.FIND_TITLE;
    this.input.spellcheck = false;
    this.input.autocomplete = "off";
    this.input.setAttribute("aria-label", words.FIND);
    this.input.setAttribute("aria-keyshortcuts", "/");
    this.count.setAttribute("role", "status");
    host.append(icon("search"), this.input, this.count);
    return host;
  }

  private searchKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    event.stopPropagation(); // undo and the like are the field's own here
    if (event.key !== "Escape") return;
    this.input.value = "";
    this.typed.call();
    this.typed.flush();
    event.preventDefault();
  }

  private show(): void {
    const { store, data } = this.scene;
    this.importance.value = store.get("importance");
    const own = words.IMPORTANCES.get(this.importance.value);
    this.importance.title = own === undefined ? words.IMPORTANCE_TITLE : `${words.IMPORTANCE_TITLE}\n${own}`;
    this.scope.value = store.get("scope");
    const query = store.get("query");
    if (this.input !== this.input.ownerDocument.activeElement) this.input.value = query;
    this.undo.disabled = !data.history.canUndo;
    this.redo.disabled = !data.history.canRedo;
  }
}

// The share of all indices that goes: a slider with a number field, and a gesture while either is moved.

const GREATEST = 0.99;
const MAX_RATIOS = 200; // that are remembered: a slider passes by many

export class RatioControl {
  readonly element = el("div", "mkg-mask-field mkg-mask-ratio");
  private readonly disposers = new Disposers();
  private readonly slider = el("input", "mkg-mask-ratio-slider");
  private readonly field = el("input", "mkg-mask-ratio-field");
  private isOurs = false; // the draft is what the control last said
  private shown = ""; // in the field; a page tells of a change again when the field is left

  constructor(private readonly scene: EditorContext) {
    const { slider, field, element } = this;
    slider.type = "range";
    slider.max = String(GREATEST);
    slider.step = "0.01";
    field.type = "number";
    field.max = "0.999";
    field.step = "0.01";
    slider.min = field.min = "0";
    slider.title = words.RATIO_TITLE;
    slider.setAttribute("aria-label", words.RATIO_SLIDER);
    field.setAttribute("aria-label", words.RATIO_FIELD);
    element.append(el("span", "mkg-label", words.RATIO), slider, field);
    this.disposers.add(
      listen(slider, "input", () => this.preview(Number(slider.value))),
      listen(slider, "change", () => scene.session.commit()),
      listen(field, "change", () => this.typed()),
      scene.data.draft.onChange(() => this.scene.frames.add(this.follow)),
      scene.session.events.on("scores", () => this.enable()),
      scene.store.on("locked", () => this.enable())
    );
    this.enable();
    this.follow();
  }

  dispose(): void {
    this.disposers.dispose();
    this.element.remove();
  }

  get value(): number {
    return Number(this.slider.value);
  }

  get isPossible(): boolean {
    return !this.slider.disabled;
  }

  /** As one gesture. */
  set(ratio: number): void {
    if (!this.isPossible) return;
    this.preview(ratio);
    this.scene.session.commit();
  }

  /** Within a gesture; the field follows the slider. */
  private preview(ratio: number): void {
    const { session, store } = this.scene;
    session.begin();
    session.dropRatio(ratio, store.get("scope"));
    const { ratios } = session;
    ratios.delete(this.counts);
    ratios.set(this.counts, Number(ratio.toFixed(3)));
    for (const [first] of ratios) if (ratios.size > MAX_RATIOS) ratios.delete(first);
    this.show(ratio);
    this.isOurs = true;
  }

  private typed(): void {
    if (this.field.value === this.shown) return;
    const ratio = Number(this.field.value);
    const isWrong = this.field.value.trim() === "" || !(ratio >= 0 && ratio < 1);
    this.field.setAttribute("aria-invalid", String(isWrong));
    if (isWrong) return;
    this.set(ratio);
  }

  private enable(): void {
    const isPossible = this.scene.data.scores !== null && this.scene.session.ratioAxes().length > 0;
    this.slider.disabled = this.field.disabled = !isPossible;
  }

  /** How many indices of which sizes go, as text: the same ratio takes them again. */
  private get counts(): string {
    const { draft, axes } = this.scene.data;
    return this.scene.session
      .ratioAxes()
      .map(axis => `${draft.dropped(axis)}/${axes.size[axis]}`)
      .join();
  }

  /** After anybody else's change: the ratio that was chosen for what goes now, or else the share of it. */
  private readonly follow = (): void => {
    if (this.isOurs) {
      this.isOurs = false;
      return;
    }
    const chosen = this.scene.session.ratios.get(this.counts);
    if (chosen !== undefined) return this.show(chosen);
    const { draft, axes } = this.scene.data;
    const own = this.scene.session.ratioAxes();
    const total = own.reduce((sum, axis) => sum + axes.size[axis], 0);
    const gone = own.reduce((sum, axis) => sum + draft.dropped(axis), 0);
    this.show(total ? gone / total : 0);
  };

  private show(ratio: number): void {
    const text = String(Math.round(ratio * 1000) / 1000);
    this.slider.value = text;
    this.slider.setAttribute("aria-valuetext", `${Math.round(ratio * 1000) / 10} %`);
    if (this.field.value === "" || Number(this.field.value) !== Number(text)) this.field.value = text;
    this.shown = this.field.value;
    this.field.setAttribute("aria-invalid", "false");
  }
}

// The lines beside the buttons: the latest notice, and the counters of parameters, FLOPs and bytes.

export class MaskStatus extends Part {
  private readonly text = el("span", "mkg-status-text");
  private readonly close = iconButton("mkg-icon-button mkg-close", "close", DISMISS);

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    super(host);
    host.classList.add("mkg-status", "mkg-mask-status");
    this.text.setAttribute("role", "status");
    host.append(this.text, this.close);
    this.disposers.add(
      scene.store.on("connected", () => this.draw()),
      scene.session.events.on(["status", "scores"], () => this.draw()),
      listen(this.close, "click", () => scene.session.say(""))
    );
    this.draw();
  }

  private draw(): void {
    const { store, session, data } = this.scene;
    const connected = store.get("connected");
    const parts = [
      connected ? "" : DISCONNECTED,
      connected && session.action ? words.waitingFor(words.TASKS[session.action]) : "",
      data.scores ? "" : words.NO_SCORES,
      session.notice
    ];
    const text = parts.filter(Boolean).join(" · ");
    setText(this.text, text);
    this.text.title = text; // a long one is cut off
    this.close.hidden = session.notice === "";
    this.host.classList.toggle("mkg-is-warning", !connected);
    this.host.classList.toggle("mkg-is-failed", session.isRefused && session.notice !== "");
  }
}

// Parameters, FLOPs and bytes, before and after, as the draft stands.

export class CounterLine extends Part {
  private readonly gauges: readonly Gauge[];
  private readonly dropped = el("div", "mkg-mask-dropped");

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    super(host);
    host.classList.add("mkg-mask-counters");
    setRole(host, "group", words.SIZES);
    const [first = "", ...more] = scene.session.offers.inputs;
    const per = first && words.forInput(first, more.length);
    this.gauges = COUNTERS.map(([counter, label]) => new Gauge(counter, label, counter === "flops" ? per : ""));
    host.append(...this.gauges.map(({ element }) => element), this.dropped);
    const later = () => scene.frames.add(this.draw);
    this.disposers.add(scene.data.draft.onChange(later), scene.store.on("stage", later));
    this.draw();
  }

  private readonly draw = (): void => {
    const totals = this.scene.data.counters.totals();
    const { isApproximate } = this.scene.data;
    for (const gauge of this.gauges) gauge.draw(totals[gauge.counter], gauge.counter === "flops" && isApproximate);
    const removed = removalText(this.scene.data.dropped());
    const none = this.scene.store.get("stage") === "cut" ? words.NO_MORE_SELECTED : words.NONE_SELECTED;
    const text = removed ? words.removed(removed) : none;
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
    setText(this.amount, text);
    this.change.textContent = changeText(before, after);
    this.element.title = `${exactNumber(before)} → ${exactNumber(after)}${this.per}`;
    this.element.dataset.mkgAfter = String(after);
    this.bar.style.width = `${before > 0 ? (100 * after) / before : 100}%`;
  }
}
