import { describe, expect, it } from "vitest";
import { contrast } from "../../shared/stage/color";
import {
  type CellColors,
  COLOR_LEVELS,
  UNSCORED,
  rampColor,
  readCellColors,
  ScoreScale,
  cellLayout,
  corner,
  indexAt,
  indicesBetween,
  moveCursor,
  pitchFor,
  CellPainter,
  CELL_FLAGS
} from "../cell_drawing";
import { Scores } from "../draft/scores";

describe("cellLayout", () => {
  it("has smaller cells for longer axes, none too small to be hit", () => {
    const pitches = [8, 64, 256, 1000, 2048, 10_000, 100_000].map(pitchFor);
    expect(pitches).toEqual([...pitches].sort((a, b) => b - a));
    expect(pitchFor(2048)).toBeGreaterThanOrEqual(8);
    expect(Math.min(...pitches)).toBeGreaterThanOrEqual(5);
  });

  it.each([
    [2048, 800],
    [64, 300],
    [3, 1000],
    [100, 10]
  ])("wraps %i cells in lines of %i pixels, and finds each again", (size, room) => {
    const layout = cellLayout(size, room);
    expect(layout.lines).toBe(Math.ceil(size / layout.columns));
    if (room > 200) expect(layout.width).toBeLessThanOrEqual(room);
    for (let index = 0; index < size; index += 1) {
      const [x, y] = corner(layout, index);
      expect(indexAt(layout, x + layout.cell / 2, y + layout.cell / 2)).toBe(index);
    }
  });

  it("has no index beside the cells", () => {
    const layout = cellLayout(20, 140); // eight a line
    expect(layout.columns).toBe(8);
    const { width, height } = layout;
    for (const [x, y] of [
      [-1, 5],
      [5, -1],
      [width + 9, 5],
      [5, height + 1],
      [width - 2, height - 2]
    ])
      expect(indexAt(layout, x, y)).toBe(-1);
  });

  it("finds all cells on the way, however far apart two places are", () => {
    const layout = cellLayout(256, 2000);
    const middle = (index: number) => corner(layout, index).map(at => at + layout.cell / 2) as [number, number];
    expect(indicesBetween(layout, middle(3), middle(90)).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 88 }, (_, at) => 3 + at)
    );
    expect(indicesBetween(layout, middle(7), middle(7))).toEqual([7]);
  });
});

describe("CellPainter", () => {
  it("draws only the cells that look different", () => {
    const painter = new CellPainter(document.createElement("canvas"));
    const colors = readCellColors(document.body);
    const looks = new Uint16Array(2048);
    painter.reset(cellLayout(2048, 800));
    expect([painter.paint(looks, colors), painter.paint(looks, colors)]).toEqual([2048, 0]);
    looks[7] |= CELL_FLAGS.goes;
    looks[2047] |= CELL_FLAGS.goes;
    expect(painter.paint(looks, colors)).toBe(2);
    painter.reset(cellLayout(2048, 400));
    expect(painter.paint(looks, colors)).toBe(2048);
  });
});

describe.each([
  ["light", "#ffffff", "#212121"],
  ["dark", "#212121", "#e2e2e2"],
  ["high contrast", "#000000", "#ffffff"]
])("the colors in the %s theme", (_, surface, text) => {
  const element = document.createElement("div");
  element.style.setProperty("--mkg-surface", surface);
  element.style.setProperty("--mkg-text", text);
  document.body.append(element);
  const colors: CellColors = readCellColors(element);

  it("is the more the more important an index is, beginning near the ground", () => {
    const steps = colors.fills.map(fill => contrast(fill, surface));
    expect(steps).toHaveLength(COLOR_LEVELS);
    steps.slice(1).forEach((step, at) => expect(step).toBeGreaterThan(steps[at] - 0.02)); // channels are whole numbers
    for (let at = 8; at < COLOR_LEVELS; at += 1) expect(steps[at]).toBeGreaterThan(steps[at - 8]);
    expect([steps[0] < 2, steps[COLOR_LEVELS - 1] > 10]).toEqual([true, true]);
    expect([rampColor(0, colors.dark), rampColor(1, colors.dark)]).toEqual([
      colors.fills[0],
      colors.fills[COLOR_LEVELS - 1]
    ]);
  });

  it("has nothing that cannot be found on the ground", () => {
    const { frame, dots, unscored, kept, taken, stale, range } = colors;
    for (const color of [frame, ...dots, unscored, kept, taken, stale, range])
      expect(contrast(color, surface)).toBeGreaterThanOrEqual(3);
  });
});

describe("the keys", () => {
  const layout = cellLayout(20, 140);

  it.each([
    ["ArrowLeft", 0, 0],
    ["ArrowLeft", 8, 7],
    ["ArrowRight", 19, 19],
    ["ArrowDown", 3, 11],
    ["ArrowDown", 13, 19],
    ["ArrowDown", 17, "below"],
    ["ArrowUp", 3, "above"],
    ["ArrowUp", 17, 9],
    ["Home", 12, 0],
    ["End", 12, 19],
    ["a", 12, null]
  ])("%s leads from %i to %s", (key, from, to) => expect(moveCursor(key, from, layout)).toBe(to));
});

describe("Shades", () => {
  const values = Float64Array.of(0, 1, 2, 0, 10, NaN);
  const scores = new Scores(values, [3, 3]);

  it("span each axis, or all together", () => {
    const own = new ScoreScale(scores, [3, 3], [0, 1], "local");
    expect([...own.of(0)]).toEqual([0, Math.round((COLOR_LEVELS - 1) / 2), COLOR_LEVELS - 1]);
    expect([...own.of(1)]).toEqual([0, COLOR_LEVELS - 1, UNSCORED]);
    const flat = new Scores(Float64Array.of(1, 1, 1, 0, 1, 2), [3, 3]);
    const common = new ScoreScale(flat, [3, 3], [0, 1], "global");
    expect([...common.of(0)]).toEqual(Array(3).fill(common.of(1)[1]));
    expect([...common.of(1)]).toEqual([0, Math.round((COLOR_LEVELS - 1) / 2), COLOR_LEVELS - 1]);
  });

  it("leave cells without scores apart", () => {
    expect([...new ScoreScale(null, [2], [0], "local").of(0)]).toEqual([UNSCORED, UNSCORED]);
  });
});
