import { describe, expect, it } from "vitest";
import { EdgeGrid } from "./edge_grid";
import type { Point } from "../shared/viewport";

const lines: Point[][] = [
  [[0, 0], [1000, 0], [1000, 700]], // prettier-ignore
  [
    [-300, -300],
    [900, 500]
  ],
  [
    [50, 40],
    [50, 40]
  ]
];

/** As slow and as simple as can be. */
function nearest(all: readonly (readonly Point[])[], [x, y]: Point): { line: number; distance: number } {
  let best = { line: -1, distance: Infinity };
  all.forEach((points, line) => {
    for (let i = 1; i < points.length; i++) {
      const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
      for (let step = 0; step <= 4000; step++) {
        const [px, py] = [x0 + ((x1 - x0) * step) / 4000, y0 + ((y1 - y0) * step) / 4000];
        const distance = Math.hypot(px - x, py - y);
        if (distance < best.distance) best = { line, distance };
      }
    }
  });
  return best;
}

describe("EdgeGrid", () => {
  const grid = new EdgeGrid(lines);

  it("finds the line beside a point, and none that is farther away", () => {
    expect(grid.nearest([500, 4], 5)).toBe(0);
    expect(grid.nearest([500, 6], 5)).toBeNull();
    expect(grid.nearest([1003, 650], 5)).toBe(0);
    expect(grid.nearest([50, 44], 5)).toBe(2);
    expect(grid.nearest([2000, 2000], 400)).toBeNull();
  });

  it("finds the same as a look at all of them", () => {
    let [seed, found] = [7, 0];
    const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    for (let i = 0; i < 60; i++) {
      const at: Point = [random() * 1400 - 350, random() * 1100 - 350];
      const best = nearest(lines, at);
      const reach = 120;
      if (Math.abs(best.distance - reach) < 1) continue;
      expect(grid.nearest(at, reach)).toBe(best.distance <= reach ? best.line : null);
      found += best.distance <= reach ? 1 : 0;
    }
    expect(found).toBeGreaterThan(10);
  });

  it("answers for 2,000 long lines in far less than a millisecond", () => {
    const many = Array.from({ length: 2000 }, (_, i): Point[] => {
      const [x, y] = [(i % 50) * 240, Math.floor(i / 50) * 300];
      return [[x, y], [x, y + 120], [x + 1500, y + 120], [x + 1500, y + 900]]; // prettier-ignore
    });
    const large = new EdgeGrid(many);
    large.nearest([0, 0], 5);
    const begin = performance.now();
    const asked = 2000;
    for (let i = 0; i < asked; i++) large.nearest([(i * 37) % 12000, (i * 91) % 12000], 12);
    expect((performance.now() - begin) / asked).toBeLessThan(1);
  });
});
