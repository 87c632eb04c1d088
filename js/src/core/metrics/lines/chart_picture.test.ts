import { describe, expect, it } from "vitest";
import {
  type ChartLine,
  nearestReading,
  nearestStep,
  readingAt,
  readingsAt,
  stepBeside,
  zoomed
} from "./chart_picture";
import { LineData } from "../data/series";
import { valueAxis } from "../base/value_axis";

function line(
  series: number,
  steps: readonly number[],
  value: (step: number) => number,
  end = steps.length
): ChartLine {
  const data = new LineData(100);
  data.append(Float64Array.from([...steps, ...steps.map(value)]), 0, steps.length);
  const label = `m${series}`;
  const style = { color: "#000000", dash: [], width: 1, hasDots: false, reason: "", broken: 0, isSelected: false };
  return {
    series,
    module: label,
    label,
    suffix: "",
    names: [label],
    ends: [label],
    data,
    range: { start: 0, end },
    ...style
  };
}

const every = line(0, [0, 1, 2, 3, 4, 5], step => step);
const fifth = line(1, [0, 5], step => 10 + step);
const none = line(2, [], () => 0);

describe("what is under the pointer", () => {
  it("is the nearest step of any line", () => {
    expect(nearestStep([fifth, every, none], 2.6)).toBe(3);
    expect(nearestStep([fifth], 2.6)).toBe(5);
    expect(nearestStep([none], 1)).toBeNaN();
  });

  it("has for each line its nearest point", () => {
    expect(readingsAt([every, fifth, none], 3).map(({ step, value }) => [step, value])).toEqual([
      [3, 3],
      [5, 15]
    ]);
  });

  it("stays in the range that is drawn", () => {
    expect(readingAt({ ...every, range: { start: 2, end: 4 } }, 0)?.step).toBe(2);
    expect(readingAt({ ...every, range: { start: 2, end: 4 } }, 9)?.step).toBe(3);
  });

  it("is nearest by its height; values without a place are none", () => {
    const axis = valueAxis(0, 20, false);
    const broken = line(3, [3], () => NaN);
    const readings = readingsAt([every, fifth, broken], 3);
    expect(nearestReading(readings, axis, 4)?.line).toBe(every);
    expect(nearestReading(readings, axis, 14)?.line).toBe(fifth);
    expect(nearestReading(readingsAt([broken], 3), axis, 4)).toBeNull();
  });
});

describe("the keyboard", () => {
  it("goes from step to step of all lines", () => {
    expect(stepBeside([fifth, every], 2, 1)).toBe(3);
    expect(stepBeside([fifth, every], 2, -1)).toBe(1);
    expect(stepBeside([fifth], 0, 1)).toBe(5);
    expect(stepBeside([fifth], 5, 1)).toBeNaN();
    expect(stepBeside([{ ...every, range: { start: 0, end: 3 } }], 2, 1)).toBeNaN();
  });

  it("zooms around a step", () => {
    const lines = [line(0, [0, 50, 100], step => step), none];
    const from = (first: number, last: number) => ({ span: [first, last] as const, lines });
    expect(zoomed(from(0, 100), 50, 0.5)).toEqual([25, 75]);
    expect(zoomed(from(0, 100), 0, 0.5)).toEqual([0, 50]);
    expect(zoomed(from(50, 100), 99, 0.5)).toEqual([75, 100]);
    expect(zoomed(from(10, 12), 11, 0.5)).toEqual([9, 13]); // never less than a few steps
    expect(zoomed(from(25, 75), null, 2)).toBeNull();
  });
});
