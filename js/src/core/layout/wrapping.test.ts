import { describe, expect, it } from "vitest";
import { CANVAS, faultsOf, requestOf, seeded, type Sketch } from "../../testing/layouts";
import * as wrapping from "./wrapping";
import type { Column } from "./wrapping";
import { Layouter } from "./layouter";
import type { LayoutRequest, LayoutResult, Room, Size } from "./types";

const ROOM: Room = { width: 1300, height: 750, isFixed: true, most: Infinity, holds: [1857, 1071] };
const breakRows = (...given: Parameters<typeof wrapping.breakRows>) => wrapping.breakRows(...given).rows;
const alike = (count: number, column: Column = { width: 180, height: 60, crossing: 1, skips: 0 }) =>
  Array.from({ length: count }, () => ({ ...column }));
const widthsOf = (columns: readonly Column[], rows: readonly number[]) =>
  rows.map((first, at) => columns.slice(first, rows[at + 1]).reduce((sum, { width }) => sum + width, 0));

describe("breakRows", () => {
  it("breaks nothing that fits", () => {
    expect(breakRows(alike(6), ROOM)).toEqual([0]);
    expect(breakRows(alike(1), ROOM)).toEqual([0]);
  });

  it("breaks a long chain into rows of like width that fit", () => {
    const columns = alike(40);
    const rows = breakRows(columns, ROOM);
    const widths = widthsOf(columns, rows);
    expect(rows.length).toBeGreaterThan(2);
    expect(Math.max(...widths)).toBeLessThan(1.4 * ROOM.width);
    expect(Math.min(...widths.slice(0, -1))).toBeGreaterThan(0.5 * Math.max(...widths));
  });

  it("makes rows no wider than can be read, however many there are", () => {
    const columns = alike(300);
    expect(Math.max(...widthsOf(columns, breakRows(columns, { ...ROOM, isFixed: false, most: 2600 })))).toBeLessThan(
      2600
    );
  });

  it("breaks where few lines cross", () => {
    const columns = alike(16).map((column, at) => ({ ...column, crossing: at === 7 ? 1 : 6 }));
    expect(breakRows(columns, ROOM)).toEqual([0, 8]);
  });

  it("keeps rows that the reader knows where others would be little better", () => {
    const columns = alike(24);
    const rows = breakRows(columns, ROOM);
    const wider = columns.map((column, at) => (at === rows[1] - 2 ? { ...column, width: 420 } : column));
    expect(breakRows(wider, ROOM)).not.toEqual(rows);
    expect(breakRows(wider, ROOM, rows)).toEqual(rows);
    expect(breakRows(columns, ROOM, rows)).toEqual(rows);
  });

  it("breaks one row where what has opened in it is too wide, and leaves the others", () => {
    const columns = alike(24);
    const rows = breakRows(columns, ROOM);
    const at = rows[1] - 2;
    const wider = columns.map((column, place) => (place === at ? { ...column, width: 1200 } : column));
    const mended = breakRows(wider, ROOM, rows);
    expect(mended).toHaveLength(rows.length + 1);
    expect(mended).toEqual(expect.arrayContaining(rows));
    expect(breakRows(wider, ROOM)).not.toEqual(expect.arrayContaining(rows));
  });

  it("gives up rows that cost too much", () => {
    const columns = alike(40);
    expect(breakRows(columns, ROOM, [0])).toEqual(breakRows(columns, ROOM));
    expect(
      breakRows(
        columns,
        ROOM,
        columns.map((_, at) => at)
      )
    ).toEqual(breakRows(columns, ROOM));
  });

  it("gives every column one row, in order, for whatever columns there are", () => {
    for (let seed = 0; seed < 60; seed++) {
      const next = seeded(seed);
      const columns = Array.from({ length: 1 + Math.floor(next() * 120) }, () => {
        return { width: 1 + next() * 900, height: next() * 700, crossing: Math.floor(next() * 9), skips: 0 };
      });
      const before = columns.map((_, at) => at).filter(() => next() < 0.2);
      const rows = breakRows(columns, { ...ROOM, isFixed: next() < 0.5 }, seed % 2 ? before : []);
      expect(rows[0]).toBe(0);
      expect(rows.every((first, at) => at === 0 || first > rows[at - 1])).toBe(true);
      expect(rows[rows.length - 1]).toBeLessThan(columns.length);
    }
  });
});

/** Alike cards between one source and one sink; `ways`: what leads from each card on. */
function branches(count: number, ways: (branch: number) => [number, number][], extra = 0): Sketch {
  const all = count + 2 + extra;
  return {
    parent: Array.from({ length: all }, () => -1),
    sizes: Array.from({ length: all }, (): Size => [160, 60]),
    links: Array.from({ length: count }, (_, at) => [[0, at + 1] as [number, number], ...ways(at + 1)])
      .flat()
      .map(([from, to]) => [from, to, ""])
  };
}

const toSink = (count: number) => branches(count, branch => [[branch, count + 1]]);

function sound(request: LayoutRequest): LayoutResult {
  const result = new Layouter().run(request);
  expect(faultsOf(request, result)).toEqual([]);
  return result;
}

const columnsOf = ({ boxes }: LayoutResult, first: number, last: number): number[] =>
  [...new Set(boxes.slice(first, last + 1).map(([x, , width]) => Math.round(x + width / 2)))].sort((a, b) => a - b);

describe("very many cards beside each other", () => {
  it("stand in several columns, in order, as wide as can be read", () => {
    sound(requestOf(toSink(100)));
    const result = new Layouter().run(requestOf(toSink(400))); // too much to compare all lines with each other
    const columns = columnsOf(result, 1, 400);
    expect(columns.length).toBeGreaterThan(3);
    expect(result.bounds[2] * 0.7).toBeLessThan(CANVAS[0]);
    expect(result.bounds[3]).toBeLessThan(400 * 82 * 0.35);
    const places = result.boxes.slice(1, 401).map(([x, , width]) => columns.indexOf(Math.round(x + width / 2)));
    expect(places).toEqual([...places].sort((a, b) => a - b));
  });

  it("are passed by one line from the source and one to the sink", () => {
    const result = sound(requestOf(toSink(60)));
    const columns = columnsOf(result, 1, 60);
    expect(columns.length).toBeGreaterThan(1);
    const [last] = columns.slice(-1);
    const levels = new Set<number>();
    for (const line of result.groups[0].lines.flat()) {
      line.slice(1).forEach(([x, y], at) => {
        const [fromX, fromY] = line[at];
        if (fromY === y && fromX < last && x > last) levels.add(Math.round(y));
      });
    }
    expect(levels.size).toBe(1); // past the last column only what comes together before the sink
  });

  it("stay in one column where that fits, or where a line of each would have to pass", () => {
    expect(columnsOf(sound(requestOf(toSink(8))), 1, 8)).toHaveLength(1);
    const apart = branches(30, branch => [[branch, branch + 30]], 30); // each to a card of its own
    expect(columnsOf(sound(requestOf(apart)), 1, 30)).toHaveLength(1);
  });

  it("do so in a frame too", () => {
    const { sizes, links } = toSink(30);
    const frame: Sketch = {
      parent: [-1, ...sizes.map(() => 0), -1],
      sizes: [[200, 0], ...sizes, [160, 60]],
      links: [...links.map(([from, to]): Sketch["links"][number] => [from + 1, to + 1, ""]), [32, 33, ""]]
    };
    expect(columnsOf(sound(requestOf(frame)), 2, 31).length).toBeGreaterThan(1);
  });
});
