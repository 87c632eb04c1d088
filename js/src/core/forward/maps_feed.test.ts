import { afterEach, describe, expect, it, vi } from "vitest";
import { buffersOf, golden, picturesOf } from "../../testing/forward";
import { pixelsOf } from "./feature_maps";
import { type Answer, MapsFeed, type MapsRequest } from "./maps_feed";

const sample = golden("residual");
const reply = (request: Partial<MapsRequest>, extra: object = {}) => ({ ...sample.reply, ...request, ...extra });
const request = (step: number): MapsRequest => ({ run: 1, step, sample: 1, page: 0 });

function feedWith(live = true) {
  const sent: unknown[] = [];
  const channel = { isLive: live, send: (question: unknown) => void sent.push(question) };
  return { feed: new MapsFeed(channel), channel, sent };
}

const stepsOf = (sent: unknown[]) => sent.map(question => (question as MapsRequest).step);

afterEach(() => void vi.useRealTimers());

describe("MapsFeed", () => {
  it("asks once, and keeps the answer", () => {
    const { feed, sent } = feedWith();
    let changes = 0;
    feed.onChange(() => (changes += 1));
    feed.want(request(1));
    feed.want(request(1));
    expect(sent).toEqual([{ kind: "maps", ...request(1) }]);
    feed.receive(sample.reply, buffersOf(sample));
    expect(changes).toBe(1);
    expect(feed.get(request(1))).toMatchObject({ page: { form: "channels", width: 2, height: 2, item: 1 } });
    feed.want(request(1));
    expect(sent.length).toBe(1);
  });

  it("has one question open, and then asks for the latest request", () => {
    const { feed, sent } = feedWith();
    for (const step of [1, 2, 3]) feed.want(request(step));
    expect(stepsOf(sent)).toEqual([1]);
    feed.receive(sample.reply, buffersOf(sample));
    expect(stepsOf(sent)).toEqual([1, 3]);
    expect(feed.get(request(1))).toBeDefined();
  });

  it("asks once more where no one may have heard, and no more than three at a time", () => {
    vi.useFakeTimers();
    const { feed, sent } = feedWith();
    const stop = feed.onChange(() => undefined);
    feed.want(request(1));
    vi.advanceTimersByTime(900);
    feed.want(request(2));
    expect(stepsOf(sent)).toEqual([1]);
    vi.advanceTimersByTime(200); // the kernel may listen beside its cells by now
    expect(stepsOf(sent)).toEqual([1, 2]);
    vi.advanceTimersByTime(20_000);
    feed.want(request(3));
    expect(stepsOf(sent)).toEqual([1, 2, 2]);
    vi.advanceTimersByTime(11_000); // lost
    feed.want(request(3));
    expect(stepsOf(sent)).toEqual([1, 2, 2, 3]);
    stop();
    expect(vi.getTimerCount()).toBe(0);
  });

  it("takes an answer as one to all questions from before", () => {
    vi.useFakeTimers();
    const { feed, sent } = feedWith();
    feed.onChange(() => undefined);
    feed.want(request(2));
    vi.advanceTimersByTime(500);
    feed.want(request(1));
    vi.advanceTimersByTime(600);
    expect(stepsOf(sent)).toEqual([2, 1]);
    feed.receive(sample.reply, buffersOf(sample));
    feed.want(request(3)); // at once: none is open
    expect(stepsOf(sent)).toEqual([2, 1, 3]);
  });

  it("knows what has to wait until the model may run, and asks for others meanwhile", () => {
    vi.useFakeTimers();
    const { feed, sent } = feedWith();
    feed.onChange(() => undefined);
    feed.want(request(1));
    feed.receive({ kind: "maps", ...request(1), later: true }, []);
    expect([feed.isPostponed(request(1)), feed.isPostponed(request(2)), feed.get(request(1))]).toEqual([
      true,
      false,
      undefined
    ]);
    vi.advanceTimersByTime(5_000);
    expect(stepsOf(sent)).toEqual([1]);
    feed.receive(sample.reply, buffersOf(sample));
    expect([feed.isPostponed(request(1)), feed.get(request(1))]).toEqual([false, expect.anything()]);
    feed.want(request(2));
    expect(stepsOf(sent)).toEqual([1, 2]);
  });

  it("asks for nothing finer than what came with the steps", () => {
    const { feed, sent } = feedWith();
    const first = { run: 1, step: 1, sample: 0, page: 0 };
    const each = (sample.pictures.each as object[]).map((one, at) => ({ ...one, whole: at !== 2 }));
    feed.begin(picturesOf(sample, { each }));
    feed.want(first);
    expect([feed.get(first), sent]).toEqual([{ isWhole: true, page: feed.coarse(first) }, []]);
    feed.want({ ...first, step: 2 }); // a coarse one
    expect(stepsOf(sent)).toEqual([2]);
    expect([feed.get({ ...first, step: 2 }), feed.coarse({ ...first, step: 2 })]).toEqual([
      undefined,
      expect.anything()
    ]);
    expect(feed.coarse({ ...first, sample: 1 })).toBeUndefined();
  });

  it("asks nothing of a kernel that is not there, and does when it is", () => {
    const { feed, channel, sent } = feedWith(false);
    feed.want(request(1));
    expect(sent).toEqual([]);
    channel.isLive = true;
    feed.revive();
    expect(stepsOf(sent)).toEqual([1]);
  });

  it("shows what the kernel says instead", () => {
    const { feed } = feedWith();
    feed.want(request(1));
    feed.receive({ kind: "maps", ...request(1), error: "it has changed" }, []);
    expect(feed.get(request(1))).toEqual({ error: "it has changed" });
  });

  it.each<[string, unknown, unknown]>([
    ["no object", "maps", []],
    ["another message", { kind: "other" }, []],
    ["a wrong step", reply({ step: -1 }), buffersOf(sample)],
    ["too few bytes", sample.reply, [new ArrayBuffer(3)]],
    ["no bytes", sample.reply, []],
    ["a wrong form", reply({}, { maps: { ...(sample.reply.maps as object), form: "<b>" } }), buffersOf(sample)]
  ])("leaves %s alone", (_, content, buffers) => {
    const { feed } = feedWith();
    feed.want(request(1));
    feed.receive(content, buffers);
    expect(feed.get(request(1))).toBeUndefined();
  });

  it("forgets the pages that were not used for long", () => {
    const { feed } = feedWith();
    for (let step = 1; step <= 60; step += 1) feed.receive(reply(request(step)), buffersOf(sample));
    expect([feed.get(request(1)), feed.get(request(60))].map(Boolean)).toEqual([false, true]);
  });
});

describe("pixelsOf", () => {
  const page = () => {
    const { feed } = feedWith();
    feed.receive(sample.reply, buffersOf(sample));
    return (feed.get(request(1)) as Exclude<Answer, { error: string }>).page;
  };

  it("colors every byte", () => {
    const first = pixelsOf(page(), 0);
    expect(Array.from(first.slice(0, 4))).toEqual([0x44, 0x01, 0x54, 255]);
    expect(Array.from(first.slice(12))).toEqual([0xfd, 0xe7, 0x25, 255]);
    expect(Array.from(pixelsOf(page(), 1).slice(0, 4))).toEqual([0xfd, 0xe7, 0x25, 255]);
  });

  it("leaves what fills up a strip transparent, and marks what is not finite", () => {
    const strip = { ...page(), form: "strip" as const, sizes: [3], pixels: Uint8Array.from([255, 0, 254, 0]) };
    const pixels = pixelsOf(strip, 0);
    expect(Array.from(pixels.slice(0, 4))).toEqual([0xe8, 0x30, 0x8c, 255]);
    expect(pixels[15]).toBe(0);
  });
});
