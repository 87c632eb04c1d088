// From messages to series: applies what comes, confirms it, and asks for everything when something was missed.

import { decodeUpdate } from "./decode";
import type { MetricData } from "./metric_data";

// ms; not every kernel tells when it has dealt with a message
const LONGEST_WAIT = 10_000;

/** The way to the kernel. */
export interface Channel {
  readonly isLive: boolean;
  /** `taken` is called once the kernel has dealt with the message. */
  send(content: { kind: "ack"; seq: number } | { kind: "resync" }, taken?: () => void): void;
}

export class Feed {
  private seq = 0;
  private waiting = false; // everything is needed and has not come yet
  private hasBegun = false; // the first message came, or one with everything
  private acked = 0; // the last message that was confirmed
  private ackedAt: number | null = null; // when, while the kernel has not dealt with it

  constructor(
    readonly data: MetricData,
    private readonly channel: Channel
  ) {}

  receive(content: unknown, buffers: unknown): void {
    const update = decodeUpdate(content, buffers);
    if (!update) return;
    if (update.reset) this.waiting = false;
    else if (update.seq !== this.seq + 1) this.ask();
    if (!update.reset && update.seq <= this.seq) return; // was applied already
    this.seq = update.seq;
    this.hasBegun ||= update.reset || update.seq === 1;
    this.data.apply(update);
    this.confirm();
  }

  /** One confirmation at a time: a busy kernel would find thousands of them before its next cell. */
  private confirm(): void {
    if (!this.hasBegun) return; // a page that came late: the kernel would think that it has what came before
    const isOpen = this.ackedAt !== null && performance.now() - this.ackedAt < LONGEST_WAIT;
    if (isOpen || this.acked === this.seq || !this.channel.isLive) return;
    const began = performance.now();
    this.acked = this.seq;
    this.ackedAt = began;
    this.channel.send({ kind: "ack", seq: this.seq }, () => {
      if (this.ackedAt !== began) return;
      this.ackedAt = null;
      this.confirm();
    });
  }

  /** A view is there to show the values: without any, they are asked for. */
  wake(): void {
    if (this.data.isEmpty) this.ask();
  }

  /** The kernel answers (again): what was asked for in vain, or could not be asked, is asked for now. */
  revive(): void {
    this.ackedAt = null;
    if (!this.waiting) return;
    this.waiting = false;
    this.ask();
  }

  private ask(): void {
    if (this.waiting) return;
    this.waiting = true;
    if (this.channel.isLive) this.channel.send({ kind: "resync" });
  }
}
