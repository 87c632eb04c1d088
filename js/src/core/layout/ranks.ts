// Which column each item stands in: behind all that it reads.

import { BORDER, type Drawing } from "./types";

export interface Arc {
  from: number;
  to: number;
}

/** The arcs between items, once each. */
export function arcsOf({ nets, items }: Drawing): Arc[] {
  const seen = new Set<number>();
  const arcs: Arc[] = [];
  for (const { start, ends } of nets) {
    for (const { item } of ends) {
      const key = start.item * items.length + item;
      if (start.item !== BORDER && item !== BORDER && start.item !== item && !seen.has(key)) {
        seen.add(key);
        arcs.push({ from: start.item, to: item });
      }
    }
  }
  return arcs;
}

/** Whether an arc leads back: within a cycle, from a later item to an earlier one. */
export function backward(count: number, arcs: readonly Arc[]): (from: number, to: number) => boolean {
  const component = components(count, arcs);
  return (from, to) => from >= to && component[from] === component[to];
}

/** The number of the strongly connected component of each item (Tarjan, without recursion). */
function components(count: number, arcs: readonly Arc[]): Int32Array {
  const next = successors(count, arcs);
  const index = new Int32Array(count).fill(-1);
  const low = new Int32Array(count);
  const component = new Int32Array(count).fill(-1);
  const at = new Int32Array(count);
  const stack: number[] = [];
  let [clock, found] = [0, 0];
  for (let root = 0; root < count; root++) {
    const path = index[root] < 0 ? [root] : [];
    while (path.length > 0) {
      const node = path[path.length - 1];
      if (index[node] < 0) {
        index[node] = low[node] = clock++;
        stack.push(node);
      }
      if (at[node] < next[node].length) {
        const to = next[node][at[node]++];
        if (index[to] < 0) path.push(to);
        else if (component[to] < 0) low[node] = Math.min(low[node], index[to]);
        continue;
      }
      path.pop();
      const above = path[path.length - 1];
      if (above !== undefined) low[above] = Math.min(low[above], low[node]);
      if (low[node] === index[node]) {
        for (let member = stack.pop(); member !== undefined; member = stack.pop()) {
          component[member] = found;
          if (member === node) break;
        }
        found++;
      }
    }
  }
  return component;
}

function successors(count: number, arcs: readonly Arc[]): number[][] {
  const next: number[][] = Array.from({ length: count }, () => []);
  arcs.forEach(({ from, to }) => next[from].push(to));
  return next;
}

/** The longest way to each item; what reads nothing stands just before its first reader. `arcs` have no cycle. */
export function ranksOf(count: number, arcs: readonly Arc[]): number[] {
  const next = successors(count, arcs);
  const waiting = new Int32Array(count);
  arcs.forEach(({ to }) => waiting[to]++);
  const isSource = Array.from(waiting, left => left === 0);
  const ranks = new Array<number>(count).fill(0);
  const ready = ranks.map((_, item) => item).filter(item => isSource[item]);
  for (let item = ready.pop(); item !== undefined; item = ready.pop()) {
    for (const to of next[item]) {
      ranks[to] = Math.max(ranks[to], ranks[item] + 1);
      if (--waiting[to] === 0) ready.push(to);
    }
  }
  ranks.forEach((_, item) => {
    if (isSource[item] && item > 0 && next[item].length > 0) {
      ranks[item] = Math.max(0, Math.min(...next[item].map(to => ranks[to])) - 1);
    }
  });
  return ranks;
}
