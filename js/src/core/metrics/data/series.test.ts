import { describe, expect, it } from "vitest";
import { LineData, thin } from "./series";

function filled(limit: number, points: Iterable<readonly [number, number]>, each = 50): LineData {
  const line = new LineData(limit);
  const all = [...points];
  for (let at = 0; at < all.length; at += each) add(line, all.slice(at, at + each));
  return line;
}

function add(line: LineData, points: readonly (readonly [number, number])[]): void {
  const numbers = Float64Array.from([...points.map(([step]) => step), ...points.map(([, value]) => value)]);
  line.append(numbers, 0, points.length);
}

const upTo = (length: number, value: (step: number) => number) =>
  Array.from({ length }, (_, step) => [step, value(step)] as const);

const isAscending = (steps: Float64Array) => steps.every((step, i) => i === 0 || steps[i - 1] < step);

describe("LineData", () => {
  it("keeps all points while there is room", () => {
    const line = filled(
      2000,
      upTo(2000, step => 3 * step)
    );
    expect(line.length).toBe(2000);
    expect([...line.values.subarray(0, 3)]).toEqual([0, 3, 6]);
    expect(line.lastStep).toBe(1999);
  });

  it.each([16, 100, 2000])("never holds more than %i points, and keeps the first, the last and the extremes", limit => {
    const line = filled(
      limit,
      upTo(50_000, step => (step === 12_345 ? 99 : step === 30_001 ? -99 : Math.sin(step / 7)))
    );
    expect(line.length).toBeLessThanOrEqual(limit);
    expect(line.length).toBeGreaterThan(limit / 4);
    expect(line.steps[0]).toBe(0);
    expect(line.lastStep).toBe(49_999);
    expect(line.lastValue).toBe(Math.sin(49_999 / 7));
    expect(Math.max(...line.values)).toBe(99);
    expect(Math.min(...line.values)).toBe(-99);
    expect(line.steps[line.values.indexOf(99)]).toBe(12_345);
    expect(isAscending(line.steps)).toBe(true);
  });

  it("keeps the values that are not finite through thinning", () => {
    const line = filled(
      100,
      upTo(10_000, step => (step === 500 ? NaN : step === 8000 ? Infinity : step === 9000 ? -Infinity : 1))
    );
    expect([...line.values].filter(value => !Number.isFinite(value))).toEqual([NaN, Infinity, -Infinity]);
  });

  it("takes one large message as well as many small ones", () => {
    const line = filled(
      200,
      upTo(5000, step => step),
      5000
    );
    expect(line.length).toBeLessThanOrEqual(200);
    expect([line.steps[0], line.lastStep]).toEqual([0, 4999]);
  });

  it("keeps the later value of a step", () => {
    const line = filled(100, [
      [1, 10],
      [2, 20],
      [2, 21]
    ]);
    expect([[...line.steps], [...line.values]]).toEqual([
      [1, 2],
      [10, 21]
    ]);
  });

  it("orders steps that come backwards, and lets the later value win", () => {
    const line = filled(100, [
      [0, 0],
      [1, 1],
      [2, 2]
    ]);
    add(line, [
      [1, 11],
      [3, 13]
    ]);
    expect([[...line.steps], [...line.values]]).toEqual([
      [0, 1, 2, 3],
      [0, 11, 2, 13]
    ]);
  });

  it("orders them also where they make it overflow", () => {
    const line = filled(
      64,
      upTo(60, step => step)
    );
    add(
      line,
      upTo(40, step => step + 0.5).map(([step, value]) => [step + 0.5, value] as const)
    );
    expect(isAscending(line.steps)).toBe(true);
    expect(line.lastStep).toBe(59);
    expect(line.length).toBeLessThanOrEqual(64);
  });

  it("leaves points out whose step is no number", () => {
    expect(
      filled(100, [
        [NaN, 1],
        [Infinity, 2],
        [4, 3]
      ]).length
    ).toBe(1);
  });

  it("survives steps that lie far apart", () => {
    const line = filled(200, [
      ...upTo(1000, step => step),
      ...upTo(1000, step => step).map(([s, v]) => [s + 1e15, v] as const)
    ]);
    expect(line.length).toBeGreaterThan(20);
    expect(line.lastStep).toBe(1e15 + 999);
  });

  it("finds places by their step", () => {
    const line = filled(100, [
      [10, 0],
      [20, 1],
      [30, 2]
    ]);
    expect([5, 10, 11, 30, 31].map(step => line.before(step))).toEqual([0, 0, 1, 2, 3]);
    expect([0, 14, 15, 16, 99].map(step => line.nearest(step))).toEqual([0, 0, 0, 1, 2]);
    expect(line.nearest(99, 2)).toBe(1);
    expect(new LineData(100).nearest(1)).toBe(-1);
  });
});

describe("thin", () => {
  it("keeps in each bucket the least, the greatest and one that is not finite, in their order", () => {
    const xs = Float64Array.from([0, 1, 2, 3, 4, 5, 6, 7]);
    const ys = Float64Array.from([0, 9, NaN, -9, 1, 2, 3, 4]);
    const length = thin(xs, ys, 8, 2);
    expect([...xs.subarray(0, length)]).toEqual([0, 1, 2, 3, 4, 6, 7]);
    expect([...ys.subarray(0, length)]).toEqual([0, 9, NaN, -9, 1, 3, 4]);
  });
});
