// Steps that can be taken back and made again: of each the bits that it changed, so that what others draw stays.

import type { Patch } from "./draft";

export interface Step {
  readonly parts: readonly Part[];
}

export interface Part {
  readonly axis: number;
  readonly start: number;
  readonly changed: Uint8Array; // the bits that did
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const MOST_STEPS = 500;

export function stepOf(patches: readonly Patch[]): Step {
  const parts = patches.map(({ axis, start, before, after }) => ({
    axis,
    start,
    changed: before.map((old, at) => old ^ after[at]),
    before,
    after
  }));
  return { parts };
}

export class History {
  private done: Step[] = [];
  private undone: Step[] = [];

  get canUndo(): boolean {
    return this.done.length > 0;
  }

  get canRedo(): boolean {
    return this.undone.length > 0;
  }

  /** A new step: what was taken back before it cannot be made again. */
  add(step: Step): void {
    this.done.push(step);
    if (this.done.length > MOST_STEPS) this.done.shift();
    this.undone = [];
  }

  /** The step that is next to be taken back, or made again. */
  peek(way: "undo" | "redo"): Step | undefined {
    const steps = way === "undo" ? this.done : this.undone;
    return steps[steps.length - 1];
  }

  /** The next step was taken back, or made again. */
  move(way: "undo" | "redo"): void {
    const [from, to] = way === "undo" ? [this.done, this.undone] : [this.undone, this.done];
    const step = from.pop();
    if (step) to.push(step);
  }

  /** The latest steps are not in the draft any more, as `has` tells: nothing is left of them to take back. */
  drop(has: (step: Step) => boolean): void {
    while (this.done.length && !has(this.done[this.done.length - 1])) this.done.pop();
    this.undone = [];
  }
}
