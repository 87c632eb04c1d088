import { describe, expect, it } from "vitest";
import { seeded } from "../../testing/layouts";
import { breakRows, type Column } from "./rows";

const CANVAS = { width: 1300, height: 750, isFixed: true, most: Infinity };
const alike = (count: number, column: Column = { width: 180, height: 60, crossing: 1 }) =>
  Array.from({ length: count }, () => ({ ...column }));
const widthsOf = (columns: readonly Column[], rows: readonly number[]) =>
  rows.map((first, at) => columns.slice(first, rows[at + 1]).reduce((sum, { width }) => sum + width, 0));

describe("breakRows", () => {
  it("breaks nothing that fits", () => {
    expect(breakRows(alike(6), CANVAS)).toEqual([0]);
    expect(breakRows(alike(1), CANVAS)).toEqual([0]);
  });

  it("breaks a long chain into rows of like width that fit", () => {
    const columns = alike(40);
    const rows = breakRows(columns, CANVAS);
    const widths = widthsOf(columns, rows);
    expect(rows.length).toBeGreaterThan(2);
    expect(Math.max(...widths)).toBeLessThan(1.4 * CANVAS.width);
    expect(Math.min(...widths.slice(0, -1))).toBeGreaterThan(0.5 * Math.max(...widths));
  });

  it("makes rows no wider than can be read, however many there are", () => {
    const columns = alike(300);
    expect(Math.max(...widthsOf(columns, breakRows(columns, { ...CANVAS, isFixed: false, most: 2600 })))).toBeLessThan(
      2600
    );
  });

  it("breaks where few lines cross", () => {
    const columns = alike(16).map((column, at) => ({ ...column, crossing: at === 7 ? 1 : 6 }));
    expect(breakRows(columns, CANVAS)).toEqual([0, 8]);
  });

  it("gives every column one row, in order, for whatever columns there are", () => {
    for (let seed = 0; seed < 60; seed++) {
      const next = seeded(seed);
      const columns = Array.from({ length: 1 + Math.floor(next() * 120) }, () => {
        return { width: 1 + next() * 900, height: next() * 700, crossing: Math.floor(next() * 9) };
      });
      const rows = breakRows(columns, { ...CANVAS, isFixed: next() < 0.5 });
      expect(rows[0]).toBe(0);
      expect(rows.every((first, at) => at === 0 || first > rows[at - 1])).toBe(true);
      expect(rows[rows.length - 1]).toBeLessThan(columns.length);
    }
  });
});
