import { describe, expect, it, vi } from "vitest";
import { message, numbers, type Parts } from "../../testing/metrics";
import { Feed } from "./feed";
import { MetricData } from "./metric_data";

function open(isLive = true) {
  const sent: object[] = [];
  const taken: (() => void)[] = [];
  const channel = {
    isLive,
    isBusy: false,
    send(content: object, done?: () => void) {
      sent.push(content);
      if (!done) return;
      if (channel.isBusy) taken.push(done);
      else done();
    }
  };
  const feed = new Feed(new MetricData(100), channel);
  const receive = (seq: number, parts: Parts = {}) => {
    const { content, buffers } = message(seq, parts);
    feed.receive(content, buffers);
  };
  return { feed, channel, sent, taken, receive };
}

const FIRST: Parts = { entries: numbers("WeightNorm", ["a"]), points: [[0, [[0, 1]]]] };
const RESYNC = { kind: "resync" };
const ack = (seq: number) => ({ kind: "ack", seq });

describe("Feed", () => {
  it("applies, then confirms", () => {
    const { feed, sent, receive } = open();
    const held: number[] = [];
    feed.data.onChange(() => held.push(sent.length));
    receive(1, FIRST);
    receive(2, { points: [[0, [[1, 2]]]] });
    expect(sent).toEqual([ack(1), ack(2)]);
    expect(held).toEqual([0, 1]); // the confirmation of a message is sent after it was applied
    expect(feed.data.line(0)?.length).toBe(2);
  });

  it("asks once for everything when a message was missed, and goes on with what comes", () => {
    const { feed, sent, receive } = open();
    receive(1, FIRST);
    receive(3, { points: [[0, [[2, 3]]]] });
    receive(5);
    expect(sent).toEqual([ack(1), RESYNC, ack(3), ack(5)]);
    expect(feed.data.line(0)?.lastValue).toBe(3);
    receive(6, { ...FIRST, reset: true });
    receive(8);
    expect(sent.slice(4)).toEqual([ack(6), RESYNC, ack(8)]);
  });

  it("confirms nothing before it has what came before, where it came late", () => {
    const { sent, receive } = open();
    receive(9, { points: [[0, [[8, 1]]]] });
    receive(10, { points: [[0, [[9, 1]]]] });
    expect(sent).toEqual([RESYNC]);
    receive(11, { ...FIRST, reset: true });
    receive(12);
    expect(sent).toEqual([RESYNC, ack(11), ack(12)]);
  });

  it("does not apply a message twice", () => {
    const { feed, receive, sent } = open();
    receive(1, FIRST);
    receive(2);
    const before = feed.data.revision;
    receive(2);
    expect(feed.data.revision).toBe(before);
    expect(sent.filter(content => "seq" in content)).toEqual([ack(1), ack(2)]);
  });

  it("confirms one message at a time while the kernel is busy, and the latest one then", () => {
    const { channel, sent, taken, receive } = open();
    channel.isBusy = true;
    for (let seq = 1; seq <= 50; seq += 1) receive(seq, seq === 1 ? FIRST : {});
    expect(sent).toEqual([ack(1)]);
    taken[0]();
    expect(sent).toEqual([ack(1), ack(50)]);
    channel.isBusy = false;
    taken[1]();
    taken[1]();
    expect(sent).toEqual([ack(1), ack(50)]);
    receive(51);
    expect(sent).toEqual([ack(1), ack(50), ack(51)]);
  });

  it("confirms again when the kernel never tells that it has dealt with a message", () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const { channel, sent, receive } = open();
    channel.isBusy = true;
    receive(1, FIRST);
    receive(2);
    vi.advanceTimersByTime(10_001);
    receive(3);
    vi.useRealTimers();
    expect(sent).toEqual([ack(1), ack(3)]);
  });

  it("begins anew with a reset, whatever its number", () => {
    const { feed, receive } = open();
    receive(1, FIRST);
    receive(2);
    receive(1, { reset: true, entries: numbers("Loss", [""]) });
    receive(2);
    expect(feed.data.metrics("numbers")).toEqual(["Loss"]);
  });

  it("neither applies nor confirms what cannot be read", () => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    const { feed, sent } = open();
    feed.receive({ kind: "update", seq: 1, points: { series: [0], counts: [3] } }, []);
    feed.receive("nonsense", 7);
    expect(sent).toEqual([]);
    expect(feed.data.revision).toBe(0);
    expect(warn).toHaveBeenCalledTimes(2);
    warn.mockRestore();
  });

  it("asks when a view is there and nothing has come; a second view does not ask again", () => {
    const { feed, sent, receive } = open();
    feed.wake();
    feed.wake();
    expect(sent).toEqual([RESYNC]);
    receive(1, { ...FIRST, reset: true });
    feed.wake();
    expect(sent).toEqual([RESYNC, ack(1)]);
  });

  it("sends nothing before the kernel answers, and then asks", () => {
    const { feed, sent, channel, receive } = open(false);
    feed.wake();
    receive(1, FIRST);
    receive(4);
    expect(sent).toEqual([]);
    channel.isLive = true;
    feed.revive();
    expect(sent).toEqual([RESYNC]);
  });

  it("asks again when the kernel came back before it had answered", () => {
    const { feed, sent } = open();
    feed.wake();
    feed.revive();
    expect(sent).toEqual([RESYNC, RESYNC]);
  });

  it("does not ask where there is no view", () => {
    const { feed, sent } = open();
    feed.revive();
    expect(sent).toEqual([]);
  });
});
