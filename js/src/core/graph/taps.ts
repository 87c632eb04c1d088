// What a click on the canvas means.

import { isOnChevron, type PaintItem } from "./paint_items";
import type { Point } from "../shared/viewport";
import type { Hierarchy } from "../shared/hierarchy";

export interface TapActions {
  /** `step`: the operator that was clicked; `inView`: the camera has no reason to move. */
  select(path: string, step: number | null, inView: boolean): void;
  toggle(node: number): void;
  /** Opens or closes a stretch of operators. */
  toggleStretch(first: number): void;
  /** Zooms to what was clicked twice, once it is open. */
  enter(item: PaintItem): void;
  turn(id: string): void;
}

export function tapped(item: PaintItem, [x, y]: Point, h: Hierarchy, actions: TapActions): void {
  const { node } = item;
  if (node.target !== undefined) {
    actions.select(h.path(node.target), null, false);
  } else if (node.steps && node.step !== undefined && isOnChevron(item, x, y)) {
    actions.toggleStretch(node.step);
  } else if (node.owner !== undefined) {
    actions.select(h.path(node.owner), node.step ?? null, true);
  } else if (node.index < 0) {
    actions.turn(node.id);
  } else if (isOnChevron(item, x, y)) {
    actions.toggle(node.index);
  } else {
    actions.select(h.path(node.index), node.step ?? null, true);
  }
}

export function doubleTapped(item: PaintItem, [x, y]: Point, actions: TapActions): void {
  const isOtherwise = isOnChevron(item, x, y) || (item.node.index < 0 && item.node.kind === "pseudo");
  if (!isOtherwise) actions.enter(item); // the chevron has opened and closed it, a pill has turned its page
}
