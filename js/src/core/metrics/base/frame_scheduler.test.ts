import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { until } from "../../../testing/metrics";
import { FrameScheduler } from "./frame_scheduler";

type Observed = (entries: { isIntersecting: boolean }[]) => void;
const after = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
let see: Observed;
let observing = 0;
let pacer: FrameScheduler | undefined;

beforeEach(() => {
  vi.stubGlobal(
    "IntersectionObserver",
    class {
      constructor(callback: Observed) {
        see = callback;
      }

      observe(): void {
        observing += 1;
      }

      disconnect(): void {
        observing -= 1;
      }
    }
  );
});

afterEach(() => {
  pacer?.dispose();
  vi.unstubAllGlobals();
});

function paced(draw: () => void): FrameScheduler {
  pacer = new FrameScheduler(document.body, draw);
  return pacer;
}

describe("Pacer", () => {
  it("draws once for many messages of one frame", async () => {
    let draws = 0;
    const own = paced(() => (draws += 1));
    for (let i = 0; i < 1000; i += 1) own.data();
    expect(draws).toBe(0);
    await until(() => expect(draws).toBe(1));
    await after(60);
    expect(draws).toBe(1);
    own.data();
    await until(() => expect(draws).toBe(2));
  });

  it("leaves the page alone for longer the longer a drawing takes", async () => {
    const times: number[] = [];
    const own = paced(() => {
      work(40);
      times.push(performance.now());
    });
    await feed(own, () => times.length >= 3);
    expect(Math.min(...gaps(times))).toBeGreaterThan(200); // 40 ms of work, five times as much rest
  });

  it("does not let people wait", async () => {
    const times: number[] = [];
    const own = paced(() => {
      work(100);
      times.push(performance.now());
    });
    own.data();
    await until(() => expect(times.length).toBe(1));
    await after(1); // the rest of 500 ms begins
    const asked = performance.now();
    own.now();
    await until(() => expect(times.length).toBe(2));
    expect(times[1] - asked).toBeLessThan(500);
  });

  it("does not draw what is not seen, and draws it when it is", async () => {
    let draws = 0;
    const own = paced(() => (draws += 1));
    see([{ isIntersecting: false }]);
    own.data();
    own.now();
    await after(60);
    expect(draws).toBe(0);
    see([{ isIntersecting: true }]);
    await until(() => expect(draws).toBe(1));
    see([{ isIntersecting: true }]);
    await after(60);
    expect(draws).toBe(1);
  });

  it("draws at most twice a second where people want less motion", async () => {
    vi.stubGlobal("matchMedia", () => ({ matches: true }));
    const times: number[] = [];
    const own = paced(() => times.push(performance.now()));
    await feed(own, () => times.length >= 3);
    expect(Math.min(...gaps(times))).toBeGreaterThan(490);
  });

  it("is quiet after its end", async () => {
    let draws = 0;
    const own = paced(() => (draws += 1));
    own.data();
    own.dispose();
    own.data();
    own.now();
    await after(60);
    expect([draws, observing]).toEqual([0, 0]);
  });
});

function work(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

/** Values all the time, until enough is drawn. */
async function feed(own: FrameScheduler, isEnough: () => boolean): Promise<void> {
  while (!isEnough()) {
    own.data();
    await after(5);
  }
}

const gaps = (times: readonly number[]) => times.slice(1).map((time, i) => time - times[i]);
