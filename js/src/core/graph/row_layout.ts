// A chain of modules as lines of text: left to right, then the next row.

import type { Bends, GroupLayout, Size } from "./layout_types";
import type { Point } from "../shared/viewport";

const GAP = { across: 34, down: 40 };
const AROUND_LABEL = 26; // line and arrowhead beside what is written on it
const MOST_ROWS = 60;
const TALL = 150; // more than a frame with one row of cards

/**
 * `linked`: each item leads to the next; `labels`: the width of what is written on the way there. With labels, edges
 * lead to what lies inside items: they enter tall ones from above, so these get rows of their own.
 */
export function flowLayout(
  items: Size[],
  linked: boolean,
  aspect: number,
  maxWidth: number,
  labels?: readonly number[]
): GroupLayout {
  const gaps = items.map((_, i) => Math.max(GAP.across, labels?.[i] ? labels[i] + AROUND_LABEL : 0));
  const alone = items.map(([, height]) => labels !== undefined && height > TALL);
  const rows = bestRows({ items, gaps, alone }, aspect, maxWidth);
  const corners: Point[] = [];
  const bends: Bends[] = [];
  const middles: Point[] = [];
  let y = 0;
  let width = 0;
  for (const [r, row] of rows.entries()) {
    const height = Math.max(...row.map(item => items[item][1]));
    let x = 0;
    for (const item of row) {
      corners.push([x, y + (height - items[item][1]) / 2]);
      x += items[item][0];
      width = Math.max(width, x);
      middles.push([x + gaps[item] / 2, y + height / 2]);
      x += gaps[item];
    }
    if (linked) {
      row.slice(1).forEach(() => bends.push([]));
      if (r < rows.length - 1) {
        const gutter = y + height + GAP.down / 2;
        bends.push(turn(items, corners, row, rows[r + 1][0], gutter));
        middles[row[row.length - 1]] = [(bends[bends.length - 1][0][0] + bends[bends.length - 1][1][0]) / 2, gutter];
      }
    }
    y += height + GAP.down;
  }
  return { corners, bends, labels: middles, width, height: Math.max(0, y - GAP.down) };
}

/** From below the last item of a row, through the gutter, to above the first of the next. */
function turn(items: Size[], corners: Point[], row: number[], next: number, gutter: number): Bends {
  const last = row[row.length - 1];
  return [
    [corners[last][0] + items[last][0] / 2, gutter],
    [items[next][0] / 2, gutter]
  ];
}

interface Line {
  items: Size[];
  gaps: readonly number[]; // behind each item
  alone: readonly boolean[]; // items that share their row with no other
}

function wrap({ items, gaps, alone }: Line, width: number): number[][] {
  const rows: number[][] = [];
  let used = Infinity;
  items.forEach(([w], item) => {
    const gap = item === 0 ? 0 : gaps[item - 1];
    if (used + gap + w > width || alone[item] || alone[item - 1]) {
      rows.push([]);
      used = -gap;
    }
    rows[rows.length - 1].push(item);
    used += gap + w;
  });
  return rows;
}

function extent({ items, gaps }: Line, rows: number[][]): Size {
  const across = (row: number[]) => row.reduce((sum, item) => sum + items[item][0] + gaps[item], 0);
  const widths = rows.map(row => across(row) - gaps[row[row.length - 1]]);
  const heights = rows.map(row => Math.max(...row.map(item => items[item][1])));
  return [Math.max(...widths), heights.reduce((sum, height) => sum + height + GAP.down, -GAP.down)];
}

/** The number of rows whose picture comes nearest to the aspect. */
function bestRows(line: Line, aspect: number, maxWidth: number): number[][] {
  let best: { rows: number[][]; misfit: number } | undefined;
  for (let count = 1; count <= Math.min(line.items.length, MOST_ROWS); count++) {
    const rows = wrap(line, narrowest(line, count));
    const [width, height] = extent(line, rows);
    const tooWide = width > maxWidth ? 10 * Math.log(width / maxWidth) : 0;
    const misfit = Math.abs(Math.log(width / height / aspect)) + 0.02 * count + tooWide; // fewer rows where it hardly matters
    if (!best || misfit < best.misfit) {
      best = { rows, misfit };
    }
  }
  return best?.rows ?? [];
}

/** The least width at which the items take no more than `count` rows. */
function narrowest(line: Line, count: number): number {
  let low = Math.max(...line.items.map(([w]) => w));
  let high = line.items.reduce((sum, [w], item) => sum + w + line.gaps[item], 0);
  while (high - low > 2) {
    const middle = (low + high) / 2;
    if (wrap(line, middle).length <= count) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}
