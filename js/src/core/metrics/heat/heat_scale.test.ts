import { describe, expect, it } from "vitest";
import { series } from "../../../testing/metrics";
import { ABOVE, BELOW, type HeatRow, heatScale } from "./heat_layout";
import { LineData } from "../data/series";

function row(value: (step: number) => number, steps = 100): HeatRow {
  const points = series(steps, value);
  const data = new LineData(2000);
  data.append(Float64Array.from([...points.map(([x]) => x), ...points.map(([, y]) => y)]), 0, points.length);
  return { data, range: { start: 0, end: data.length } };
}

/** Layers whose values are 0 … 1, some of which are replaced. */
const layers = (count: number, others: Record<number, (step: number) => number> = {}) =>
  Array.from({ length: count }, (_, i) => row(others[i] ?? (step => (i + step / 100) / count)));

describe("heatScale", () => {
  it("reaches over all values where none is far away", () => {
    const scale = heatScale(layers(61), false, "robust");
    expect([scale.least, scale.greatest]).toEqual([0, 60.99 / 61]);
    expect(scale.text).toBe("Linear color scale");
    expect(scale.beyond.some(Boolean)).toBe(false);
  });

  it("ends at percentiles where one row lies far away, and says so", () => {
    const scale = heatScale(layers(61, { 37: step => 400 + step }), false, "robust");
    expect(scale.least).toBe(0);
    expect(scale.greatest).toBeLessThan(1);
    expect(scale.greatest).toBeGreaterThan(0.95);
    expect(scale.text).toMatch(/^Linear color scale, up to the 98th percentile; \d+ values outside$/);
    expect([scale.beyond[37], scale.beyond[5]]).toEqual([ABOVE, 0]);
  });

  it("counts the values beyond exactly, also where few are sampled", () => {
    const rows = layers(400, { 7: () => 1e9, 9: () => -1e9 });
    const { least, greatest, text, beyond } = heatScale(rows, false, "robust");
    const count = rows.reduce(
      (sum, { data }) => sum + data.values.filter(value => value < least || value > greatest).length,
      0
    );
    expect(text).toBe(`Linear color scale, 2nd to 98th percentile; ${count.toLocaleString("en")} values outside`);
    expect([beyond[7], beyond[9]]).toEqual([ABOVE, BELOW]);
  });

  it.each([
    [20, "94th"],
    [12, "90th"],
    [8, "85th"]
  ])("cuts off more where one of %d rows is a larger share", (count, name) => {
    const { greatest, text } = heatScale(layers(count, { 3: () => 1e4 }), false, "robust");
    expect(greatest).toBeLessThan(1);
    expect(text).toContain(`to the ${name} percentile`);
  });

  it("reaches over all values when asked", () => {
    const scale = heatScale(layers(61, { 37: () => 400 }), false, "full");
    expect([scale.greatest, scale.text]).toEqual([400, "Linear color scale"]);
  });

  it("gives each row its own ends when asked, and says that rows cannot be compared", () => {
    const scale = heatScale(layers(2, { 1: step => 1000 + step }), false, "row");
    expect(scale.byRow).toEqual([
      [0, 0.495],
      [1000, 1099]
    ]);
    expect(scale.text).toBe("Linear color scale, separate for each row: do not compare rows");
  });

  it("puts zeros beyond the low end of logarithms, and leaves out what is below", () => {
    const decades = row(step => (step < 3 ? 0 : 10 ** (step / 20)));
    const scale = heatScale([decades, row(step => (step < 2 ? -1 : 10))], true, "robust");
    expect(scale).toMatchObject({ least: 10 ** 0.15, greatest: 10 ** 4.95, leftOut: 2 });
    expect(scale.text).toBe("Log color scale; 3 values outside");
    expect([...scale.beyond]).toEqual([BELOW, 0]);
  });

  it.each([
    ["nothing", []],
    ["nothing finite", [row(() => NaN), row(() => Infinity)]]
  ])("of %s has no ends", (_, rows) => {
    expect(heatScale(rows, false, "robust")).toMatchObject({ least: NaN, greatest: NaN, broken: 100 * rows.length });
  });

  it("of one value, and of the largest numbers there are, stays a scale", () => {
    expect(heatScale([row(() => 3)], false, "robust")).toMatchObject({ least: 3, greatest: 3 });
    const huge = heatScale([row(step => (step % 2 ? -1.7e308 : 1.7e308))], false, "robust");
    expect([huge.least, huge.greatest]).toEqual([-1.7e308, 1.7e308]);
  });
});
