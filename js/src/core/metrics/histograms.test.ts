import { describe, expect, it } from "vitest";
import type { Histogram } from "./data/series";
import {
  binAt,
  binEnds,
  domainOf,
  isDrawable,
  paintAxis,
  paintBars,
  plotBox,
  ridgeItems,
  sampleNote,
  valueAt
} from "./histograms";
import type { ChartTheme } from "./base/chart_theme";

const item = (low: number, high: number, counts: number[], step = 0): Histogram => ({
  step,
  low,
  high,
  total: 10,
  sampled: 10,
  counts: Float64Array.from(counts)
});

const THEME = {
  dark: false,
  ground: "#ffffff",
  text: "#000000",
  muted: "#666666",
  axis: "#999999",
  font: "sans-serif"
} as ChartTheme;

describe("domainOf", () => {
  it("reaches over all that can be drawn", () => {
    expect(domainOf([item(-1, 2, [1]), item(0, 5, [1]), item(NaN, NaN, [0])])).toEqual({ low: -1, high: 5 });
    expect(domainOf([item(NaN, NaN, [])])).toBeNull();
  });

  it("has a width where all values are one", () => {
    expect(domainOf([item(2, 2, [5])])).toEqual({ low: 1.8, high: 2.2 });
    expect(domainOf([item(0, 0, [5])])).toEqual({ low: -1, high: 1 });
  });
});

describe("bins", () => {
  it("have their ends", () => {
    expect(binEnds(item(-1, 1, [1, 2, 3, 4]), 1)).toEqual([-0.5, 0]);
    expect(binEnds(item(-1.7e308, 1.7e308, [1, 2]), 0)[1]).toBe(0);
  });

  it.each([
    [-1, 0],
    [-0.6, 0],
    [0.2, 2],
    [1, 3],
    [1.1, -1]
  ])("are found at %d", (value, bin) => {
    expect(binAt(item(-1, 1, [1, 2, 3, 4]), value)).toBe(bin);
  });

  it("are found under the pointer", () => {
    const plot = plotBox({ x: 0, y: 0, width: 220, height: 150 }, false);
    expect(valueAt(plot, { low: 0, high: 10 }, plot.x + plot.width / 2)).toBe(5);
  });
});

describe("paintBars", () => {
  it("draws one bar for each bin that has values, as high as its count", () => {
    const bars: number[][] = [];
    const context = { fillRect: (...box: number[]) => void bars.push(box) } as unknown as CanvasRenderingContext2D;
    const plot = { x: 0, y: 0, width: 100, height: 106 };
    paintBars(
      context,
      plot,
      item(0, 4, [0, 10, 5, 0]),
      { low: 0, high: 4 },
      { theme: THEME, color: "#0072b2", log: false }
    );
    const bodies = bars.filter(([, , , height]) => height > 1);
    expect(bodies.map(([x, , width, height]) => [x, width, height])).toEqual([
      [25.5, 24, 100],
      [50.5, 24, 50]
    ]);
  });
});

describe("paintAxis", () => {
  it.each([
    [-9e-4, 9.4e-4],
    [0, 1],
    [-0.0021, 0.00205]
  ])("has two values at least from %d to %d, whose texts stay in the cell", (low, high) => {
    const texts: { text: string; x: number }[] = [];
    const ignore = () => {};
    const context = {
      ...{ beginPath: ignore, moveTo: ignore, lineTo: ignore, stroke: ignore },
      measureText: (text: string) => ({ width: 7 * text.length }),
      fillText: (text: string, x: number) => void texts.push({ text, x })
    } as unknown as CanvasRenderingContext2D;
    paintAxis(context, plotBox({ x: 0, y: 0, width: 220, height: 120 }, false), { low, high }, THEME);
    expect(texts.length).toBeGreaterThanOrEqual(2);
    for (const { text, x } of texts) {
      expect(x - 3.5 * text.length).toBeGreaterThanOrEqual(0);
      expect(x + 3.5 * text.length).toBeLessThanOrEqual(220);
    }
  });
});

describe("ridgeItems", () => {
  it("are evenly chosen, with the first and the last, and only what can be drawn", () => {
    const items = Array.from({ length: 200 }, (_, step) => item(0, 1, [1], step));
    const chosen = ridgeItems([...items, item(NaN, NaN, [], 200)], 100);
    expect(chosen.length).toBe(11);
    expect([chosen[0].step, chosen[10].step]).toEqual([0, 199]);
  });
});

describe("notes", () => {
  it("say when only a sample was counted", () => {
    expect(sampleNote({ ...item(0, 1, [1]), total: 2_359_296, sampled: 1_000_000 })).toBe("sample of 1.00 M of 2.36 M");
    expect(sampleNote(item(0, 1, [1]))).toBe("10 values");
  });

  it("tell what cannot be drawn", () => {
    expect(
      [item(0, 1, [1]), item(NaN, 1, [1]), item(0, Infinity, [1]), item(1, 0, [1]), item(0, 1, [])].map(isDrawable)
    ).toEqual([true, false, false, false, false]);
  });
});
