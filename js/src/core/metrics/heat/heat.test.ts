import { describe, expect, it } from "vitest";
import { series } from "../../../testing/metrics";
import {
  BROKEN,
  columnCount,
  EMPTY,
  fillCells,
  heatPosition,
  type HeatRow,
  paintCells,
  VALUE,
  HEADING,
  heatLayout,
  rowAt,
  topOf,
  visibleRows
} from "./heat_layout";
import { LineData } from "../data/series";

function row(points: readonly [number, number][]): HeatRow {
  const data = new LineData(2000);
  data.append(Float64Array.from([...points.map(([x]) => x), ...points.map(([, y]) => y)]), 0, points.length);
  return { data, range: { start: 0, end: data.length } };
}

describe("cells", () => {
  it("have the last value of their steps", () => {
    const cells = fillCells([row(series(10, step => step))], 0, 9, 5);
    expect([...cells.values]).toEqual([1, 3, 5, 7, 9]);
    expect([...cells.points]).toEqual([1, 3, 5, 7, 9]);
  });

  it("hold a value until the next one, and are empty before the first and after the last", () => {
    const cells = fillCells(
      [
        row([
          [2, 20],
          [5, 50]
        ])
      ],
      0,
      7,
      8
    );
    expect([...cells.kinds]).toEqual([EMPTY, EMPTY, VALUE, VALUE, VALUE, VALUE, EMPTY, EMPTY]);
    expect([...cells.values.subarray(2, 6)]).toEqual([20, 20, 20, 50]);
  });

  it("show a value that is not finite before the finite ones beside it", () => {
    const cells = fillCells(
      [
        row([
          [0, 1],
          [1, NaN],
          [2, 3],
          [3, 4]
        ])
      ],
      0,
      3,
      2
    );
    expect([...cells.kinds]).toEqual([BROKEN, VALUE]);
    expect(cells.values[1]).toBe(4);
  });

  it("are as many as the densest row has points, at most one for each pixel", () => {
    const rows = [row(series(3, step => step)), row(series(700, step => step))];
    expect([columnCount(rows, 500), columnCount(rows, 5000), columnCount([], 500)]).toEqual([500, 700, 1]);
  });

  it("become pixels", () => {
    const cells = fillCells(
      [
        row([
          [0, 0],
          [1, 10],
          [2, NaN]
        ])
      ],
      0,
      3,
      4
    );
    const ink = { ramp: Uint32Array.from([1, 2, 3]), empty: 8, broken: 9 };
    const pixels = new Uint32Array(4);
    paintCells(cells, { log: false, least: 0, greatest: 10, byRow: null }, ink, pixels);
    expect([...pixels]).toEqual([1, 3, 9, 8]);
    paintCells(cells, { log: true, least: 1, greatest: 10, byRow: null }, ink, pixels);
    expect([...pixels]).toEqual([1, 3, 9, 8]); // 0 lies beyond the low end of a logarithmic scale
    paintCells(
      cells,
      {
        log: false,
        least: 0,
        greatest: 0,
        byRow: [
          [0, 0],
          [-10, 10]
        ]
      },
      ink,
      pixels,
      1
    );
    expect([...pixels]).toEqual([2, 3, 9, 8]); // by the row's own ends
  });
});

describe("heatPosition", () => {
  it.each([
    [{ log: false, least: 0, greatest: 10 }, 5, 0.5],
    [{ log: false, least: 3, greatest: 3 }, 3, 0.5],
    [{ log: true, least: 1, greatest: 100 }, 10, 0.5],
    [{ log: false, least: -1.7e308, greatest: 1.7e308 }, 0, 0.5]
  ])("on %j of %d is %d", (scale, value, expected) => {
    expect(heatPosition(scale, value)).toBeCloseTo(expected, 10);
  });

  it("is none for what a logarithmic scale leaves out", () => {
    expect(heatPosition({ log: true, least: 1, greatest: 100 }, -1)).toBeNaN();
  });
});

describe("heatLayout", () => {
  it("makes rows as high as fit, up to a bound", () => {
    expect(heatLayout([{ heading: "", rows: 4 }], 400).rowHeight).toBe(30);
    expect(heatLayout([{ heading: "", rows: 40 }], 400).rowHeight).toBe(10);
    expect(heatLayout([{ heading: "", rows: 64 }], 400).height).toBe(400); // no room is left below
  });

  it("lets very many rows be scrolled", () => {
    const layout = heatLayout([{ heading: "", rows: 500 }], 400);
    expect(layout.height).toBe(1500);
    expect(visibleRows(layout.blocks[0], layout.rowHeight, 300, 700)).toEqual([100, 234]);
  });

  it("has a heading above each run", () => {
    const layout = heatLayout(
      [
        { heading: "a", rows: 2 },
        { heading: "b", rows: 3 }
      ],
      1000
    );
    expect(layout.blocks.map(({ first, top }) => [first, top])).toEqual([
      [0, HEADING],
      [2, 2 * HEADING + 60]
    ]);
    expect(rowAt(layout, 5)).toBe(-1);
    expect(rowAt(layout, HEADING)).toBe(0);
    expect(rowAt(layout, HEADING + 61)).toBe(-1);
    expect(rowAt(layout, topOf(layout, 4))).toBe(4);
    expect(rowAt(layout, layout.height)).toBe(-1);
  });
});
