// Two pages and Python at one draft: whatever the order in which they hear of each other, they come to the same.

import { describe, expect, it } from "vitest";
import { brush, draftOf, dropped, type FakeChannel, known, openSession } from "../../testing/masks";

/** A kernel that takes drawings as the real one does, with pages that hear of it in order. */
class Kernel {
  revision = 0;
  private by = "";
  private since = -1;
  private state: Record<string, unknown> = known(0, {});
  private readonly queue: (() => void)[] = [];
  private readonly seen = new Map<FakeChannel, number>();

  constructor(private readonly pages: readonly ReturnType<typeof openSession>[]) {}

  /** Takes what one page has sent; a busy kernel only hears the latest. */
  hear({ channel }: { channel: FakeChannel }, isBusy = false): void {
    const sent = channel.sent.filter(({ content }) => content.type === "draw");
    const waiting = sent.slice(this.seen.get(channel) ?? 0);
    this.seen.set(channel, sent.length);
    for (const { content } of isBusy ? waiting.slice(-1) : waiting) {
      const isNext = content.by === this.by && (content.base as number) >= this.since;
      if (!isNext && content.base !== this.revision) this.tell();
      else {
        if (!isNext) this.since = this.revision;
        this.by = String(content.by);
        this.put({ ...content, revision: this.revision + 1 });
      }
    }
  }

  put(state: Record<string, unknown>): void {
    this.revision = Number(state.revision);
    this.state = state;
    if (!state.by) this.by = "";
    this.tell();
  }

  deliver(count: number): void {
    for (const act of this.queue.splice(0, count)) act();
  }

  private tell(): void {
    const { state } = this;
    for (const { session } of this.pages)
      this.queue.push(() => {
        if (session.setDraft(state)) session.settle();
      });
  }

  get goes(): Record<string, number[]> {
    return draftOf({ content: this.state });
  }
}

describe("two pages and Python", () => {
  it.each(Array.from({ length: 200 }, (_, seed) => seed + 1))("come to the same draft, run %i", seed => {
    let state = seed;
    const random = (end: number) => {
      state = (state * 1103515245 + 12345) % 2147483648;
      return Math.floor((state / 2147483648) * end);
    };
    const pages = [openSession(), openSession()];
    const kernel = new Kernel(pages);
    const wanted = [new Set<number>(), new Set<number>()]; // each page drops indices of its own
    for (let turn = 0; turn < 40; turn += 1) {
      const page = random(2);
      const index = 2 * random(5) + page;
      const act = random(8);
      if (act < 3) {
        const goes = !wanted[page].delete(index);
        if (goes) wanted[page].add(index);
        brush(pages[page].session, 1, [index], goes);
      } else if (act < 5) kernel.hear(pages[page], random(2) === 0);
      else if (act < 6) kernel.put({ ...known(kernel.revision + 1, { ...kernel.goes, 0: [1 << random(3)] }) });
      else kernel.deliver(random(4));
    }
    for (let turn = 0; turn < 20; turn += 1) {
      pages.forEach(page => kernel.hear(page));
      kernel.deliver(99);
    }
    const all = [...wanted[0], ...wanted[1]].sort((a, b) => a - b);
    for (const { session } of pages) expect([dropped(session)[1], session.data?.draft.isKnown]).toEqual([all, true]);
    expect(dropped(pages[0].session)).toEqual(dropped(pages[1].session));
  });
});
