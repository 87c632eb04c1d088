import { describe, expect, it } from "vitest";
import { faultsOf, requestOf, type Sketch } from "../../testing/layouts";
import { Layouter } from "./layouter";
import type { Line, Size } from "./types";

const CARD: Size = [160, 60];
const COUNT = 40;
const ROOM: Size = [1356, 756];

/** A chain that breaks into rows, with one more line: too long for any row. */
function longLine(from: number, to: number): { line: Line; rows: number[]; tops: number[] } {
  const chain = Array.from({ length: COUNT - 1 }, (_, at): Sketch["links"][number] => [at, at + 1, ""]);
  const sketch = { parent: Array<number>(COUNT).fill(-1), sizes: Array<Size>(COUNT).fill(CARD), room: ROOM };
  const request = requestOf({ ...sketch, links: [...chain, [from, to, ""]] });
  const result = new Layouter().run(request);
  expect(faultsOf(request, result)).toEqual([]);
  const [{ lines, rows }] = result.groups;
  return { line: lines[from][lines[from].length - 1], rows, tops: result.boxes.map(([, y]) => y) };
}

const lengthOf = (line: Line) =>
  line.slice(1).reduce((sum, [x, y], at) => sum + Math.abs(x - line[at][0]) + Math.abs(y - line[at][1]), 0);

/** Whether a line goes one way and comes back close beside itself. */
function comesBack(line: Line): boolean {
  const steps = line.slice(1).map(([x, y], at) => [x - line[at][0], y - line[at][1]]);
  return steps.slice(2).some(([x, y], at) => {
    const [one, turn] = [steps[at], steps[at + 1]];
    const isOpposite = one[0] * x + one[1] * y < 0;
    return isOpposite && Math.hypot(x, y) > 24 && Math.hypot(...one) > 24 && Math.hypot(...turn) < 32;
  });
}

describe("a line over several rows", () => {
  it.each([
    [2, 20],
    [0, 30],
    [5, 39],
    [9, 27],
    [14, 36]
  ])("from card %i to card %i never runs beside itself", (from, to) => {
    const { line, rows } = longLine(from, to);
    expect(rows.length).toBeGreaterThan(2);
    expect(comesBack(line)).toBe(false);
  });

  it("goes past rows in which it has no end, not along them", () => {
    const { line, rows, tops } = longLine(0, 30);
    const passed = rows.filter(first => tops[first] > tops[0] && tops[first] < tops[30]).length;
    expect(passed).toBeGreaterThan(0);
    expect(lengthOf(line)).toBeLessThan((2 + passed) * ROOM[0]);
  });
});
