// Details of the current step: shapes (or the quiz about them), statistics, and the largest outputs.

import { button, el, listen, nameSpan, Part } from "../shared/ui/dom";
import { exactNumber, shortNumber } from "../shared/base/format";
import { type Figures, type Forward, shapesText, type Step, type TensorShape, toNum, type Top } from "./payload";
import type { RevealedShapes, Quiz } from "./quiz";
import type { ForwardStore } from "./state";
import * as words from "../words/forward";

export class Details extends Part {
  private readonly facts = el("dl", "mkg-facts");
  private readonly question = el("div", "mkg-forward-question");
  private readonly guess = el("input", "mkg-forward-guess");
  private readonly verdict = el("div", "mkg-forward-verdict");
  private readonly figures = el("dl", "mkg-forward-figures");
  private readonly note = el("p", "mkg-panel-note");
  private readonly head = el("div", "mkg-panel-head");
  private readonly broken = el("div", "mkg-marks mkg-forward-error");
  private shown = -1;

  constructor(
    host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz,
    found: RevealedShapes
  ) {
    super(host);
    this.verdict.setAttribute("role", "status");
    this.guess.type = "text";
    this.guess.placeholder = words.PLACEHOLDER;
    this.guess.autocomplete = "off";
    this.guess.spellcheck = false;
    const ask = button("mkg-button mkg-forward-check-guess", words.CHECK);
    const show = button("mkg-button mkg-forward-show", words.SHOW);
    show.title = words.SHOW_TITLE;
    this.buildQuestion(ask, show);
    host.append(this.head, this.broken, this.facts, this.question, this.verdict, this.figures, this.note);
    this.disposers.add(
      listen(ask, "click", () => this.check()),
      listen(show, "click", () => this.giveUp()),
      listen(this.guess, "keydown", event => {
        if (event.key === "Enter") this.check();
      }),
      store.on("step", () => this.show()),
      store.on("hideShapes", () => {
        this.verdict.textContent = "";
        this.show();
      }),
      found.onChange(() => this.show())
    );
    this.show();
  }

  private buildQuestion(ask: HTMLElement, show: HTMLElement): void {
    const label = el("label", "mkg-forward-ask");
    label.append(el("span", "", words.QUESTION), this.guess);
    const buttons = el("span", "mkg-forward-answers");
    buttons.append(ask, show);
    this.question.append(label, buttons);
  }

  private check(): void {
    const verdict = this.quiz.guess(this.step(), this.guess.value);
    const text = verdict ? verdict.text : words.NO_SHAPE;
    this.verdict.textContent = verdict?.right ? `${text} ${shapesText(this.step().outputs)}` : text;
    this.verdict.dataset.mkgRight = verdict ? String(verdict.right) : "";
    this.guess.setAttribute("aria-invalid", String(verdict === null));
  }

  private giveUp(): void {
    this.quiz.giveUp(this.step());
    this.verdict.textContent = words.answer(shapesText(this.step().outputs));
    this.verdict.dataset.mkgRight = "";
  }

  private step(): Step {
    return this.forward.step(this.store.get("step"));
  }

  private show(): void {
    const { forward } = this;
    if (!forward.size) {
      this.head.textContent = forward.error ?? words.NO_CALLS;
      for (const part of [this.broken, this.facts, this.question, this.figures]) part.hidden = true;
      return;
    }
    const step = this.step();
    if (step.index !== this.shown) {
      this.shown = step.index;
      this.guess.value = this.verdict.textContent = "";
      this.guess.removeAttribute("aria-invalid");
    }
    this.showHead(step);
    const isOpen = this.quiz.showsOutput(step);
    this.showShapes(step, isOpen);
    this.question.hidden = isOpen;
    this.showFigures(step.figures, isOpen);
  }

  private showHead(step: Step): void {
    this.host.dataset.mkgPath = step.path;
    this.head.replaceChildren(
      nameSpan("mkg-panel-class", step.className),
      nameSpan("mkg-forward-path mkg-code", step.path || words.WHOLE_MODEL)
    );
    this.broken.hidden = step.error === null;
    if (step.error === null) return;
    const isInnermost = step.index === this.forward.failed;
    this.broken.replaceChildren(
      el("strong", "", isInnermost ? words.FAILED_HERE : words.RAISED_HERE),
      nameSpan("", step.error)
    );
  }

  private showShapes(step: Step, isOpen: boolean): void {
    this.facts.replaceChildren();
    const inputs = this.quiz.showsInput(step) ? step.inputs : null;
    this.fact(words.INPUT, ...shapeSpans(inputs, words.ANSWER_PREVIOUS));
    const several = step.outputs.length > 1 ? words.firstOf(step.outputs.length) : "";
    this.fact(words.OUTPUT, ...shapeSpans(isOpen ? step.outputs : null, several));
  }

  private fact(term: string, ...values: Node[]): void {
    const value = el("dd");
    value.append(...values);
    this.facts.append(el("dt", "", term), value);
  }

  /** How many elements there are would give a hidden shape away. */
  private showFigures(figures: Figures | null, isOpen: boolean): void {
    this.figures.replaceChildren();
    this.figures.hidden = figures === null;
    this.note.textContent = figures === null && this.step().outputs.length ? words.NO_FIGURES : "";
    this.note.hidden = this.note.textContent === "";
    if (!figures) return;
    const [min, max, mean, std, zeros, nonFinite, count] = figures;
    const rows: [string, string][] = [
      [words.RANGE, `${short(min)} … ${short(max)}`],
      [words.MEAN, short(mean)],
      [words.STD, short(std)],
      [words.ZEROS, `${shortNumber(Math.round(1000 * toNum(zeros)) / 10)} %`],
      ...(nonFinite === 0 ? [] : [[words.NOT_FINITE, exactNumber(nonFinite)] as [string, string]]),
      ...(isOpen ? [[words.ELEMENTS, exactNumber(count)] as [string, string]] : [])
    ];
    for (const [term, text] of rows) {
      const pair = el("div", term === words.NOT_FINITE ? "mkg-forward-not-finite" : "");
      pair.append(el("dt", "", term), el("dd", "", text));
      this.figures.append(pair);
    }
  }
}

function short(value: number | string): string {
  return shortNumber(toNum(value));
}

function shapeSpans(shapes: readonly TensorShape[] | null, note = ""): HTMLElement[] {
  if (shapes === null) return [el("span", "mkg-forward-hidden", "?"), el("span", "mkg-dim", note)];
  if (!shapes.length) return [el("span", "mkg-dim", words.NO_TENSOR)];
  return shapes.map(([name, sizes, dtype]) => {
    const line = el("span", "mkg-forward-tensor");
    if (shapes.length > 1) line.append(nameSpan("mkg-dim mkg-code", `${name} `));
    const text = sizes.length ? sizes.join("×") : words.SCALAR;
    line.append(el("span", "mkg-code", text), " ", el("span", "mkg-dim", dtype));
    return line;
  });
}

/** The largest outputs as lines with a bar each: of their percentages, else from zero to each value. */
export function topList(top: Top): HTMLElement {
  const [kind, entries] = top;
  const list = el("ol", "mkg-forward-top");
  const values = entries.map(([, value]) => toNum(value));
  const spans = entries.some(([, , share]) => share !== null)
    ? entries.map(([, , share]): Span => [0, toNum(share ?? 0)])
    : fromZero(values);
  entries.forEach(([index, value, share], at) => {
    const line = el("li");
    const bar = el("span", "mkg-forward-bar");
    const [start, width] = spans[at].map(part => `${Math.round(1000 * part) / 10}%`);
    bar.style.width = width;
    bar.style.marginInlineStart = start;
    const percent = share === null ? "" : ` · ${shortNumber(Math.round(1000 * toNum(share)) / 10)} %`;
    const rail = el("span", "mkg-forward-rail");
    rail.append(bar);
    line.append(el("span", "mkg-forward-which", placeText(kind, index)), rail);
    line.append(el("span", "mkg-forward-value", short(value) + percent));
    list.append(line);
  });
  return list;
}

type Span = [start: number, width: number]; // as parts of the whole

/** Where the bars of values lie that have one zero; an infinite one goes to the end. */
function fromZero(values: readonly number[]): Span[] {
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(0, ...finite), Math.max(0, ...finite)];
  const size = high - low || 1;
  const place = (value: number) => Math.min(1, Math.max(0, (value - low) / size));
  return values.map(value => {
    const ends = [place(0), value === Infinity ? 1 : place(value)];
    return [Math.min(...ends), Math.abs(ends[1] - ends[0])];
  });
}

function placeText(kind: Top[0], index: readonly number[]): string {
  if (kind === "class") return words.classAt(index[0]);
  if (kind === "channel") return words.channelAt(index[0], index.slice(1).join(", "));
  return words.elementAt(index.join(", "));
}
