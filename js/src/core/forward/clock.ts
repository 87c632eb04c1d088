// Playing: one step after the other at the chosen speed, in the page alone.

import type { Forward } from "./payload";
import { type ForwardStore, goTo } from "./state";

const SLOWEST = 60_000; // ms between two steps

export class Clock {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly disposers: (() => void)[];

  /** Where several views show one widget, `mayTick` holds for one of them. */
  constructor(
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly mayTick: () => boolean
  ) {
    this.disposers = [store.on(["playing", "speed"], () => this.start())];
    this.start();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.disposers.forEach(dispose => dispose());
  }

  private start(): void {
    clearTimeout(this.timer);
    if (!this.store.get("playing")) return;
    this.timer = setTimeout(() => this.tick(), Math.min(SLOWEST, 1000 / this.store.get("speed")));
  }

  private tick(): void {
    const { store, forward } = this;
    if (this.mayTick()) {
      const next = store.get("step") + 1;
      if (next < forward.size) store.set("step", next);
      if (next >= forward.size - 1) store.set("playing", false);
    }
    this.start();
  }
}

/** Play or pause; at the end it begins anew. */
export function togglePlaying(store: ForwardStore, forward: Forward): void {
  if (!store.get("playing") && store.get("step") >= forward.size - 1) goTo(store, forward, 0);
  store.set("playing", !store.get("playing") && forward.size > 1);
}
