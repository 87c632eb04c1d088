// What an edge carries: the values of the forward pass, each with its shape, its type and its size in memory.

import { type Dataflow, dataflowOf, shapeText } from "../shared/dataflow";
import type { Hierarchy } from "../shared/hierarchy";
import type { SceneEdge, SceneNode } from "./scene_types";

export interface Carried {
  readonly key: string; // the same for every edge that carries the same value
  readonly shape: string;
  readonly dtype: string; // "" where it is not known
  readonly bytes: number | null;
}

const OUTSIDE = -1; // the model's input and output, among the edges of the hierarchy

/** Bytes of an element, by the bits in its type's name; null for a type that is not known. */
export function itemSize(dtype: string): number | null {
  const bits = /^(?:q?u?int|b?float|complex)(\d+)/.exec(dtype)?.[1];
  if (dtype === "bool") return 1;
  return bits === undefined ? null : Math.max(1, Number(bits) / 8);
}

export class EdgeValues {
  private readonly flow: Dataflow | null;
  private readonly known = new Map<SceneEdge, readonly Carried[]>();

  constructor(private readonly h: Hierarchy) {
    this.flow = dataflowOf(h);
  }

  of(edge: SceneEdge, nodes: readonly SceneNode[]): readonly Carried[] {
    const found = this.known.get(edge) ?? this.find(edge, nodes);
    this.known.set(edge, found);
    return found;
  }

  /** The edges of another layout are others. */
  forget(): void {
    this.known.clear();
  }

  private find({ values, source, target, kind }: SceneEdge, nodes: readonly SceneNode[]): Carried[] {
    const { flow } = this;
    if (kind === "order") return [];
    if (values && flow) return values.map(value => carried(flow, value));
    return this.between(nodes[source], nodes[target]);
  }

  /** Of the hierarchy: what modules in one give to modules in the other. */
  private between(source: SceneNode, target: SceneNode): Carried[] {
    const [isFrom, isTo] = [this.standsFor(source), this.standsFor(target)];
    const found = new Map<string, Carried>();
    for (const [from, to, shape] of this.h.payload.edges) {
      if (isFrom(from) && isTo(to) && !(isTo(from) && from >= 0)) {
        const value = this.given(from, shape);
        found.set(value.key, value);
      }
    }
    return [...found.values()];
  }

  private standsFor({ index, kind }: SceneNode): (node: number) => boolean {
    const { h } = this;
    if (index < 0) return node => node === OUTSIDE;
    const members = (kind === "fold" && h.fold(index)?.members) || [index];
    return node => node >= 0 && members.some(member => node === member || h.isInside(node, member));
  }

  /** A value of that shape that the module gives. */
  private given(from: number, shape: string): Carried {
    const { flow } = this;
    const key = `${from} ${shape}`;
    if (!flow) return { key, shape, dtype: "", bytes: null };
    const { calls, inputs } = flow.payload;
    const outputs =
      from === OUTSIDE ? inputs.map(([, value]) => value) : flow.callsOf(from).flatMap(call => calls.outputs[call]);
    const value = outputs.find(output => flow.shape(output) === shape);
    return value === undefined ? { key, shape, dtype: "", bytes: null } : { ...carried(flow, value), key };
  }
}

function carried(flow: Dataflow, value: number): Carried {
  const shape = flow.payload.shapes[flow.payload.values.shape[value]];
  const dtype = flow.dtype(value);
  const size = itemSize(dtype);
  const bytes = size === null ? null : shape.reduce((product, length) => product * length, 1) * size;
  return { key: `value ${value}`, shape: shapeText(shape), dtype, bytes };
}
