// Containers with very many children are drawn a page at a time.

import type { Hierarchy } from "../shared/hierarchy";
import { drawnRows, WINDOW } from "../shared/reveal";
import { idOf } from "./scene";
import type { Store } from "../shared/store";
import { AFTER, BEFORE } from "./scene_types";

/** Turns to the pages that show `node` and what it lies in; whether any page changed. */
export function pageFor(h: Hierarchy, store: Store, pages: Map<number, number>, node: number): boolean {
  let changed = false;
  for (const step of [...h.ancestors(node).slice(1), node]) {
    const container = h.parent(step);
    if (h.children(container).length <= WINDOW) {
      continue;
    }
    const rows = drawnRows(h, store, container);
    const at = rows.indexOf(step);
    const start = pages.get(container) ?? 0;
    if (at >= 0 && (at < start || at >= start + WINDOW)) {
      pages.set(container, Math.max(0, at - WINDOW / 2));
      changed = true;
    }
  }
  return changed;
}

/** Answers a click on "⋯ more": the id of the container, null for any other pill. */
export function turnPage(h: Hierarchy, pages: Map<number, number>, id: string): string | null {
  const mark = [BEFORE, AFTER].find(prefix => id.startsWith(prefix));
  const container = mark === undefined ? undefined : h.find(id.slice(mark.length));
  if (container === undefined) {
    return null;
  }
  const start = pages.get(container) ?? 0;
  pages.set(container, Math.max(0, mark === BEFORE ? start - WINDOW : start + WINDOW));
  return idOf(h, container);
}
