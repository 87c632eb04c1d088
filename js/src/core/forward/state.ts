// The state of a player: step, selection and speed; and the clock that plays.

import { StateStore } from "../shared/base/state_store";
import type { Forward } from "./payload";

export interface ForwardState {
  step: number;
  selected: string | null; // dotted path
  playing: boolean;
  speed: number; // steps a second
  hideShapes: boolean;
  sample: number; // item of the batch
  page: number; // of the channels
  quiz: { readonly asked: number; readonly right: number };
  // The rest stays in the browser.
  large: number | null; // the map of the page that is shown large
  connected: boolean;
  busy: boolean; // the kernel runs a cell, or answers
}

function initialForwardState(): ForwardState {
  return {
    step: 0,
    selected: null,
    playing: false,
    speed: 2,
    hideShapes: false,
    sample: 0,
    page: 0,
    quiz: { asked: 0, right: 0 },
    large: null,
    connected: true,
    busy: false
  };
}

export class ForwardStore extends StateStore<ForwardState> {
  constructor(initial: Partial<ForwardState> = {}) {
    super({ ...initialForwardState(), ...initial });
  }
}

/** Keep the selection at the module of the step, and the step at a call of the selected module. */
export function tieStepAndSelection(store: ForwardStore, forward: Forward): () => void {
  const disposers = [
    store.on("step", () => {
      store.set("selected", forward.path(store.get("step")));
      store.set("page", 0);
      store.set("large", null);
    }),
    store.on("selected", () => {
      const path = store.get("selected");
      if (path === null || path === forward.path(store.get("step"))) return;
      const first = forward.first(path);
      if (first !== undefined) store.set("step", first);
    }),
    store.on(["sample", "page"], () => store.set("large", null))
  ];
  return () => disposers.forEach(dispose => dispose());
}

/** Go to a step; beyond the ends to the last one there is. */
export function goTo(store: ForwardStore, forward: Forward, step: number): void {
  store.set("step", Math.max(0, Math.min(step, forward.size - 1)));
}

// Playing: one step after the other at the chosen speed, in the page alone.

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
