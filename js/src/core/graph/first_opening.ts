// What is open when a graph is first shown: as much as fits the canvas with titles that can be read.

import type { LayoutResult } from "../layout/types";
import type { Hierarchy } from "../shared/hierarchy";
import { WINDOW } from "../shared/reveal";
import { AT_ONCE, LEGIBLE } from "../shared/viewport";

const DEEPEST = 4; // levels; a chain of single children says little when it is opened to its end
export const MOST = 48; // cards that a reader takes in at once
const WINDOWS = [WINDOW, 48, 32, 20, 12]; // modules of one container that are drawn at once
const MOST_TRIES = 24;

export interface Opening {
  expanded: string[];
  window: number;
}

/**
 * `layoutOf`: of a drawing with these paths open, undefined where there is too much to lay out at once; `isWorth`: whether
 * a container may be opened.
 */
export function firstOpening(
  h: Hierarchy,
  focus: number,
  kept: readonly string[],
  layoutOf: (opening: Opening) => LayoutResult | undefined,
  fitsAt: (layout: LayoutResult, zoom: number) => boolean,
  isWorth: (node: number) => boolean = () => true
): Opening {
  const fits = (opening: Opening, zoom = LEGIBLE): boolean => {
    const layout = layoutOf(opening);
    return layout !== undefined && fitsAt(layout, zoom);
  };
  const whole = { expanded: [...kept], window: WINDOW };
  const isMany = h.rows(focus).length > MOST;
  // all cards by their names alone say more than some of them in full
  if (!isMany && !fits(whole) && fits(whole, AT_ONCE)) return whole;
  const windows = isMany ? WINDOWS.filter(window => window <= MOST) : WINDOWS;
  const closed = windows.map(window => ({ expanded: [...kept], window })).find(opening => fits(opening));
  if (!closed) {
    return { expanded: [...kept], window: WINDOWS[WINDOWS.length - 1] };
  }
  let best: Opening = closed;
  let level = insides(h, [focus], isWorth);
  let tries = 0;
  for (let depth = 0; depth < DEEPEST && level.length > 0; depth++) {
    const opened: number[] = [];
    for (const alike of level) {
      const paths = alike.map(node => h.path(node));
      const next = { ...best, expanded: [...new Set([...best.expanded, ...paths])] };
      if (tries++ < MOST_TRIES && fits(next)) {
        best = next;
        opened.push(...alike);
      }
    }
    level = insides(h, opened, isWorth);
  }
  return best;
}

/** The containers directly inside, those of one class in one place together: one open beside closed ones looks like a choice. */
function insides(h: Hierarchy, nodes: readonly number[], isWorth: (node: number) => boolean): number[][] {
  return nodes.flatMap(node => {
    const groups = new Map<string, number[]>();
    for (const row of h.rows(node)) {
      if (!h.isContainer(row) || !isWorth(row)) continue;
      const alike = groups.get(h.className(row));
      if (alike) alike.push(row);
      else groups.set(h.className(row), [row]);
    }
    return [...groups.values()];
  });
}
