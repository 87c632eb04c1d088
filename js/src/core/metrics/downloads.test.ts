import { describe, expect, it } from "vitest";
import { histogramsToCsv, linesToCsv, textCell } from "./downloads";
import { LineData } from "./data/series";
import type { Entry } from "./data/metric_data";

const entry = (module: string): Entry => ({
  run: 0,
  module,
  metric: "WeightNorm",
  call: 1,
  phase: "train",
  form: "number"
});

function line(points: readonly [number, number][]): LineData {
  const data = new LineData(100);
  data.append(Float64Array.from([...points.map(([x]) => x), ...points.map(([, y]) => y)]), 0, points.length);
  return data;
}

describe("linesToCsv", () => {
  it("has the points that are shown, and no others", () => {
    const data = line([
      [1, 0.5],
      [2, -0.25],
      [3, NaN],
      [4, -Infinity],
      [5, 1]
    ]);
    expect(linesToCsv([{ run: "base", entry: entry("a,b"), data, range: { start: 1, end: 4 } }])).toBe(
      'run,module,metric,call,phase,step,value\r\nbase,"a,b",WeightNorm,1,train,2,-0.25\r\nbase,"a,b",WeightNorm,1,train,3,NaN\r\nbase,"a,b",WeightNorm,1,train,4,-Infinity\r\n'
    );
  });

  it("keeps every digit", () => {
    const text = linesToCsv([
      { run: "r", entry: entry("a"), data: line([[0, 0.1 + 0.2]]), range: { start: 0, end: 1 } }
    ]);
    expect(text).toContain(",0,0.30000000000000004\r\n");
  });
});

describe("histogramsToCsv", () => {
  it("has a row for each bin", () => {
    const items = [{ step: 5, low: 0, high: 1, total: 9, sampled: 3, counts: Float64Array.from([1, 2]) }];
    expect(
      histogramsToCsv([{ run: "r", entry: entry("a"), items }])
        .split("\r\n")
        .slice(1)
    ).toEqual(["r,a,WeightNorm,1,train,5,0,0.5,1,9,3", "r,a,WeightNorm,1,train,5,0.5,1,2,9,3", ""]);
  });
});

describe("textCell", () => {
  it.each([
    ["plain", "plain"],
    ["=1+1", "'=1+1"],
    ["+a", "'+a"],
    ["-a", "'-a"],
    ["@a", "'@a"],
    ["a=b", "a=b"],
    ["\ta", "'\ta"],
    ['say "x"', '"say ""x"""'],
    ["=a,b", '"\'=a,b"'],
    ["two\nlines", '"two\nlines"']
  ])("of %j", (text, expected) => {
    expect(textCell(text)).toBe(expected);
  });
});
