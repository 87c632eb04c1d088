import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Layouter } from "./layouter";
import { LayoutClient } from "./client";
import { ITSELF, type LayoutRequest, type Net } from "./types";

class FakeWorker {
  static made: FakeWorker[] = [];
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: (() => void) | null = null;
  sent: { id: number; request: LayoutRequest }[] = [];
  stopped = false;

  constructor() {
    FakeWorker.made.push(this);
  }

  postMessage(message: { id: number; request: LayoutRequest }): void {
    this.sent.push(message);
  }

  terminate(): void {
    this.stopped = true;
  }

  answer(place = 0): void {
    const { id, request } = this.sent[place];
    this.onmessage?.({ data: { id, result: new Layouter().run(request) } });
  }
}

function requestOf(count: number): LayoutRequest {
  const items = Array.from({ length: count }, (_, i) => i);
  const nets = items.slice(0, -2).map((i): Net => ({ start: [i, ITSELF], ends: [[i + 1, ITSELF], [i + 2, ITSELF]], label: 0 })); // prettier-ignore
  return { sizes: items.map(() => [100, 50]), groups: [{ node: -1, items, nets }], room: [900, 600] };
}

/** Once the worker's source is there and it was asked. */
const asked = (count = 1) => vi.waitFor(() => expect(FakeWorker.made.flatMap(({ sent }) => sent)).toHaveLength(count));

describe("LayoutClient", () => {
  beforeEach(() => {
    FakeWorker.made = [];
    vi.stubGlobal("Worker", FakeWorker);
    const blobs = { createObjectURL: () => "blob:layout", revokeObjectURL: vi.fn() };
    vi.stubGlobal("URL", Object.assign(class extends URL {}, blobs));
  });
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it("does at once what is cheap", () => {
    const client = new LayoutClient();
    expect(client.runNow(requestOf(5))?.boxes).toHaveLength(5);
    expect(client.runNow(requestOf(90))).toBeUndefined();
    expect(FakeWorker.made).toHaveLength(0);
  });

  it("leaves the rest to a worker", async () => {
    const client = new LayoutClient();
    const done = client.run(requestOf(90));
    await asked();
    FakeWorker.made[0].answer();
    expect((await done)?.boxes).toHaveLength(90);
    client.dispose();
    expect(FakeWorker.made[0].stopped).toBe(true);
  });

  it("drops an answer that a newer request has overtaken", async () => {
    const client = new LayoutClient();
    const first = client.run(requestOf(90));
    await asked();
    const second = client.run(requestOf(91));
    expect(await first).toBeNull();
    FakeWorker.made[0].answer(0);
    FakeWorker.made[0].answer(1);
    expect((await second)?.boxes).toHaveLength(91);
  });

  it("replaces a worker that is stuck", async () => {
    const now = vi.spyOn(performance, "now").mockReturnValue(0);
    const client = new LayoutClient();
    const first = client.run(requestOf(90));
    await asked();
    now.mockReturnValue(1000);
    const second = client.run(requestOf(91));
    expect(await first).toBeNull();
    await asked(2);
    expect(FakeWorker.made.map(({ stopped }) => stopped)).toEqual([true, false]);
    FakeWorker.made[1].answer();
    expect((await second)?.boxes).toHaveLength(91);
  });

  it("lays out by itself where a worker fails or is forbidden", async () => {
    const client = new LayoutClient();
    const failing = client.run(requestOf(90));
    await asked();
    FakeWorker.made[0].onerror?.();
    expect((await failing)?.boxes).toHaveLength(90);
    vi.stubGlobal("Worker", function () {
      throw new Error("forbidden");
    });
    expect((await new LayoutClient().run(requestOf(90)))?.boxes).toHaveLength(90);
  });

  it("asks a worker that starts for the newest alone", async () => {
    const client = new LayoutClient();
    const [first, second] = [client.run(requestOf(90)), client.run(requestOf(91))];
    expect(await first).toBeNull();
    await asked();
    expect(FakeWorker.made).toHaveLength(1);
    FakeWorker.made[0].answer();
    expect((await second)?.boxes).toHaveLength(91);
  });

  it("starts no worker once it has gone", async () => {
    const client = new LayoutClient();
    const waiting = client.run(requestOf(90));
    client.dispose();
    expect(await waiting).toBeNull();
    await import("../../generated/layout_worker_source");
    await Promise.resolve();
    expect(FakeWorker.made).toHaveLength(0);
  });

  it("leaves nothing waiting when it goes", async () => {
    const client = new LayoutClient();
    const waiting = client.run(requestOf(90));
    client.dispose();
    expect(await waiting).toBeNull();
  });
});
