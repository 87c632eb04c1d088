// When a dry run is asked for: by the user at any time, by itself after a gesture while dry runs are quick.

import { Debounced } from "../shared/dom";

const CALM = 600; // ms without a gesture
const QUICK = 2000; // ms that a dry run may take to be repeated unasked

export class Checker {
  private startedAt: number | null = null;
  private took = 0; // ms, the last one
  private isStale = false; // drawn since the running one was asked for
  private readonly soon = new Debounced(() => this.start(), CALM);

  constructor(
    private readonly ask: () => boolean, // false: it could not be asked for
    private readonly changed: () => void
  ) {}

  get isRunning(): boolean {
    return this.startedAt !== null;
  }

  drawn(): void {
    this.isStale = true;
    if (this.took < QUICK && !this.isRunning) this.soon.call();
  }

  start(): void {
    this.soon.cancel();
    if (this.isRunning || !this.ask()) return;
    this.isStale = false;
    this.startedAt = performance.now();
    this.changed();
  }

  /** The dry run has come to an end, well or not. */
  ended(): void {
    if (this.startedAt === null) return;
    this.took = performance.now() - this.startedAt;
    this.startedAt = null;
    if (this.isStale) this.drawn();
    this.changed();
  }

  /** Nothing is waited for any more. */
  stop(): void {
    this.soon.cancel();
    if (this.startedAt === null) return;
    this.startedAt = null;
    this.changed();
  }
}
