// From messages to series: applies what comes, confirms it, and asks for everything when something was missed.

import { decodeUpdate } from "./decode";
import type { MetricData } from "./metric_data";

/** The way to the kernel. */
export interface Channel {
  readonly isLive: boolean;
  send(content: { kind: "ack"; seq: number } | { kind: "resync" }): void;
}

export class Feed {
  private seq = 0;
  private waiting = false; // everything is needed and has not come yet

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
    this.data.apply(update);
    if (this.channel.isLive) this.channel.send({ kind: "ack", seq: update.seq });
  }

  /** A view is there to show the values: without any, they are asked for. */
  wake(): void {
    if (this.data.isEmpty) this.ask();
  }

  /** The kernel answers (again): what was asked for in vain, or could not be asked, is asked for now. */
  revive(): void {
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
