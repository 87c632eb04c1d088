// What an edge carries: the values of the forward pass, each with its shape, its type and its size in memory.

import { type Dataflow, dataflowOf, shapeText } from "../shared/dataflow";
import type { Fold, Hierarchy } from "../shared/hierarchy";
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
  private readonly given = new Map<string, Carried>();
  private nodes?: readonly SceneNode[];
  private between = new Map<string, Map<string, Carried>>(); // of the hierarchy: by the places of both ends

  constructor(private readonly h: Hierarchy) {
    this.flow = dataflowOf(h);
  }

  of({ values, source, target, kind }: SceneEdge, nodes: readonly SceneNode[]): readonly Carried[] {
    const { flow } = this;
    if (kind === "order") return [];
    if (values && flow) return values.map(value => carried(flow, value));
    if (nodes !== this.nodes) {
      this.nodes = nodes;
      this.between = this.lifted(nodes);
    }
    const place = (at: number) => (nodes[at].index < 0 ? OUTSIDE : at);
    return [...(this.between.get(`${place(source)} ${place(target)}`)?.values() ?? [])];
  }

  /** What modules give each other, between the cards that stand for them. */
  private lifted(nodes: readonly SceneNode[]): Map<string, Map<string, Carried>> {
    const found = new Map<string, Map<string, Carried>>();
    const visible = this.visible(nodes);
    const place = (node: number) => (node < 0 ? OUTSIDE : visible[node]);
    for (const [from, to, shape] of this.h.payload.edges) {
      const key = `${place(from)} ${place(to)}`;
      const values = found.get(key) ?? new Map<string, Carried>();
      const value = this.valueOf(from, shape);
      found.set(key, values.set(value.key, value));
    }
    return found;
  }

  /** The place of each node's card, or of what hides it; of a fold that of the member that is drawn. */
  private visible(nodes: readonly SceneNode[]): Int32Array {
    const { h } = this;
    const places = new Map(nodes.flatMap(({ index }, place) => (index < 0 ? [] : [[index, place] as const])));
    const drawn = new Map<Fold, number | undefined>();
    const visible = new Int32Array(h.size).fill(OUTSIDE);
    for (let node = 0; node < h.size; node++) {
      const fold = h.fold(node);
      if (fold && !drawn.has(fold)) {
        drawn.set(fold, places.get(fold.members.find(member => places.has(member)) ?? OUTSIDE));
      }
      const above = node === 0 ? OUTSIDE : visible[h.parent(node)];
      visible[node] = places.get(node) ?? (fold && drawn.get(fold)) ?? above;
    }
    return visible;
  }

  /** A value of that shape that the module gives. */
  private valueOf(from: number, shape: string): Carried {
    const key = `${from} ${shape}`;
    const value = this.given.get(key) ?? this.find(key, from, shape);
    this.given.set(key, value);
    return value;
  }

  private find(key: string, from: number, shape: string): Carried {
    const { flow } = this;
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
  const fixed = shape.filter(length => typeof length === "number");
  const isKnown = size !== null && fixed.length === shape.length;
  const bytes = isKnown ? fixed.reduce((product, length) => product * length, size) : null;
  return { key: `value ${value}`, shape: shapeText(shape), dtype, bytes };
}
