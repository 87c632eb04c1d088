// How many indices go when a ratio says so: the same numbers as mk.plan has before its dry run.

import type { Scores } from "./scores";

export type Scope = "local" | "global";

const FLOOR = 0.1; // of what an axis has: a common ranking takes no layer away altogether
const MOST_OF_ONE = 1.5; // times the share that goes of all axes
const SLACK = 1e-9; // 0.29 * 100 is a little less than 29

/** How many of `size` indices a ratio takes; never more than it says, and never all: `least` stay. */
export function gone(size: number, ratio: number, least = 1): number {
  return Math.max(0, Math.min(size - least, Math.floor(size * ratio + SLACK)));
}

/** How many indices of each axis go when the lowest scores of all axes go; `weak` says how many may go in any case. */
export function goneByRank(
  sizes: readonly number[],
  owners: Uint32Array,
  ratio: number,
  weak: readonly number[],
  floors: readonly number[] = []
): number[] {
  let left = Math.floor(owners.length * ratio + SLACK);
  const stay = [...sizes];
  const least = sizes.map((size, axis) => {
    const fair = Math.floor(size * (1 - MOST_OF_ONE * ratio) + SLACK);
    if (floors[axis] > 1) return floors[axis];
    return Math.max(1, Math.ceil(size * Math.min(FLOOR, 1 - ratio) - SLACK), Math.min(fair, size - weak[axis]));
  });
  for (let at = 0; at < owners.length && left > 0; at += 1) {
    const axis = owners[at];
    if (stay[axis] > least[axis]) {
      stay[axis] -= 1;
      left -= 1;
    }
  }
  return sizes.map((size, axis) => size - stay[axis]);
}

/** For each of `axes` how many indices go; `least` says of each how many stay in any case. */
export function goneByRatio(
  axes: readonly number[],
  sizes: readonly number[],
  ratio: number,
  scope: Scope,
  scores: Scores,
  least: readonly number[] = []
): number[] {
  const own = axes.map(axis => sizes[axis]);
  const floors = axes.map(axis => least[axis] ?? 1);
  if (scope === "local") return own.map((size, at) => gone(size, ratio, floors[at]));
  const weak = axes.map(axis => (scores.isComparable ? sizes[axis] : scores.weak(axis))); // one unit tells all
  return goneByRank(own, scores.owners(axes), ratio, weak, floors);
}
