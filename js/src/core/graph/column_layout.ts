// Ranks side by side, each wrapped into as many columns as the shape of the canvas asks for.

import type { GroupLayout, Size } from "./layout_types";

const GAP = { column: 22, rank: 76, row: 16 };

export function columnLayout(items: Size[], ranks: readonly number[], edges: number, aspect: number): GroupLayout {
  const members: number[][] = [];
  ranks.forEach((rank, item) => (members[rank] ??= []).push(item));
  const used = members.filter(Boolean);
  const rows = bestRows(items, used, aspect);
  const { corners, width, height } = place(items, used, rows);
  return { corners, bends: Array.from({ length: edges }, () => []), width, height };
}

/** The number of rows whose picture comes nearest to the aspect. */
function bestRows(items: Size[], ranks: number[][], aspect: number): number {
  const most = Math.max(...ranks.map(rank => rank.length));
  let best = { rows: most, misfit: Infinity };
  for (let rows = Math.min(4, most); rows <= most; rows++) {
    const { width, height } = place(items, ranks, rows);
    const misfit = Math.abs(Math.log(width / height / aspect));
    if (misfit < best.misfit) {
      best = { rows, misfit };
    }
  }
  return best.rows;
}

function place(items: Size[], ranks: number[][], rows: number): Pick<GroupLayout, "corners" | "width" | "height"> {
  const corners: [number, number][] = items.map(() => [0, 0]);
  const heights: number[] = [];
  const columns: number[][] = [];
  let x = 0;
  for (const rank of ranks) {
    const count = Math.ceil(rank.length / rows);
    const each = Math.ceil(rank.length / count); // columns of one rank are of even length
    for (let at = 0; at < rank.length; at += each) {
      const column = rank.slice(at, at + each);
      let y = 0;
      for (const item of column) {
        corners[item] = [x, y];
        y += items[item][1] + GAP.row;
      }
      columns.push(column);
      heights.push(y - GAP.row);
      x += Math.max(...column.map(item => items[item][0])) + GAP.column;
    }
    x += GAP.rank - GAP.column;
  }
  const height = Math.max(...heights);
  columns.forEach((column, c) => column.forEach(item => (corners[item][1] += (height - heights[c]) / 2)));
  return { corners, width: x - GAP.rank, height };
}
