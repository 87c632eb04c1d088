// A chain of modules as lines of text: left to right, then the next row.

import type { Bends, GroupLayout, Size } from "./layout";

const GAP = { across: 34, down: 40 };
const MOST_ROWS = 60;

/** `linked`: each item leads to the next. */
export function flowLayout(items: Size[], linked: boolean, aspect: number, maxWidth: number): GroupLayout {
  const rows = bestRows(items, aspect, maxWidth);
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

/** The number of rows whose picture comes nearest to the aspect. */
function bestRows(items: Size[], aspect: number, maxWidth: number): number[][] {
  let best: { rows: number[][]; misfit: number } | undefined;
  for (let count = 1; count <= Math.min(items.length, MOST_ROWS); count++) {
    const rows = wrap(items, narrowest(items, count));
    const [width, height] = extent(items, rows);
    const tooWide = width > maxWidth ? 10 * Math.log(width / maxWidth) : 0;
    const misfit = Math.abs(Math.log(width / height / aspect)) + 0.02 * count + tooWide; // fewer rows where it hardly matters
    if (!best || misfit < best.misfit) {
      best = { rows, misfit };
    }
  }
  return best?.rows ?? [];
}

/** The least width at which the items take no more than `count` rows. */
function narrowest(items: Size[], count: number): number {
  let low = Math.max(...items.map(([w]) => w));
  let high = items.reduce((sum, [w]) => sum + w + GAP.across, 0);
  while (high - low > 2) {
    const middle = (low + high) / 2;
    if (wrap(items, middle).length <= count) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}
