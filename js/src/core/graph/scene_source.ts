// Scene of the current view: selects its builder, and pages through containers with very many children.

import type { Measure } from "../shared/base/canvas";
import { type Dataflow, dataflowOf } from "../shared/model/dataflow";
import { buildDedupScene, buildScene } from "./scene/hierarchy_scene";
import { buildFlowScene } from "./flow/flow_scene";
import { type FlowLevel, unitsOf } from "../shared/model/flow_units";
import type { Hierarchy } from "../shared/model/hierarchy";
import type { GraphStore, ViewName } from "../shared/model/graph_store";
import { AFTER, BEFORE, type Scene, idOf } from "./scene/scene";
import { FlowItems, type Item } from "./flow/flow_items";
import { visibleRows, WINDOW } from "../shared/model/expansion";

// Containers with very many children are drawn a page at a time.

/** The first row drawn of each container with more rows than `window`. */
export class Pages {
  readonly starts = new Map<number, number>();
  window = WINDOW;
}

/** Where a module, or what stands for it, is among what is drawn in a container; −1 where it is not. */
interface Place {
  container: number;
  at: number;
}

/** Turns to the pages that show `node` and what it lies in; whether any page changed. `flow`: of a forward pass. */
export function pageFor(
  h: Hierarchy,
  store: GraphStore,
  pages: Pages,
  node: number,
  flow?: [Dataflow, FlowLevel]
): boolean {
  const { starts, window } = pages;
  const places = flow ? placesInFlow(h, store, node, ...flow) : placesInTree(h, store, node, window);
  const turned = places.filter(({ container, at }) => {
    const start = starts.get(container) ?? 0;
    return at >= 0 && (at < start || at >= start + window);
  });
  turned.forEach(({ container, at }) => starts.set(container, Math.max(0, at - (window >> 1))));
  return turned.length > 0;
}

function placesInTree(h: Hierarchy, store: GraphStore, node: number, window: number): Place[] {
  const steps = [...h.ancestors(node).slice(1), node].map(step => ({ step, container: h.parent(step) }));
  return steps
    .filter(({ container }) => h.children(container).length > window)
    .map(({ step, container }) => ({ container, at: visibleRows(h, store, container).indexOf(step) }));
}

/** In the order of time, with code between the calls of modules. */
function placesInFlow(h: Hierarchy, store: GraphStore, node: number, flow: Dataflow, level: FlowLevel): Place[] {
  const units = unitsOf(flow, h, level);
  const items = new FlowItems(h, flow, units, store, level);
  const unitOf = (sought: number) => units.list.findIndex(unit => unit.node === sought);
  const nodeOf = (item: Item) =>
    item.kind === "unit" ? units.list[item.unit].node : item.kind === "module" ? item.node : undefined;
  const own = unitOf(node);
  const places: Place[] = [];
  let sought = node;
  let around = own < 0 ? unitOf(h.parent(node)) : units.list[own].parent;
  while (around >= 0) {
    const { node: container, parent } = units.list[around];
    places.push({ container, at: items.of(around).findIndex(item => nodeOf(item) === sought) });
    [sought, around] = [container, parent];
  }
  return places;
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

/**
 * A view of one model; `isCompared`: it stands beside another, where what both have, their order, is shown; `window`: how
 * many modules of one container are drawn at once; `most`: cards, a scene with more is not finished.
 */
export function sceneOf(
  view: ViewName,
  h: Hierarchy,
  store: GraphStore,
  measure: Measure,
  pages: ReadonlyMap<number, number>,
  isCompared: boolean,
  window?: number,
  most?: number
): Scene {
  if (view === "deduplicated") {
    return buildDedupScene(h, measure, window);
  }
  const flow = flowOf(view, h, isCompared);
  const scene = flow && buildFlowScene(h, flow[0], store, measure, { level: flow[1], pages, window, most });
  return scene ?? buildScene(h, store, measure, pages, h.payload.traced && !isCompared, window);
}

/** The forward pass that a view draws, and how closely; none without inputs or beside another model. */
export function flowOf(view: ViewName, h: Hierarchy, isCompared: boolean): [Dataflow, FlowLevel] | undefined {
  const flow = isCompared ? null : dataflowOf(h);
  return flow ? [flow, view === "dataflow" || view === "operators" ? view : "hierarchy"] : undefined;
}
