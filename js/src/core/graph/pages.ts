// Containers with very many children are drawn a page at a time.

import type { Hierarchy } from "../shared/hierarchy";
import { drawnRows, WINDOW } from "../shared/reveal";
import { idOf } from "./scene_cards";
import type { Store } from "../shared/store";
import { AFTER, BEFORE } from "./scene_types";

/** The first row drawn of each container with more rows than `window`. */
export class Pages {
  readonly starts = new Map<number, number>();
  window = WINDOW;
}

/** Turns to the pages that show `node` and what it lies in; whether any page changed. */
export function pageFor(h: Hierarchy, store: Store, { starts, window }: Pages, node: number): boolean {
  let changed = false;
  for (const step of [...h.ancestors(node).slice(1), node]) {
    const container = h.parent(step);
    if (h.children(container).length <= window) {
      continue;
    }
    const rows = drawnRows(h, store, container);
    const at = rows.indexOf(step);
    const start = starts.get(container) ?? 0;
    if (at >= 0 && (at < start || at >= start + window)) {
      starts.set(container, Math.max(0, at - (window >> 1)));
      changed = true;
    }
  }
  return changed;
}

/** Answers a click on "⋯ more": the id of the container, null for any other pill. */
export function turnPage(h: Hierarchy, { starts, window }: Pages, id: string): string | null {
  const mark = [BEFORE, AFTER].find(prefix => id.startsWith(prefix));
  const container = mark === undefined ? undefined : h.find(id.slice(mark.length));
  if (container === undefined) {
    return null;
  }
  const start = starts.get(container) ?? 0;
  starts.set(container, Math.max(0, mark === BEFORE ? start - window : start + window));
  return idOf(h, container);
}
