// Edges of a data-flow view: from what made a value to what reads it, through steps that are not drawn.

import type { Dataflow } from "../../shared/model/dataflow";
import { push } from "../../shared/base/multimap";
import type { SceneEdge, SceneNode } from "../scene/scene";
import { isAround, labelOf } from "../scene/scene_edges";

export const HIDDEN = -1; // a step that is not drawn: values pass through it
export const OUTSIDE = -2; // a step outside of what fills the canvas

export interface Ends {
  inputs: readonly number[]; // places of the pills
  outputs: readonly number[];
  whole: boolean; // the whole model is drawn, so that each pill is one of its inputs or outputs
}

const NO_STEP = -1; // the model's end reads it

interface Merged {
  source: number;
  target: number;
  shapes: Set<string>;
  values: Set<number>;
}

/** `places`: where each step is drawn, HIDDEN or OUTSIDE; `isLoop`: an edge only says again that a run is one; `leadsBack`: it leads to an earlier run of the same code. */
export function flowEdges(
  flow: Dataflow,
  nodes: readonly SceneNode[],
  places: Int32Array,
  ends: Ends,
  isLoop: (source: number, step: number) => boolean,
  leadsBack: (source: number, target: number) => boolean
): SceneEdge[] {
  const merged = new Map<number, Merged>();
  const loops = new Map<number, Merged>();
  const origins = new Origins(flow, places, ends);
  const drawn = new Map<number, boolean>(); // whether there is an edge between two places
  const isDrawn = (source: number, target: number) =>
    !isAround(nodes, source, target) && !isAround(nodes, target, source) && !leadsBack(source, target);
  const link = (value: number, target: number, step: number) => {
    for (const source of origins.of(value)) {
      if (source === target) continue;
      const key = source * nodes.length + target;
      let isKnown = drawn.get(key);
      if (isKnown === undefined) drawn.set(key, (isKnown = isDrawn(source, target)));
      if (!isKnown) continue;
      const into = step >= 0 && isLoop(source, step) ? loops : merged;
      let edge = into.get(key);
      if (!edge) into.set(key, (edge = { source, target, shapes: new Set(), values: new Set() }));
      edge.shapes.add(flow.shape(value));
      edge.values.add(value);
    }
  };
  flow.payload.steps.inputs.forEach((inputs, step) => {
    const place = places[step];
    if (place !== HIDDEN && !(place === OUTSIDE && ends.whole)) {
      const target = place === OUTSIDE ? ends.outputs[0] : place;
      inputs.forEach(value => link(value, target, step));
    }
  });
  const last = ends.outputs.length - 1;
  flow.payload.outputs.forEach((value, at) => link(value, ends.outputs[Math.min(at, last)], NO_STEP));
  keepWaysOut(nodes, loops, merged);
  return [...merged.values()]
    .filter(({ source, target }) => !(ends.inputs.includes(source) && ends.outputs.includes(target) && !ends.whole))
    .filter(edge => !isImplied(nodes, edge, merged.values()))
    .map(({ source, target, shapes, values }) => ({
      id: `\u0000edge:${nodes[source].id}\u0000${nodes[target].id}`,
      source,
      target,
      kind: "data",
      label: labelOf(shapes),
      values: [...values]
    }));
}

/**
 * What is between the members of a run and leads nowhere else leads back to them, and what leads out of the run comes from
 * them: no card begins or ends nowhere.
 */
function keepWaysOut(
  nodes: readonly SceneNode[],
  loops: ReadonlyMap<number, Merged>,
  merged: Map<number, Merged>
): void {
  const targets = new Map<number, number[]>();
  merged.forEach(({ source, target }) => push(targets, source, target));
  for (const [key, edge] of loops) {
    const { source, target } = edge;
    const isEnd = nodes[source].isGlyph && !targets.has(source);
    const leadsOut = (place: number) => !isAround(nodes, source, place) && !nodes[place].isGlyph;
    const isWayOut = nodes[target].isGlyph && (targets.get(target) ?? []).some(leadsOut);
    if (isEnd || isWayOut) merged.set(key, edge);
  }
}

/** Whether a frame, for members of a run that are not drawn, gives or gets what something in it does already. */
function isImplied(nodes: readonly SceneNode[], { source, target }: Merged, all: Iterable<Merged>): boolean {
  const isFrame = (place: number) => nodes[place].kind === "group";
  if (!isFrame(source) && !isFrame(target)) return false;
  for (const other of all) {
    const isInner = other.source !== source || other.target !== target;
    if (isInner && isAround(nodes, source, other.source) && isAround(nodes, target, other.target)) return true;
  }
  return false;
}

/** Where values come from, as places on the canvas. */
class Origins {
  private readonly known: (readonly number[] | undefined)[];
  private readonly input = new Map<number, number>(); // values of the model's inputs -> pill

  constructor(
    private readonly flow: Dataflow,
    private readonly places: Int32Array,
    private readonly ends: Ends
  ) {
    const { inputs } = ends;
    this.known = new Array(flow.payload.values.step.length).fill(undefined);
    flow.payload.inputs.forEach(([, value], at) => this.input.set(value, inputs[Math.min(at, inputs.length - 1)]));
    // steps are in order, so the origins of what a step reads are known before those of what it gives
    for (let step = 0; step < flow.size; step++) {
      const origin = this.ofStep(step);
      flow.values(step).forEach(value => (this.known[value] = origin));
    }
  }

  of(value: number): readonly number[] {
    const input = this.input.get(value);
    return this.known[value] ?? (input === undefined ? [] : [input]);
  }

  private ofStep(step: number): readonly number[] {
    const place = this.places[step];
    if (place >= 0) {
      return [place];
    }
    if (place === OUTSIDE) {
      return this.ends.whole ? [] : [this.ends.inputs[0]];
    }
    const { inputs } = this.flow.payload.steps;
    return [...new Set(inputs[step].flatMap(value => [...this.of(value)]))];
  }
}
