// The expansion of a graph: opening, closing and bringing nodes into view, within the limits on what is drawn.

import * as words from "../../words/graph";
import { Fold, Hierarchy } from "./hierarchy";
import { nodeLimits } from "../base/settings";
import { GraphStore } from "./graph_store";

export const WINDOW = 100; // rows of one container that are drawn at once
export const MAX_NESTING = 24; // frames inside frames; deeper reveals move the focus

export const noticeLimit = (): number => nodeLimits().notice; // above it, a notice
export const nodeLimit = (): number => nodeLimits().refusal; // above it, a refusal

export const manyNodes = (): string => words.manyNodes(noticeLimit());
export const tooMany = (): string => words.tooMany(nodeLimit());
const partly = (): string => words.openedPartly(noticeLimit());

/** The children of `node` as drawn now: one entry a fold, or all its members when it is unfolded. */
export function visibleRows(h: Hierarchy, store: GraphStore, node: number): number[] {
  const shown = store.get("shown");
  const unfolded = store.get("unfolded");
  const rows: number[] = [];
  for (const row of h.rows(node)) {
    const fold = h.fold(row);
    if (fold && unfolded.has(fold.first)) {
      fold.members.forEach(member => rows.push(member)); // too many to spread as arguments
    } else {
      rows.push(fold ? (shown.get(fold.first) ?? fold.first) : row);
    }
  }
  return rows;
}

/** Nodes of the open paths. */
export function openNodes(h: Hierarchy, expanded: readonly string[]): Set<number> {
  const open = new Set<number>();
  for (const path of expanded) {
    const node = h.find(path);
    if (node !== undefined && h.isContainer(node)) {
      open.add(node);
    }
  }
  return open;
}

/** The containers that are open where they can be seen, in tree order. */
export function openPaths(h: Hierarchy, store: GraphStore): string[] {
  const open = openNodes(h, store.get("expanded"));
  [...h.ancestors(store.get("focus")), store.get("focus")].forEach(node => open.add(node));
  const found: string[] = [];
  const waiting = [0];
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    if (node > 0) found.push(h.path(node));
    const inside = visibleRows(h, store, node).filter(row => h.isContainer(row) && open.has(row));
    inside.reverse().forEach(row => waiting.push(row));
  }
  return found;
}

/** Has all that is listed as open seen: what it stands in is opened, and of a fold the member that is open is drawn. */
export function revealOpened(h: Hierarchy, store: GraphStore): void {
  const expanded = store.get("expanded");
  const nodes = [...openNodes(h, expanded)].flatMap(node => [...h.ancestors(node).slice(1), node]);
  store.set("expanded", withPaths(h, expanded, nodes));
  const open = new Set(nodes);
  for (const node of open) {
    const fold = h.fold(node);
    const isFree = fold && !open.has(store.get("shown").get(fold.first) ?? fold.first);
    if (isFree && !isVisibleMember(store, fold, node)) {
      store.set("shown", new Map(store.get("shown")).set(fold.first, node));
    }
  }
}

/** How many nodes the inside of `focus` shows, counted no further than just past the hard limit. */
export function visibleCount(h: Hierarchy, store: GraphStore, focus: number, open: ReadonlySet<number>): number {
  const most = nodeLimit();
  let count = 0;
  const pending = [focus];
  for (let node = pending.pop(); node !== undefined && count <= most; node = pending.pop()) {
    const rows = visibleRows(h, store, node);
    count += Math.min(rows.length, WINDOW);
    pending.push(...rows.slice(0, most).filter(row => open.has(row)));
  }
  return count;
}

function isVisibleMember(store: GraphStore, fold: Fold, node: number): boolean {
  return store.get("unfolded").has(fold.first) || (store.get("shown").get(fold.first) ?? fold.first) === node;
}

/** Draws `member` for its fold; what was open in the member before is open in this one. */
export function showInstance(h: Hierarchy, store: GraphStore, member: number): void {
  const fold = h.fold(member);
  if (!fold || isVisibleMember(store, fold, member)) {
    return;
  }
  const before = h.path(store.get("shown").get(fold.first) ?? fold.first);
  const after = h.path(member);
  const moved = store
    .get("expanded")
    .map(path => (path === before || path.startsWith(`${before}.`) ? after + path.slice(before.length) : path));
  store.set("shown", new Map(store.get("shown")).set(fold.first, member));
  store.set("expanded", [...new Set(moved)]);
}

/** Draws every member of a fold; false (and a notice) when too much would be shown. */
export function unfold(h: Hierarchy, store: GraphStore, fold: Fold): boolean {
  const unfolded = new Set(store.get("unfolded")).add(fold.first);
  const trial = () => new GraphStore({ shown: store.get("shown"), unfolded });
  const count = () => visibleCount(h, trial(), store.get("focus"), openNodes(h, store.get("expanded")));
  if (fold.count > nodeLimit() || count() > nodeLimit()) {
    store.set("notice", words.notUnfolded(nodeLimit()));
    return false;
  }
  store.set("unfolded", unfolded);
  return true;
}

/** Makes the node at `path` visible; false if there is none. */
export function reveal(h: Hierarchy, store: GraphStore, path: string): boolean {
  const node = h.find(path);
  if (node === undefined) {
    return false;
  }
  const above = h.ancestors(node);
  [...above.slice(1), node].forEach(step => showInstance(h, store, step));
  const open = openNodes(h, store.get("expanded"));
  above.slice(1).forEach(step => open.add(step));
  const focus = focusFor(h, store, node, above, open);
  const inside = above.filter(step => step > 0 && step !== focus && h.isInside(step, focus));
  store.set("focus", focus);
  store.set("expanded", withPaths(h, store.get("expanded"), inside));
  return true;
}

/** The focus kept if the node fits below it, else the highest ancestor under which it fits. */
function focusFor(h: Hierarchy, store: GraphStore, node: number, above: number[], open: ReadonlySet<number>): number {
  const now = store.get("focus");
  const fits = (focus: number) =>
    h.depth(node) - h.depth(focus) <= MAX_NESTING && visibleCount(h, store, focus, open) <= nodeLimit();
  if (node !== now && h.isInside(node, now) && fits(now)) {
    return now;
  }
  const nearest = above.slice(-MAX_NESTING);
  return nearest.find(fits) ?? above[above.length - 1] ?? 0;
}

function withPaths(h: Hierarchy, expanded: readonly string[], nodes: readonly number[]): string[] {
  return [...new Set([...expanded, ...nodes.map(node => h.path(node))])];
}

/** Opens or closes a container; false (and a notice) when too much would be shown. */
export function toggle(h: Hierarchy, store: GraphStore, node: number): boolean {
  const path = h.path(node);
  const expanded = store.get("expanded");
  if (!h.isContainer(node)) {
    return true;
  }
  if (h.depth(node) - h.depth(store.get("focus")) >= MAX_NESTING) {
    store.set("focus", node);
    return true;
  }
  if (expanded.includes(path)) {
    store.set(
      "expanded",
      expanded.filter(other => other !== path)
    );
    return true;
  }
  const open = openNodes(h, expanded).add(node);
  if (visibleCount(h, store, store.get("focus"), open) > nodeLimit()) {
    store.set("notice", tooMany());
    return false;
  }
  store.set("expanded", [...expanded, path]);
  return true;
}

/** Opens every container below the focus, level by level, as far as the soft limit allows. */
export function expandAll(h: Hierarchy, store: GraphStore): void {
  const opened: number[] = [];
  let level = visibleRows(h, store, store.get("focus"));
  let count = level.length;
  let complete = true;
  while (level.length > 0) {
    const next: number[] = [];
    for (const node of level.filter(row => h.isContainer(row))) {
      const rows = visibleRows(h, store, node);
      if (count + rows.length > noticeLimit()) {
        complete = false;
        continue;
      }
      count += rows.length;
      opened.push(node);
      next.push(...rows);
    }
    level = next;
  }
  store.set("expanded", withPaths(h, store.get("expanded"), opened));
  if (!complete) {
    store.set("notice", partly());
  }
}

/** Closes every container below the focus. */
export function collapseAll(h: Hierarchy, store: GraphStore): void {
  const focus = store.get("focus");
  const kept = store.get("expanded").filter(path => {
    const node = h.find(path);
    return node !== undefined && !h.isInside(node, focus);
  });
  store.set("expanded", kept);
}

/** Closes everything except the containers around `node`. */
export function collapseOthers(h: Hierarchy, store: GraphStore, node: number): void {
  const around = new Set(h.ancestors(node).map(step => h.path(step)));
  store.set(
    "expanded",
    store.get("expanded").filter(path => around.has(path))
  );
}
