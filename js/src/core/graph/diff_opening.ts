// What is open when two models are first shown side by side: where they differ, as far as both fit with legible titles.

import { firstOpening, MOST } from "./first_opening";
import { LayoutClient } from "../layout/client";
import type { LayoutResult, Size } from "../layout/types";
import type { Measure } from "../shared/canvas";
import { type Compared, type Mark, wrappersOf } from "../shared/differences";
import type { Hierarchy } from "../shared/hierarchy";
import { sceneOf } from "./scene_source";
import { Store } from "../shared/store";
import { AT_ONCE, boundsOf, type Extent, fitsLegibly, MARGIN } from "../shared/viewport";

/** The paths of the left model; `room`: of one side. */
export function openingOfBoth(
  [left, right]: readonly [Compared, Compared],
  marks: readonly (Mark | null)[],
  room: Extent,
  measure: Measure
): string[] {
  const layouts = new LayoutClient();
  const wrappers = wrappersOf(left);
  const layoutOf = (h: Hierarchy, expanded: readonly string[]): LayoutResult | undefined => {
    const scene = sceneOf("hierarchy", h, new Store({ expanded }), measure, new Map(), true);
    const size: Size = [Math.max(1, room.width - 2 * MARGIN), Math.max(1, room.height - 2 * MARGIN)];
    const request = { sizes: scene.nodes.map(node => node.size), groups: scene.groups, room: size };
    return scene.nodes.length > MOST ? undefined : layouts.runHere(request);
  };
  const { expanded } = firstOpening(
    left.h,
    0,
    [],
    opening => {
      const both = [layoutOf(left.h, opening.expanded), layoutOf(right.h, openOf(left, right, opening.expanded))];
      const [one, other] = both;
      return one && other && { ...one, bounds: boundsOf([one.bounds, other.bounds]) };
    },
    layout => fitsLegibly(layout.bounds, room, AT_ONCE), // small names are better than differences out of sight
    node => marks[node] === "changed inside" || marks[node] === "changed" || wrappers.has(node)
  );
  layouts.dispose();
  return expanded;
}

/** The paths of what corresponds to these in the other model. */
export function partnersOf(from: Compared, to: Compared, paths: readonly string[]): string[] {
  return paths.flatMap(path => {
    const node = from.h.find(path);
    const partner = node === undefined ? undefined : from.partners.get(node);
    return partner === undefined ? [] : [to.h.path(partner)];
  });
}

/** What is open in the other model with these: what corresponds to them, and what it alone has around that. */
export function openOf(from: Compared, to: Compared, paths: readonly string[]): string[] {
  const open = new Set(["", ...partnersOf(from, to, ["", ...paths])]);
  const wrappers = [...wrappersOf(to)].filter(node => node > 0).sort((a, b) => a - b); // the outer ones first
  for (const node of wrappers) if (open.has(to.h.path(to.h.parent(node)))) open.add(to.h.path(node));
  open.delete("");
  return [...open];
}
