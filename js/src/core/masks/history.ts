// Steps that can be taken back and made again: of each the bits that it changed, so that edits from elsewhere stay.

import type { Patch } from "./draft";

export interface Step {
  readonly id: string; // of the edit that was sent
  readonly parts: readonly Part[];
}

export interface Part {
  readonly axis: number;
  readonly start: number;
  readonly mask: Uint8Array; // the bits that changed
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const MOST_STEPS = 500;

export function stepOf(id: string, patches: readonly Patch[]): Step {
  const parts = patches.map(({ axis, start, before, after }) => ({
    axis,
    start,
    mask: before.map((old, at) => old ^ after[at]),
    before,
    after
  }));
  return { id, parts };
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

  /** The next step was taken back, or made again, by the edit `id`. */
  move(way: "undo" | "redo", id: string): void {
    const [from, to] = way === "undo" ? [this.done, this.undone] : [this.undone, this.done];
    const step = from.pop();
    if (step) to.push({ ...step, id });
  }

  /** The kernel did not take the edit. */
  drop(id: string): void {
    this.done = this.done.filter(step => step.id !== id);
    this.undone = this.undone.filter(step => step.id !== id);
  }
}
