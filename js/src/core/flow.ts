// A chain of modules as lines of text: left to right, then the next row.

import type { Bends, GroupLayout, Size } from "./layout";

const GAP = { across: 34, down: 40 };

/** `linked`: each item leads to the next. */
export function flowLayout(items: Size[], linked: boolean, aspect: number, maxWidth: number): GroupLayout {
  const rows = balanced(items, bestWidth(items, aspect, maxWidth));
  const corners: [number, number][] = [];
  const bends: Bends[] = [];
  let y = 0;
  let width = 0;
  for (const [r, row] of rows.entries()) {
    const height = Math.max(...row.map(item => items[item][1]));
    let x = 0;
    for (const item of row) {
      corners.push([x, y + (height - items[item][1]) / 2]);
      x += items[item][0] + GAP.across;
    }
    width = Math.max(width, x - GAP.across);
    if (linked) {
      row.slice(1).forEach(() => bends.push([]));
      if (r < rows.length - 1) {
        bends.push(turn(items, corners, row, rows[r + 1][0], y + height + GAP.down / 2));
      }
    }
    y += height + GAP.down;
  }
  return { corners, bends, width, height: Math.max(0, y - GAP.down) };
}

/** From below the last item of a row, through the gutter, to above the first of the next. */
function turn(items: Size[], corners: [number, number][], row: number[], next: number, gutter: number): Bends {
  const last = row[row.length - 1];
  return [
    [corners[last][0] + items[last][0] / 2, gutter],
    [items[next][0] / 2, gutter]
  ];
}

function wrap(items: Size[], width: number): number[][] {
  const rows: number[][] = [];
  let used = Infinity;
  items.forEach(([w], item) => {
    if (used + GAP.across + w > width) {
      rows.push([]);
      used = -GAP.across;
    }
    rows[rows.length - 1].push(item);
    used += GAP.across + w;
  });
  return rows;
}

function extent(items: Size[], rows: number[][]): Size {
  const widths = rows.map(row => row.reduce((sum, item) => sum + items[item][0] + GAP.across, -GAP.across));
  const heights = rows.map(row => Math.max(...row.map(item => items[item][1])));
  return [Math.max(...widths), heights.reduce((sum, height) => sum + height + GAP.down, -GAP.down)];
}

/** The row width whose picture comes nearest to the aspect. */
function bestWidth(items: Size[], aspect: number, maxWidth: number): number {
  const total = items.reduce((sum, [w]) => sum + w + GAP.across, -GAP.across);
  const widest = Math.max(...items.map(([w]) => w));
  let best = { width: Math.max(widest, Math.min(total, maxWidth)), misfit: Infinity };
  for (let parts = 1; parts <= Math.min(items.length, 40); parts++) {
    const width = Math.max(widest, Math.min(maxWidth, total / parts + widest / 4));
    const [w, h] = extent(items, wrap(items, width));
    const misfit = Math.abs(Math.log(w / h / aspect)) + 0.02 * parts; // fewer rows where it hardly matters
    if (misfit < best.misfit) {
      best = { width, misfit };
    }
  }
  return best.width;
}

/** As many rows as `width` needs, evened out. */
function balanced(items: Size[], width: number): number[][] {
  const rows = wrap(items, width);
  let low = Math.max(...items.map(([w]) => w));
  let high = width;
  for (let step = 0; step < 12; step++) {
    const middle = (low + high) / 2;
    if (wrap(items, middle).length <= rows.length) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return wrap(items, high);
}
