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

  it("keeps rows that the reader knows where others would be little better", () => {
    const columns = alike(24);
    const rows = breakRows(columns, CANVAS);
    const wider = columns.map((column, at) => (at === rows[1] - 2 ? { ...column, width: 420 } : column));
    expect(breakRows(wider, CANVAS)).not.toEqual(rows);
    expect(breakRows(wider, CANVAS, rows)).toEqual(rows);
    expect(breakRows(columns, CANVAS, rows)).toEqual(rows);
  });

  it("breaks one row where what has opened in it is too wide, and leaves the others", () => {
    const columns = alike(24);
    const rows = breakRows(columns, CANVAS);
    const at = rows[1] - 2;
    const wider = columns.map((column, place) => (place === at ? { ...column, width: 1200 } : column));
    const mended = breakRows(wider, CANVAS, rows);
    expect(mended).toHaveLength(rows.length + 1);
    expect(mended).toEqual(expect.arrayContaining(rows));
    expect(breakRows(wider, CANVAS)).not.toEqual(expect.arrayContaining(rows));
  });

  it("gives up rows that cost too much", () => {
    const columns = alike(40);
    expect(breakRows(columns, CANVAS, [0])).toEqual(breakRows(columns, CANVAS));
    expect(
      breakRows(
        columns,
        CANVAS,
        columns.map((_, at) => at)
      )
    ).toEqual(breakRows(columns, CANVAS));
  });

  it("gives every column one row, in order, for whatever columns there are", () => {
    for (let seed = 0; seed < 60; seed++) {
      const next = seeded(seed);
      const columns = Array.from({ length: 1 + Math.floor(next() * 120) }, () => {
        return { width: 1 + next() * 900, height: next() * 700, crossing: Math.floor(next() * 9) };
      });
      const before = columns.map((_, at) => at).filter(() => next() < 0.2);
      const rows = breakRows(columns, { ...CANVAS, isFixed: next() < 0.5 }, seed % 2 ? before : []);
      expect(rows[0]).toBe(0);
      expect(rows.every((first, at) => at === 0 || first > rows[at - 1])).toBe(true);
      expect(rows[rows.length - 1]).toBeLessThan(columns.length);
    }
  });
});
