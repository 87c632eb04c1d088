import { describe, expect, it } from "vitest";
import { logTicks, roundTicks, stepTicks, tickTexts, valueAxis, valueText } from "./value_axis";

describe("valueAxis", () => {
  it.each([
    [0, 1],
    [-3, 7],
    [5, 5],
    [0, 0],
    [1e-300, 3e-300],
    [1e-320, 2e-320],
    [-1.7e308, 1.7e308],
    [1e300, 1e308],
    [1 - 1e-15, 1]
  ])("has a place for everything between %d and %d", (least, greatest) => {
    const axis = valueAxis(least, greatest, false);
    const span = axis.high - axis.low;
    expect(Number.isFinite(span) && span > 1e-10).toBe(true); // what the chart library can draw
    for (const value of [least, greatest]) {
      expect(axis.plot(value)).toBeGreaterThanOrEqual(axis.low);
      expect(axis.plot(value)).toBeLessThanOrEqual(axis.high);
    }
    const ticks = axis.ticks(axis.low, axis.high, 6);
    expect(ticks.length).toBeGreaterThan(1);
    expect(new Set(axis.texts(ticks)).size).toBe(ticks.length);
  });

  it("does not reach below 0 for values that do not", () => {
    expect(valueAxis(0, 10, false).low).toBe(0);
    expect(valueAxis(-10, 0, false).high).toBe(0);
    expect(valueAxis(-1, 10, false).low).toBeLessThan(-1);
  });

  it("has a span also without values", () => {
    for (const log of [false, true]) {
      const axis = valueAxis(Infinity, -Infinity, log);
      expect(axis.high).toBeGreaterThan(axis.low);
    }
  });

  it.each([
    [1, 1000],
    [1e-300, 1e300],
    [5, 5],
    [5e-324, 1]
  ])("is logarithmic from %d to %d", (least, greatest) => {
    const axis = valueAxis(least, greatest, true);
    expect(axis.plot(greatest)).toBeCloseTo(Math.log10(greatest));
    expect(axis.low).toBeLessThan(axis.plot(least));
    expect(axis.plot(0)).toBeNaN();
    expect(axis.plot(-1)).toBeNaN();
    expect(axis.value(axis.plot(greatest))).toBeCloseTo(greatest, -290);
    expect(axis.ticks(axis.low, axis.high, 6).length).toBeGreaterThan(1);
  });
});

describe("ticks", () => {
  it.each([
    [0, 10, 5, [0, 2, 4, 6, 8, 10]],
    [0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]],
    [-1, 1, 4, [-1, -0.5, 0, 0.5, 1]]
  ])("are round from %d to %d", (low, high, most, expected) => {
    expect(roundTicks(low, high, most).map(tick => Number(tick.toPrecision(12)))).toEqual(expected);
  });

  it("are whole steps for steps", () => {
    expect(stepTicks(0, 2, 10)).toEqual([0, 1, 2]);
    expect(stepTicks(9_007_199_254_740_000, 9_007_199_254_740_100, 4).every(Number.isInteger)).toBe(true);
  });

  it("are few, whatever is asked", () => {
    expect(roundTicks(0, 1, 1e9).length).toBeLessThanOrEqual(1000);
    expect(roundTicks(NaN, 1, 5)).toEqual([]);
  });

  it("are powers of ten, with 2 and 5 between them where there is room", () => {
    expect(logTicks(-6, 0, 7)).toEqual([-6, -5, -4, -3, -2, -1, 0]);
    expect(logTicks(-60, 0, 7)).toEqual([-54, -45, -36, -27, -18, -9, 0]);
    expect(logTicks(0, 1, 7).map(tick => Math.round(10 ** tick))).toEqual([1, 2, 5, 10]);
    expect(logTicks(Math.log10(3), Math.log10(4), 5).map(tick => Number((10 ** tick).toPrecision(6)))).toEqual([
      3, 3.2, 3.4, 3.6, 3.8, 4
    ]);
  });
});

describe("texts", () => {
  it.each([
    [
      [0, 0.2, 0.4],
      ["0.0", "0.2", "0.4"]
    ],
    [
      [0, 5000, 10000],
      ["0", "5,000", "10,000"]
    ],
    [
      [-2e-8, 0, 2e-8],
      ["−2e−8", "0", "2e−8"]
    ],
    [
      [1e6, 1.5e6, 2e6],
      ["1.0e6", "1.5e6", "2.0e6"]
    ],
    [[1], ["1"]],
    [[], []]
  ])("of ticks %j", (values, expected) => {
    expect(tickTexts(values)).toEqual(expected);
  });

  it("of a logarithmic axis are as short as they can be", () => {
    const { texts } = valueAxis(1e-6, 10, true);
    expect(texts([-5, -4 + Math.log10(2), -2, Math.log10(5), 3])).toEqual(["1e−5", "2e−4", "0.01", "5", "1,000"]);
  });

  it.each([
    [0.123456789, "0.12346"],
    [1234.5, "1,234.5"],
    [-0.5, "−0.5"],
    [1e-7, "1.000e−7"],
    [2.5e9, "2.500e9"],
    [100, "100"],
    [0, "0"],
    [NaN, "NaN"],
    [-Infinity, "−∞"]
  ])("of the value %d", (value, expected) => {
    expect(valueText(value)).toBe(expected);
  });
});
