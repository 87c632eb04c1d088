// Which line lies under the pointer, found without looking at all of them.

import type { Point } from "../shared/viewport";

const CELL = 160; // units of the picture

export class EdgeGrid {
  private readonly cells = new Map<string, number[]>(); // places of segments
  private readonly segments: { readonly line: number; readonly from: Point; readonly to: Point }[] = [];

  constructor(lines: readonly (readonly Point[])[]) {
    lines.forEach((points, line) => {
      for (let at = 1; at < points.length; at++) this.add(line, points[at - 1], points[at]);
    });
  }

  /** The line that passes nearest to a point, no farther than `reach`. */
  nearest([x, y]: Point, reach: number): number | null {
    let best: { line: number | null; distance: number } = { line: null, distance: reach };
    const [left, right] = [cellOf(x - reach), cellOf(x + reach)];
    const [top, bottom] = [cellOf(y - reach), cellOf(y + reach)];
    for (let column = left; column <= right; column++) {
      for (let row = top; row <= bottom; row++) {
        for (const place of this.cells.get(`${column} ${row}`) ?? []) {
          const { line, from, to } = this.segments[place];
          const distance = distanceTo(from, to, x, y);
          if (distance < best.distance || (distance === best.distance && best.line === null)) best = { line, distance };
        }
      }
    }
    return best.line;
  }

  /** In each column of cells that it crosses a segment is as high as it is there. */
  private add(line: number, from: Point, to: Point): void {
    const place = this.segments.push({ line, from, to }) - 1;
    const [start, end] = from[0] <= to[0] ? [from, to] : [to, from];
    const slope = end[0] === start[0] ? 0 : (end[1] - start[1]) / (end[0] - start[0]);
    const heightAt = (x: number) => start[1] + slope * (x - start[0]);
    for (let column = cellOf(start[0]); column <= cellOf(end[0]); column++) {
      const [left, right] = [Math.max(start[0], column * CELL), Math.min(end[0], (column + 1) * CELL)];
      const heights = slope === 0 ? [start[1], end[1]] : [heightAt(left), heightAt(right)];
      for (let row = cellOf(Math.min(...heights)); row <= cellOf(Math.max(...heights)); row++) {
        const key = `${column} ${row}`;
        const cell = this.cells.get(key);
        if (cell) cell.push(place);
        else this.cells.set(key, [place]);
      }
    }
  }
}

function cellOf(length: number): number {
  return Math.floor(length / CELL);
}

function distanceTo([x0, y0]: Point, [x1, y1]: Point, x: number, y: number): number {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1);
  const share = Math.min(1, Math.max(0, along));
  return Math.hypot(x0 + share * dx - x, y0 + share * dy - y);
}
