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

  constructor(
    readonly payload: MaskPayload,
    drawn: unknown,
    scores: unknown,
    history = new History()
  ) {
    this.history = history;
    const { size, name } = payload.axes;
    this.byName = new Map(name.map((text, axis) => [text, axis]));
    this.setScores(scores);
    const bits = unpacked(drawn, new BitTable(size));
    this.draft = new Draft(size, bits, axis => this.scores?.order(axis)[size[axis] - 1] ?? 0);
    this.counters = new Counters(payload);
    this.count(size.keys());
    this.draft.onChange(axes => this.count(axes));
  }

  get axes(): MaskPayload["axes"] {
    return this.payload.axes;
  }

  setScores(raw: unknown): void {
    const { size, weights } = this.payload.axes;
    const values = readScores(
      raw,
      size.reduce((total, own) => total + own, 0)
    );
    this.scores = values && new Scores(values, size, weights);
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
export function readPlan(payload: unknown, drawn: unknown, scores: unknown): PlanData {
  return new PlanData(readMasks(payload), drawn, scores);
}

/** The same axes under another payload: draft and history go on. Raises `PayloadError`; null for other axes. */
export function renewedPlan(former: PlanData, payload: unknown, scores: unknown): PlanData | null {
  const fresh = readMasks(payload);
  const { name, size } = fresh.axes;
  const isSame = name.join("\n") === former.axes.name.join("\n") && size.join() === former.axes.size.join();
  if (!isSame) return null;
  const renewed = new PlanData(fresh, former.draft.bits, scores, former.history);
  renewed.draft.confirm(former.draft.known);
  return renewed;
}
