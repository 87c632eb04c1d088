// Which builder makes the picture of a view.

import type { Measure } from "../shared/canvas";
import { type Dataflow, dataflowOf } from "../shared/dataflow";
import { buildDedupScene } from "./dedup";
import { buildFlowScene } from "./flow_scene";
import type { FlowLevel } from "./flow_units";
import type { Hierarchy } from "../shared/hierarchy";
import { buildScene } from "./scene";
import type { Store, ViewName } from "../shared/store";
import type { Scene } from "./scene_types";

/**
 * A view of one model; `isCompared`: it stands beside another, where what both have, their order, is shown; `window`: how
 * many modules of one container are drawn at once.
 */
export function sceneOf(
  view: ViewName,
  h: Hierarchy,
  store: Store,
  measure: Measure,
  pages: ReadonlyMap<number, number>,
  isCompared: boolean,
  window?: number
): Scene {
  if (view === "deduplicated") {
    return buildDedupScene(h, measure, window);
  }
  const flow = flowOf(view, h, isCompared);
  const scene = flow && buildFlowScene(h, flow[0], store, measure, { level: flow[1], pages, window });
  return scene ?? buildScene(h, store, measure, pages, h.payload.traced && !isCompared, window);
}

/** The forward pass that a view draws, and how closely; none without inputs or beside another model. */
export function flowOf(view: ViewName, h: Hierarchy, isCompared: boolean): [Dataflow, FlowLevel] | undefined {
  const flow = isCompared ? null : dataflowOf(h);
  return flow ? [flow, view === "dataflow" || view === "operators" ? view : "hierarchy"] : undefined;
}
