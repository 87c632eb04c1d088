// The line of controls on top: where in the pass, play and pause, speed, item of the batch, and the quiz.

import { button, Debounced, Disposers, el, listen, option, setAttribute } from "../shared/ui/dom";
import { addWindowButtons } from "../shared/ui/window_buttons";
import { type ForwardStore, goTo, togglePlaying } from "./state";
import { type IconName, icon } from "../shared/ui/icons";
import { type Forward, itemCount } from "./payload";
import type { Quiz } from "./quiz";

const TYPING = 250; // ms
const SPEEDS: readonly number[] = [0.5, 1, 2, 5, 10, 20];

export class Controls {
  private readonly disposers = new Disposers();
  private readonly slider = el("input", "mkg-forward-slider");
  private readonly place = el("span", "mkg-forward-place");
  private readonly play = button("mkg-button mkg-forward-play", "");
  private readonly speed = el("select", "mkg-forward-speed");
  private readonly sample = el("input", "mkg-forward-sample");
  private readonly typed = new Debounced(() => this.setSample(), TYPING);
  private readonly samples = el("span", "mkg-label");
  private readonly hide = el("input", "mkg-forward-hide");
  private readonly score = el("span", "mkg-forward-score");
  private readonly restart = button("mkg-link mkg-forward-restart", "Start again");
  private readonly buttons: Record<"first" | "back" | "next" | "last", HTMLButtonElement>;

  constructor(
    private readonly host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz
  ) {
    host.classList.add("mkg-forward-controls");
    host.setAttribute("role", "toolbar");
    host.setAttribute("aria-label", "Forward pass");
    this.buttons = {
      first: this.mover("first", "First step", () => 0),
      back: this.mover("back", "One step back", step => step - 1),
      next: this.mover("next", "Next step", step => step + 1),
      last: this.mover("last", "Last step", () => forward.size - 1)
    };
    this.slider.type = "range";
    this.slider.min = "0";
    this.slider.max = String(Math.max(0, forward.size - 1));
    this.slider.setAttribute("aria-label", "Step");
    this.sample.type = "number";
    this.sample.min = "0";
    this.sample.dataset.mkgNeedsKernel = "";
    this.hide.type = "checkbox";
    this.build();
    this.listen();
    this.show();
  }

  dispose(): void {
    this.typed.cancel();
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  private build(): void {
    const { first, back, next, last } = this.buttons;
    const moves = box("mkg-forward-moves", first, back, this.play, next, last);
    const quiz = box("mkg-forward-quiz", check(this.hide, "Hide shapes"), this.score, this.restart);
    this.host.append(
      moves,
      box("mkg-forward-where", this.slider, this.place),
      field("Speed", this.speed),
      field("Item", this.sample, this.samples),
      quiz
    );
    this.disposers.add(addWindowButtons(this.host));
  }

  private mover(name: IconName, title: string, to: (step: number) => number): HTMLButtonElement {
    const element = button(`mkg-button mkg-forward-${name}`, "", title);
    element.setAttribute("aria-label", title);
    element.append(icon(name));
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
    const item = Number(this.sample.value);
    if (this.sample.value !== "" && Number.isInteger(item) && item >= 0)
      this.store.set("sample", Math.min(item, this.items() - 1));
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
    this.slider.setAttribute("aria-valuetext", `step ${step + 1} of ${forward.size}`);
    this.place.textContent = `step ${forward.size ? step + 1 : 0} of ${forward.size}`;
    this.showPlaying(store.get("playing"));
    this.showSpeed(store.get("speed"));
    this.showItems();
    this.showQuiz();
  }

  private showPlaying(playing: boolean): void {
    const title = playing ? "Pause" : "Play";
    if (this.play.getAttribute("aria-label") === title) return;
    this.play.setAttribute("aria-label", title);
    this.play.title = `${title} (space)`;
    this.play.replaceChildren(icon(playing ? "pause" : "play"));
  }

  private showSpeed(speed: number): void {
    const speeds = SPEEDS.includes(speed) ? SPEEDS : [...SPEEDS, speed].sort((a, b) => a - b);
    if (this.speed.options.length !== speeds.length || this.speed.value !== String(speed))
      this.speed.replaceChildren(...speeds.map(one => option(String(one), `${one} / s`)));
    this.speed.value = String(speed);
  }

  /** In the quiz the number of items is part of the answer. */
  private showItems(): void {
    const items = this.items();
    const isHidden = this.forward.size > 0 && !this.quiz.showsOutput(this.forward.step(this.store.get("step")));
    this.sample.max = isHidden ? "" : String(items - 1);
    this.sample.value = String(this.store.get("sample"));
    this.samples.textContent = isHidden || items === 1 ? "" : `of 0–${items - 1}`;
    this.sample.disabled = !this.store.get("connected") || (items === 1 && !isHidden);
  }

  private showQuiz(): void {
    const { asked, right } = this.store.get("quiz");
    this.hide.checked = this.store.get("hideShapes");
    this.score.textContent = asked ? `${right} right of ${asked}` : "";
    this.restart.hidden = asked === 0;
  }
}

function box(className: string, ...children: HTMLElement[]): HTMLElement {
  const element = el("span", className);
  element.append(...children);
  return element;
}

function field(text: string, control: HTMLElement, after?: HTMLElement): HTMLElement {
  const label = el("label", "mkg-forward-field");
  label.append(el("span", "mkg-label", text), control);
  if (after) label.append(after);
  return label;
}

function check(control: HTMLInputElement, text: string): HTMLElement {
  const label = el("label", "mkg-forward-check");
  label.append(control, el("span", "", text));
  return label;
}
