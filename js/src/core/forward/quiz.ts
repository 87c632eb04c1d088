// The quiz: shapes are hidden until they are guessed or shown; each step's value is asked once.

import type { Forward, Step, TensorShape } from "./payload";
import type { ForwardStore } from "./state";
import * as words from "../words/forward";

type Verdict = { readonly right: boolean; readonly text: string };

/** Which values were found out; shared by all views of one widget. */
export class RevealedShapes {
  private readonly known = new Set<number>(); // values whose shape is shown
  private readonly asked = new Set<number>(); // values that have been counted
  private readonly listeners = new Set<() => void>();
  private run: number | null = null;

  /** Another run has other values. */
  start(run: number): void {
    if (this.run === run) return;
    this.run = run;
    this.clear();
  }

  clear(): void {
    this.known.clear();
    this.asked.clear();
    this.listeners.forEach(listener => listener());
  }

  has(value: number): boolean {
    return this.known.has(value);
  }

  /** Take a value as asked; false when it was before. */
  ask(value: number): boolean {
    const isNew = !this.asked.has(value);
    this.asked.add(value);
    return isNew;
  }

  show(value: number): void {
    this.known.add(value);
    this.listeners.forEach(listener => listener());
  }

  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}

export class Quiz {
  constructor(
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly found: RevealedShapes
  ) {
    found.start(forward.run);
  }

  /** Whether the shape of what the step gives may be seen. */
  showsOutput({ value }: Step): boolean {
    return value === null || this.shows(value);
  }

  /** Whether the shapes of what the step takes may be seen. */
  showsInput({ sources }: Step): boolean {
    return sources.every(value => this.shows(value));
  }

  private shows(value: number): boolean {
    if (!this.store.get("hideShapes") || this.found.has(value)) return true;
    if (this.forward.isGiven(value)) return false;
    // what comes of code between modules cannot be asked: it is shown with the module before it
    const before = this.forward.givenBefore(value);
    return before === undefined || this.found.has(before);
  }

  /** Judge a guess; the first one of each value counts. Null when it is no shape. */
  guess(step: Step, text: string): Verdict | null {
    const sizes = parseShape(text);
    if (sizes === null || step.value === null) return null;
    const right = isSame(sizes, step.outputs[0][1]);
    this.count(step.value, right);
    if (right) this.found.show(step.value);
    return { right, text: right ? words.RIGHT : hint(sizes, step.outputs[0]) };
  }

  /** Show the answer; without a guess before, it counts as one that was not right. */
  giveUp({ value }: Step): void {
    if (value === null) return;
    this.count(value, false);
    this.found.show(value);
  }

  restart(): void {
    this.found.clear();
    this.store.set("quiz", { asked: 0, right: 0 });
  }

  private count(value: number, right: boolean): void {
    if (!this.found.ask(value)) return;
    const { asked, right: before } = this.store.get("quiz");
    this.store.set("quiz", { asked: asked + 1, right: before + (right ? 1 : 0) });
  }
}

/** The sizes in "1, 64, 56, 56", "(1×64)" or "[3]"; "()" and "scalar" have none. Null when it is no shape. */
export function parseShape(text: string): readonly number[] | null {
  const trimmed = text
    .trim()
    .replace(/^(torch\.)?size/i, "")
    .trim();
  if (/^(\(\s*\)|\[\s*\]|scalar)$/i.test(trimmed)) return [];
  if (!/^[([\s]*\d+(\s*[,x×*;\s]\s*\d+)*[,\s]*[)\]\s]*$/i.test(trimmed)) return null;
  const sizes = (trimmed.match(/\d+/g) ?? []).map(Number);
  return sizes.every(Number.isSafeInteger) ? sizes : null;
}

function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((size, i) => size === b[i]);
}

function hint(sizes: readonly number[], [, answer]: TensorShape): string {
  if (sizes.length !== answer.length) return words.OTHER_DIMENSIONS;
  return words.sizesRight(sizes.filter((size, i) => size === answer[i]).length, answer.length);
}
