// All that belongs to one payload: axes, scores, draft, history and counters.

import { BitTable } from "./bits";
import { Counters } from "./counters";
import { Draft } from "./draft";
import { unpacked } from "./drawing";
import { History } from "./history";
import { type MaskPayload, readMasks } from "./payload";
import { readScores, Scores } from "./scores";

export class PlanData {
  readonly draft: Draft;
  readonly history: History;
  readonly counters: Counters;
  readonly byName: ReadonlyMap<string, number>;
  scores: Scores | null = null; // none until the kernel has them
  increases: Scores | null = null; // of the loss without each index, where they are known

  constructor(
    readonly payload: MaskPayload,
    drawn: unknown,
    scores: unknown,
    history = new History(),
    isComparable = false
  ) {
    this.history = history;
    const { size, name } = payload.axes;
    this.byName = new Map(name.map((text, axis) => [text, axis]));
    this.setScores(scores, isComparable);
    const bits = unpacked(drawn, new BitTable(size));
    this.draft = new Draft(size, bits, axis => this.scores?.order(axis)[size[axis] - 1] ?? 0);
    this.counters = new Counters(payload);
    this.count(size.keys());
    this.draft.onChange(axes => this.count(axes));
  }

  get axes(): MaskPayload["axes"] {
    return this.payload.axes;
  }

  setScores(raw: unknown, isComparable = false): void {
    this.scores = this.numbers(raw, isComparable);
  }

  setIncreases(raw: unknown): void {
    this.increases = this.numbers(raw, true);
  }

  /** One for each index of all axes; null where there are none. */
  private numbers(raw: unknown, isComparable: boolean): Scores | null {
    const { size, weights } = this.payload.axes;
    const values = readScores(
      raw,
      size.reduce((total, own) => total + own, 0)
    );
    return values && new Scores(values, size, weights, isComparable);
  }

  isFree(axis: number): boolean {
    return this.axes.frozen[axis] < 0;
  }

  /** Why no index may go; null when the axis is free. */
  reason(axis: number): string | null {
    const at = this.axes.frozen[axis];
    return at < 0 ? null : this.axes.reasons[at];
  }

  /** How many indices go, and of how many axes. */
  dropped(): { indices: number; axes: number } {
    const counts = this.axes.size.map((_, axis) => this.draft.dropped(axis)).filter(count => count > 0);
    return { indices: counts.reduce((total, count) => total + count, 0), axes: counts.length };
  }

  private count(axes: Iterable<number>): void {
    this.counters.update(Array.from(axes, axis => [axis, this.draft.kept(axis)] as const));
  }
}

/** Raises `PayloadError`; bits that do not fit are taken as none. */
export function readPlan(payload: unknown, drawn: unknown, scores: unknown, isComparable = false): PlanData {
  return new PlanData(readMasks(payload), drawn, scores, undefined, isComparable);
}

/** The same axes under another payload: draft and history go on. Raises `PayloadError`; null for other axes. */
export function renewedPlan(
  former: PlanData,
  payload: unknown,
  scores: unknown,
  isComparable = false
): PlanData | null {
  const fresh = readMasks(payload);
  const { name, size } = fresh.axes;
  const isSame = name.join("\n") === former.axes.name.join("\n") && size.join() === former.axes.size.join();
  if (!isSame) return null;
  const renewed = new PlanData(fresh, former.draft.bits, scores, former.history, isComparable);
  renewed.draft.confirm(former.draft.known);
  return renewed;
}
