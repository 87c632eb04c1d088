// The expansion of a graph, or of two that are compared, when they are first shown: as much as fits the canvas legibly.

import type { Size } from "../layout/types";
import type { Hierarchy } from "../shared/model/hierarchy";
import { WINDOW } from "../shared/model/expansion";
import { MIN_WHOLE_ZOOM, type Extent, LEGIBLE_ZOOM, MARGIN } from "../shared/stage/viewport";
import { LayoutClient } from "../layout/client";
import type { Measure } from "../shared/base/canvas";
import { type Compared, type Mark, wrappersOf } from "../shared/model/differences";
import { sceneOf } from "./scene_source";
import { GraphStore } from "../shared/model/graph_store";
import { push } from "../shared/base/multimap";

const MAX_DEPTH = 4; // levels; a chain of single children says little when it is opened to its end
export const MAX_CARDS = 48; // cards that a reader takes in at once
const WINDOWS = [WINDOW, 48, 32, 20, 12]; // modules of one container that are drawn at once
const MAX_TRIES = 24;

export interface Expansion {
  expanded: string[];
  window: number;
}

/** `fitsAt`: whether a drawing with these paths open fits the canvas at a zoom; `isWorth`: whether a container may be opened. */
export function fittedExpansion(
  h: Hierarchy,
  focus: number,
  kept: readonly string[],
  fitsAt: (opening: Expansion, zoom: number) => boolean,
  isWorth: (node: number) => boolean = () => true
): Expansion {
  const fits = (opening: Expansion, zoom = LEGIBLE_ZOOM) => fitsAt(opening, zoom);
  const whole = { expanded: [...kept], window: WINDOW };
  const isMany = h.rows(focus).length > MAX_CARDS;
  const isFitting = !isMany && fits(whole);
  // all cards by their names alone say more than some of them in full
  if (!isMany && !isFitting && fits(whole, MIN_WHOLE_ZOOM)) return whole;
  const windows = WINDOWS.filter(window => (isMany ? window <= MAX_CARDS : window < WINDOW));
  const pages = windows.map(window => ({ expanded: [...kept], window }));
  const closed = isFitting ? whole : pages.find(opening => fits(opening));
  if (!closed) {
    return { expanded: [...kept], window: WINDOWS[WINDOWS.length - 1] };
  }
  let best: Expansion = closed;
  let level = insides(h, [focus], isWorth);
  let tries = 0;
  for (let depth = 0; depth < MAX_DEPTH && level.length > 0; depth++) {
    const opened: number[] = [];
    for (const alike of level) {
      const paths = alike.map(node => h.path(node));
      const next = { ...best, expanded: [...new Set([...best.expanded, ...paths])] };
      if (tries++ < MAX_TRIES && fits(next)) {
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
      push(groups, h.className(row), row);
    }
    return [...groups.values()];
  });
}

// What is open when two models are first shown side by side: where they differ, as far as both fit with legible titles.

/** The paths of the left model; `room`: of one side. */
export function comparedExpansion(
  [left, right]: readonly [Compared, Compared],
  marks: readonly (Mark | null)[],
  room: Extent,
  measure: Measure
): string[] {
  const layouts = new LayoutClient();
  const wrappers = wrappersOf(left);
  // small names are better than differences out of sight
  const fits = (h: Hierarchy, expanded: readonly string[]): boolean => {
    const scene = sceneOf("hierarchy", h, new GraphStore({ expanded }), measure, new Map(), true);
    const size: Size = [Math.max(1, room.width - 2 * MARGIN), Math.max(1, room.height - 2 * MARGIN)];
    const request = { sizes: scene.nodes.map(node => node.size), groups: scene.groups, room: size };
    return scene.nodes.length <= MAX_CARDS && layouts.canFit(request, MIN_WHOLE_ZOOM);
  };
  const { expanded } = fittedExpansion(
    left.h,
    0,
    [],
    opening => fits(left.h, opening.expanded) && fits(right.h, expandedCounterparts(left, right, opening.expanded)),
    node => marks[node] === "changed inside" || marks[node] === "changed" || wrappers.has(node)
  );
  layouts.dispose();
  return expanded;
}

/** The paths of what corresponds to these in the other model. */
export function counterpartsOf(from: Compared, to: Compared, paths: readonly string[]): string[] {
  return paths.flatMap(path => {
    const node = from.h.find(path);
    const partner = node === undefined ? undefined : from.partners.get(node);
    return partner === undefined ? [] : [to.h.path(partner)];
  });
}

/** What is open in the other model with these: what corresponds to them, and what it alone has around that. */
export function expandedCounterparts(from: Compared, to: Compared, paths: readonly string[]): string[] {
  const open = new Set(["", ...counterpartsOf(from, to, ["", ...paths])]);
  const wrappers = [...wrappersOf(to)].filter(node => node > 0).sort((a, b) => a - b); // the outer ones first
  for (const node of wrappers) if (open.has(to.h.path(to.h.parent(node)))) open.add(to.h.path(node));
  open.delete("");
  return [...open];
}
