import { describe, expect, it } from "vitest";
import { series } from "../../../testing/metrics";
import { LineData } from "./series";
import { emptyExtent, measure, rangeOf, type Projection, tracePath } from "./polyline";

function lineOf(points: readonly [number, number][]): LineData {
  const line = new LineData(2000);
  line.append(Float64Array.from([...points.map(([x]) => x), ...points.map(([, y]) => y)]), 0, points.length);
  return line;
}

class Recorder {
  readonly calls: [string, number, number][] = [];

  moveTo(x: number, y: number): void {
    this.calls.push(["M", x, y]);
  }

  lineTo(x: number, y: number): void {
    this.calls.push(["L", x, y]);
  }
}

const PLAIN: Projection = { x0: 0, xs: 10, y0: 100, ys: -1, plot: value => value, grain: 1 };

function trace(points: readonly [number, number][], projection: Partial<Projection> = {}) {
  const line = lineOf(points);
  const path = new Recorder();
  const range = { start: 0, end: line.length };
  const alone = tracePath(path, line.steps, line.values, range, { ...PLAIN, ...projection });
  return { calls: path.calls, alone };
}

describe("tracePath", () => {
  it("joins the points", () => {
    expect(
      trace([
        [0, 1],
        [1, 2],
        [2, 3]
      ]).calls
    ).toEqual([
      ["M", 0, 99],
      ["L", 10, 98],
      ["L", 20, 97]
    ]);
  });

  it("leaves a gap at NaN and the infinities, and names points that stand alone", () => {
    const { calls, alone } = trace([
      [0, 1],
      [1, NaN],
      [2, 3],
      [3, Infinity],
      [4, 5],
      [5, 6]
    ]);
    expect(calls).toEqual([
      ["M", 0, 99],
      ["M", 20, 97],
      ["M", 40, 95],
      ["L", 50, 94]
    ]);
    expect(alone).toEqual([0, 99, 20, 97]);
  });

  it("leaves a gap where the axis has no place", () => {
    const log = { plot: (value: number) => (value > 0 ? Math.log10(value) : NaN) };
    expect(
      trace(
        [
          [0, 1],
          [1, 0],
          [2, -5],
          [3, 100]
        ],
        log
      ).alone
    ).toEqual([0, 100, 30, 98]);
  });

  it("draws of each column of pixels the extremes and the last, in their order", () => {
    const { calls } = trace(
      series(10_000, step => (step === 4321 ? 50 : step === 4320 ? -50 : 0)),
      { xs: 0.01 }
    );
    expect(calls.length).toBeLessThan(4 * 101 + 1);
    const heights = calls.map(([, , y]) => y);
    expect([Math.min(...heights), Math.max(...heights)]).toEqual([50, 150]);
    expect(heights.indexOf(150)).toBeLessThan(heights.indexOf(50)); // the lower value came first
  });

  it("never leaves what a canvas can draw", () => {
    const { calls } = trace([
      [0, 1e300],
      [1, -1e300]
    ]);
    expect(calls.every(([, , y]) => Math.abs(y) <= 32_000)).toBe(true);
  });
});

describe("ranges", () => {
  const line = lineOf([
    [10, -1],
    [20, 0],
    [30, 2],
    [40, NaN],
    [50, -Infinity]
  ]);

  it.each([
    [0, 99, 0, 5],
    [10, 30, 0, 3],
    [11, 29, 1, 2],
    [60, 70, 5, 5],
    [0, 5, 0, 0]
  ])("have the points from step %d to step %d", (first, last, start, end) => {
    expect(rangeOf(line, first, last)).toEqual({ start, end });
  });

  it("are measured with what is left out and what is not finite", () => {
    const extent = emptyExtent();
    measure(line.values, { start: 0, end: 5 }, false, extent);
    expect(extent).toEqual({ least: -1, greatest: 2, leftOut: 0, broken: 2 });
    const log = emptyExtent();
    measure(line.values, { start: 0, end: 5 }, true, log);
    expect(log).toEqual({ least: 2, greatest: 2, leftOut: 2, broken: 2 });
  });
});
