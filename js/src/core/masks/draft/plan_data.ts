// Model of the mask editor: axes, blocks, scores, draft, history and counters of one payload.

import { BitTable, unpacked } from "./bit_table";
import { Blocks, Draft, entrySizes, History } from "./draft";
import { Counters } from "./counters";
import { type MaskPayload, readMasks } from "./payload";
import { readScores, Scores } from "./scores";

export interface Dropped {
  readonly indices: number;
  readonly axes: number; // that lose them
  readonly blocks: number;
}

export class PlanData {
  readonly draft: Draft;
  readonly history: History;
  readonly counters: Counters;
  readonly blocks: Blocks;
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
    this.blocks = new Blocks(payload);
    const sizes = entrySizes(payload);
    const bits = unpacked(drawn, new BitTable(sizes));
    const strongest = (axis: number) => this.scores?.order(axis)[size[axis] - 1] ?? 0;
    this.draft = new Draft(sizes, bits, entry => (entry === this.blocks.entry ? -1 : strongest(entry)));
    this.counters = new Counters(payload);
    this.count(sizes.keys());
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

  /** Whether an axis goes with a block, whatever is drawn on it. */
  isAway(axis: number): boolean {
    return this.blocks.takes(axis) >= 0;
  }

  /** How many indices go, of how many axes, and how many blocks; what goes with a block is not counted beside it. */
  dropped(): Dropped {
    const counts = this.axes.size.map((_, axis) => (this.isAway(axis) ? 0 : this.draft.dropped(axis)));
    const own = counts.filter(count => count > 0);
    const blocks = this.blocks.removed.length;
    return { indices: own.reduce((total, count) => total + count, 0), axes: own.length, blocks };
  }

  /** Whether the FLOPs that are left are: the dry run knows better. */
  get isApproximate(): boolean {
    const { removed, table } = this.blocks;
    return this.payload.approximate || removed.some(block => table.approximate[block]);
  }

  get isEmpty(): boolean {
    const { indices, blocks } = this.dropped();
    return indices + blocks === 0;
  }

  private count(entries: Iterable<number>): void {
    const { blocks, draft, counters } = this;
    const changed = [...entries];
    counters.update(changed.filter(entry => entry < blocks.entry).map(axis => [axis, draft.remaining(axis)] as const));
    if (!blocks.count || !changed.includes(blocks.entry)) return;
    blocks.follow(draft);
    counters.remove(blocks.gone);
  }
}

/** Raises `PayloadError`; bits that do not fit are taken as none. */
export function readPlan(payload: unknown, drawn: unknown, scores: unknown, isComparable = false): PlanData {
  return new PlanData(readMasks(payload), drawn, scores, undefined, isComparable);
}

/** The same axes and blocks under another payload: draft and history go on. Raises `PayloadError`; null for others. */
export function renewedPlan(
  former: PlanData,
  payload: unknown,
  scores: unknown,
  isComparable = false
): PlanData | null {
  const fresh = readMasks(payload);
  const { name, size } = fresh.axes;
  const isSame =
    name.join("\n") === former.axes.name.join("\n") &&
    size.join() === former.axes.size.join() &&
    fresh.blocks.path.join("\n") === former.blocks.table.path.join("\n");
  if (!isSame) return null;
  const renewed = new PlanData(fresh, former.draft.bits, scores, former.history, isComparable);
  renewed.draft.confirm(former.draft.known);
  return renewed;
}
