// One group as a layered drawing: data flows from left to right, and on in the next row; lines are orthogonal.

import { arcsOf, type Arc, backward, ranksOf } from "./ranks";
import { type BackEdge, type Joints, jointsOf, Layers } from "./layers";
import { breakRows, type Column } from "./rows";
import { Geometry } from "./geometry";
import { orderLayers } from "./order";
import { spreadTall } from "./tall";
import { uLayout } from "./u_layout";
import { BORDER, type Drawing, type RowedLayout } from "./types";

const CHANNEL = 40; // what a way between columns takes, roughly
const LINE = 14; // and a line that passes a column
const GAP = 22;

export function layeredLayout(drawing: Drawing): RowedLayout {
  const { items, nets } = drawing;
  const arcs = arcsOf(drawing);
  const isBack = backward(items.length, arcs);
  const forward = arcs.filter(({ from, to }) => !isBack(from, to));
  const narrow = ranksOf(items.length, [...forward, ...looseArcs(drawing)]);
  const asU = forward.length === arcs.length ? uLayout(drawing, narrow, arcs) : null;
  if (asU) return { ...asU, rows: [] };
  const joints = jointsOf(drawing, isBack);
  const ranks = spreadTall(drawing, narrow, joints);
  const columns = columnsOf(drawing, ranks, isBack, joints);
  const before = (drawing.rows ?? []).map(item => ranks[item]);
  const firsts = breakRows(columns, drawing.room, before);
  const spread = spreadRanks(
    columns.length,
    firsts,
    nets.some(({ start }) => start.item === BORDER)
  );
  const isLeaving = nets.some(({ ends }) => ends.some(({ item }) => item === BORDER));
  const count = spread.ranks[columns.length - 1] + (isLeaving ? 2 : 1);
  const layers = new Layers(
    drawing,
    ranks.map(rank => spread.ranks[rank]),
    count,
    isBack,
    joints
  );
  orderLayers(layers);
  const rows = firsts.map(first => ranks.indexOf(first)).filter(item => item >= 0);
  return { ...new Geometry(drawing, layers, spread.firsts, backEdges(drawing, isBack)).layout(), rows };
}

/** What nothing leads to or from stands behind what comes before it. */
function looseArcs({ items, nets }: Drawing): Arc[] {
  const linked = new Set(nets.flatMap(({ start, ends }) => [start.item, ...ends.map(({ item }) => item)]));
  return items.flatMap((_, item) => (item > 0 && !linked.has(item) ? [{ from: item - 1, to: item }] : []));
}

function backEdges({ nets }: Drawing, isBack: (from: number, to: number) => boolean): BackEdge[] {
  return nets.flatMap(({ start, ends }, net) =>
    ends.flatMap(({ item }, end) =>
      start.item !== BORDER && item !== BORDER && isBack(start.item, item) ? [{ net, end }] : []
    )
  );
}

/** What each rank will take, roughly: known before there is an order. */
function columnsOf(
  drawing: Drawing,
  ranks: readonly number[],
  isBack: (a: number, b: number) => boolean,
  joints: Joints
): Column[] {
  const count = Math.max(0, ...ranks) + 1;
  const columns = Array.from({ length: count }, () => ({ width: 0, height: 0, crossing: 0 }));
  drawing.items.forEach(([width, height], item) => {
    const column = columns[ranks[item]];
    column.width = Math.max(column.width, width);
    column.height += height + GAP;
  });
  const labels = new Array<number>(count).fill(0);
  const starting = new Int32Array(count + 1); // lines that begin to pass a rank, less those that end
  for (const { start, ends, label } of drawing.nets) {
    const from = start.item === BORDER ? 0 : ranks[start.item];
    const forward = ends.filter(
      ({ item }) => item === BORDER || (!joints.has(item) && (start.item === BORDER || !isBack(start.item, item)))
    );
    const last = Math.max(from, ...forward.map(({ item }) => (item === BORDER ? count - 1 : ranks[item])));
    starting[from]++;
    starting[last]--;
    if (start.item !== BORDER) labels[from] = Math.max(labels[from], label);
  }
  joints.forEach((nets, item) => {
    const sources = nets.map(net => drawing.nets[net].start.item);
    starting[sources.reduce((first, source) => Math.min(first, source === BORDER ? 0 : ranks[source]), ranks[item])]++;
    starting[ranks[item]]--;
  });
  let passing = 0;
  columns.forEach((column, rank) => {
    column.height += LINE * Math.max(0, passing - 1);
    passing += starting[rank];
    column.crossing = passing;
    column.width += Math.max(CHANNEL, labels[rank] + 26) + 5 * Math.min(6, Math.max(0, passing - 1));
  });
  return columns;
}

/** Room for two layers between rows, in which lines leave the one and enter the other, and for one at the left border. */
function spreadRanks(count: number, firsts: readonly number[], isEntered: boolean) {
  const ranks: number[] = [];
  const found: number[] = [0];
  let next = isEntered ? 1 : 0;
  for (let rank = 0; rank < count; rank++) {
    if (rank > 0 && firsts.includes(rank)) {
      found.push(next + 1);
      next += 2;
    }
    ranks.push(next++);
  }
  return { ranks, firsts: found };
}
