// Linked explorers color their modules by the share of parameters that the draft drops, or that a cut has taken; this
// stays in the page.

import type { Uncut } from "../draft/counters";
import type { PlanData } from "../draft/plan_data";

/** The part of an explorer's model that is used. */
export interface LinkedGraph {
  get(name: string): unknown;
  /** Sets values that are never sent. */
  set_state(state: Record<string, unknown>): void;
}

const DELAY = 120; // ms: an explorer paints all its modules anew

export class GraphLink {
  private graphs: readonly LinkedGraph[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: (() => void) | undefined;

  constructor(
    private readonly dataOf: () => PlanData | null,
    private readonly uncutOf: () => Uncut = () => new Map()
  ) {}

  /** Other explorers, or another payload. */
  follow(graphs: readonly LinkedGraph[]): void {
    this.stop?.();
    this.graphs = graphs;
    this.stop = this.dataOf()?.draft.onChange(() => this.later());
    this.later();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.stop?.();
  }

  private later(): void {
    if (this.graphs.length) this.timer ??= setTimeout(() => this.tell(), DELAY);
  }

  private tell(): void {
    this.timer = undefined;
    const data = this.dataOf();
    if (!data) return;
    const uncut = this.uncutOf();
    const isPruned = !data.isEmpty || uncut.size > 0;
    const pruned = isPruned ? data.counters.shares(uncut) : {};
    for (const graph of this.graphs) {
      const isEmpty = Object.keys((graph.get("pruned") ?? {}) as object).length === 0;
      if (!isEmpty || isPruned) graph.set_state({ pruned });
    }
  }
}
