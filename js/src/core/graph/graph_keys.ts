// Keys of the whole widget ("f", "z", Backspace, Esc) and of the canvas (Enter, arrows).

import { isField } from "../shared/dom";
import type { GraphView } from "./graph_view";
import type { Hierarchy } from "../shared/hierarchy";
import { drawnRows } from "../shared/reveal";
import type { Store } from "../shared/store";

/** Returns the disposer. `graph`: the canvas that the keys act on now. */
export function bindKeys(
  root: HTMLElement,
  h: Hierarchy,
  store: Store,
  graph: () => GraphView | undefined
): () => void {
  const handler = (event: KeyboardEvent) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && !event.defaultPrevented && !isField(event.target) && act(event, h, store, graph())) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  root.addEventListener("keydown", handler);
  return () => root.removeEventListener("keydown", handler);
}

function act(event: KeyboardEvent, h: Hierarchy, store: Store, graph: GraphView | undefined): boolean {
  if (event.key === "f") {
    graph?.fit();
    return graph !== undefined;
  }
  if (event.key === "z" && graph !== undefined) {
    return graph.navigator.toSelection();
  }
  if (event.key === "Backspace" && graph !== undefined) {
    graph.navigator.out();
    return true;
  }
  if (event.key === "Escape") {
    return upwards(h, store);
  }
  return graph !== undefined && event.target === graph.host && onCanvas(event.key, h, store, graph);
}

/** The parent becomes the selection; at the edge of the canvas the focus moves out too. */
export function upwards(h: Hierarchy, store: Store): boolean {
  const focus = store.get("focus");
  const node = selectedNode(h, store) ?? focus;
  if (node === 0) {
    return false;
  }
  const parent = h.parent(node);
  if (parent === focus && focus !== 0) {
    store.set("focus", h.parent(focus));
  }
  store.set("selected", h.path(parent));
  return true;
}

function selectedNode(h: Hierarchy, store: Store): number | undefined {
  const path = store.get("selected");
  return path === null ? undefined : h.find(path);
}

const STEPS = new Map([
  ["ArrowRight", 1],
  ["ArrowDown", 1],
  ["ArrowLeft", -1],
  ["ArrowUp", -1]
]);

function onCanvas(key: string, h: Hierarchy, store: Store, graph: GraphView): boolean {
  const node = selectedNode(h, store);
  if (key === "Enter" && node !== undefined) {
    graph.toggle(node);
    return true;
  }
  const step = STEPS.get(key);
  if (step === undefined) {
    return false;
  }
  const next = neighbour(h, store, node, step);
  if (next !== undefined) {
    store.set("selected", h.path(next));
  }
  return true;
}

/** The card before or after among those drawn in the same frame; into and out of frames at the ends. */
function neighbour(h: Hierarchy, store: Store, node: number | undefined, step: number): number | undefined {
  const focus = store.get("focus");
  if (node === undefined || node === focus || !h.isInside(node, focus)) {
    return drawnRows(h, store, focus)[0];
  }
  const rows = drawnRows(h, store, h.parent(node));
  const inner = step > 0 && store.get("expanded").includes(h.path(node)) ? drawnRows(h, store, node)[0] : undefined;
  const next = inner ?? rows[rows.indexOf(node) + step];
  if (next !== undefined) {
    return next;
  }
  const parent = h.parent(node);
  if (parent === focus) {
    return undefined;
  }
  if (step < 0) {
    return parent;
  }
  const around = drawnRows(h, store, h.parent(parent));
  return around[around.indexOf(parent) + 1];
}
