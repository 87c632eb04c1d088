import { describe, expect, it, vi } from "vitest";
import { message, numbers, type Parts, series } from "../../../testing/metrics";
import { decodeUpdate } from "./payload";
import { HistogramData } from "./series";
import { Feed, MetricData, MAX_ALERTS, MAX_SERIES } from "./metric_data";

function apply(data: MetricData, parts: Parts): void {
  const { content, buffers } = message(1, parts);
  const update = decodeUpdate(content, buffers);
  if (!update) throw new Error("the message is not right");
  data.apply(update);
}

function withTwo(): MetricData {
  const data = new MetricData(100);
  apply(data, {
    entries: [...numbers("WeightNorm", ["a", "b"]), [0, "a", "Histogram", 0, "train", "histogram"]],
    points: [
      [
        0,
        [
          [0, 1],
          [1, 2]
        ]
      ],
      [1, [[0, 3]]]
    ],
    histograms: [[2, 5, [-1, 1, 10, 10], [4, 6]]]
  });
  return data;
}

describe("MetricData", () => {
  it("sorts what comes by series, metric and module", () => {
    const data = withTwo();
    expect([...(data.line(0)?.values ?? [])]).toEqual([1, 2]);
    expect(data.metrics("numbers")).toEqual(["WeightNorm"]);
    expect(data.metrics("histograms")).toEqual(["Histogram"]);
    expect([...(data.index("numbers", "WeightNorm")?.modules ?? [])]).toEqual(["a", "b"]);
    expect(data.histogram(2)?.items[0]).toMatchObject({ step: 5, low: -1, high: 1, total: 10, sampled: 10 });
    expect([...(data.histogram(2)?.items[0].counts ?? [])]).toEqual([4, 6]);
    expect(data.lastStep(0)).toBe(5);
  });

  it("forgets everything on a reset", () => {
    const data = withTwo();
    apply(data, { alerts: [[0, "a", "WeightNorm", 1, "high"]], ended: [0] });
    apply(data, { reset: true, entries: numbers("Loss", [""]), points: [[0, [[0, 9]]]] });
    expect(data.metrics("numbers")).toEqual(["Loss"]);
    expect(data.metrics("histograms")).toEqual([]);
    expect([...(data.line(0)?.values ?? [])]).toEqual([9]);
    expect([data.alertCount, data.ended.size, data.lastStep(0)]).toEqual([0, 0, 0]);
  });

  it("leaves a hole where entries were missed, and points of unknown series out", () => {
    const data = withTwo();
    apply(data, {
      from: 5,
      entries: numbers("WeightNorm", ["c"]),
      points: [
        [4, [[0, 1]]],
        [5, [[0, 7]]]
      ]
    });
    expect(data.line(4)).toBeUndefined();
    expect(data.line(5)?.lastValue).toBe(7);
    expect([...(data.index("numbers", "WeightNorm")?.modules ?? [])]).toEqual(["a", "b", "c"]);
  });

  it("does not take entries twice", () => {
    const data = withTwo();
    apply(data, { entries: numbers("WeightNorm", ["a", "b"]) });
    expect(data.index("numbers", "WeightNorm")?.series).toEqual([0, 1]);
  });

  it("does not mix up forms", () => {
    const data = withTwo();
    apply(data, { points: [[2, [[0, 1]]]], histograms: [[0, 0, [0, 1, 1, 1], [1]]] });
    expect(data.line(2)).toBeUndefined();
    expect(data.histogram(0)).toBeUndefined();
  });

  it(`holds at most ${MAX_SERIES} series`, () => {
    const data = new MetricData(100);
    const modules = Array.from({ length: MAX_SERIES + 5 }, (_, i) => `m${i}`);
    apply(data, { entries: numbers("WeightNorm", modules.slice(0, MAX_SERIES - 1)) });
    expect(data.isFull).toBe(false);
    apply(data, { from: MAX_SERIES - 1, entries: numbers("WeightNorm", modules.slice(MAX_SERIES - 1)) });
    expect([data.isFull, data.entries.length]).toEqual([true, MAX_SERIES]);
  });

  it("takes every alert once, and holds the latest of very many", () => {
    const data = withTwo();
    const alert = (step: number) => [0, "a", "WeightNorm", step, "high"] as [number, string, string, number, string];
    apply(data, { alerts: [alert(1), alert(2)] });
    apply(data, { alertsFrom: 1, alerts: [alert(2), alert(3)] });
    expect(data.alerts.map(({ step }) => step)).toEqual([1, 2, 3]);
    apply(data, { alertsFrom: 3, alerts: Array.from({ length: MAX_ALERTS }, (_, i) => alert(10 + i)) });
    expect([data.alertCount, data.alerts.length]).toEqual([MAX_ALERTS + 3, MAX_ALERTS]);
    expect(data.alerts[0].step).toBe(10);
  });

  it("tells its listeners once a message, until they leave", () => {
    const data = withTwo();
    let heard = 0;
    const leave = data.onChange(() => (heard += 1));
    apply(data, { points: [[0, series(5, step => step)]] });
    expect(heard).toBe(1);
    leave();
    apply(data, {});
    expect(heard).toBe(1);
  });
});

describe("HistogramData", () => {
  const at = (step: number, bins = 3) => ({
    step,
    low: 0,
    high: 1,
    total: 9,
    sampled: 9,
    counts: new Float64Array(bins)
  });

  it("holds at most so many, evenly, with the first and the last", () => {
    const data = new HistogramData(10);
    for (let step = 0; step < 1000; step += 1) data.add(at(step));
    expect(data.length).toBeLessThanOrEqual(10);
    expect(data.items[0].step).toBe(0);
    expect(data.items[data.length - 1].step).toBe(999);
    expect(data.bins).toBe(3 * data.length);
  });

  it("keeps the order of the steps and the later one of a step", () => {
    const data = new HistogramData(10);
    [at(2), at(1), at(2, 7)].forEach(histogram => data.add(histogram));
    expect(data.items.map(({ step }) => step)).toEqual([1, 2]);
    expect(data.bins).toBe(10);
  });

  it("finds the one that held at a step", () => {
    const data = new HistogramData(10);
    [at(10), at(20)].forEach(histogram => data.add(histogram));
    expect([5, 10, 19, 20, 99].map(step => data.at(step)?.step)).toEqual([10, 10, 10, 20, 20]);
    expect(new HistogramData(10).at(1)).toBeUndefined();
  });
});

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
