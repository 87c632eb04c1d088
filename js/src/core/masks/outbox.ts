// Edits on their way to the kernel: sent at once, kept until confirmed, sent again when they were lost.

import { type Draft, type Edit, packed } from "./draft";

/** The way to the kernel. */
export interface Channel {
  readonly isLive: boolean;
  /** `taken` is called once the kernel has dealt with the message. */
  send(content: Record<string, unknown>, buffers?: Uint8Array[], taken?: () => void): void;
}

const PATIENCE = 1500; // ms between the kernel's "idle" and its confirmation
const MOST_TRIES = 3;
const ORIGIN = Math.random().toString(36).slice(2, 10); // tells this page's edits from those of others
let count = 0;

export function newId(): string {
  count += 1;
  return `${ORIGIN}-${count}`;
}

export class Outbox {
  private readonly timers = new Set<ReturnType<typeof setTimeout>>();

  constructor(
    private readonly draft: Draft,
    private readonly channel: Channel,
    private readonly generation: number // of the axes: after a cut the same numbers are others
  ) {}

  post(edit: Edit): void {
    this.draft.send(edit);
    if (this.channel.isLive) this.transmit(edit, 1);
  }

  /** The kernel answers (again): what it has, and what it may have missed. */
  revive(): void {
    this.channel.send({ type: "sync" });
    for (const edit of this.draft.pending) this.transmit(edit, 1);
  }

  dispose(): void {
    this.timers.forEach(clearTimeout);
    this.timers.clear();
  }

  private transmit(edit: Edit, attempt: number): void {
    const { content, buffer } = packed(edit);
    this.channel.send({ ...content, generation: this.generation }, [buffer], () => this.expect(edit, attempt));
  }

  /** The kernel has dealt with the edit, so its confirmation is due. */
  private expect(edit: Edit, attempt: number): void {
    if (attempt >= MOST_TRIES || !this.isWaiting(edit)) return;
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      if (!this.isWaiting(edit) || !this.channel.isLive) return;
      this.channel.send({ type: "sync" });
      this.transmit(edit, attempt + 1);
    }, PATIENCE);
    this.timers.add(timer);
  }

  private isWaiting({ id }: Edit): boolean {
    return this.draft.pending.some(edit => edit.id === id);
  }
}
