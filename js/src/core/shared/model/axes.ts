// The axes of a traced model: their names, member tensors and modules, and the axes of each tensor dimension.

import type { Hierarchy } from "./hierarchy";
import type { AxesPayload, FlowPayload } from "../payload/payload";

/** A dimension of a parameter or buffer that an axis runs along. */
export interface Member {
  node: number; // the module
  tensor: string; // its attribute there
  dim: number;
}

/** Text of a dimension; parts with an axis can be clicked. */
export interface Part {
  text: string;
  axis: number | null;
}

/** One tensor of a module. */
export interface AxisTensor {
  name: string;
  dims: readonly (readonly Part[])[];
}

export class Axes {
  readonly size: number;
  private readonly byName: ReadonlyMap<string, number>;
  private readonly memberLists: Member[][];
  private readonly tensorSets: readonly Set<number>[];
  private readonly ofNode = new Map<number, number[]>(); // module -> its tensors
  private readonly nodeLists: (readonly number[])[];
  private readonly parts: readonly (readonly Part[])[]; // of each written dimension

  constructor(
    private readonly h: Hierarchy,
    private readonly axes: AxesPayload,
    private readonly flow: FlowPayload
  ) {
    this.size = axes.name.length;
    this.byName = new Map(axes.name.map((name, axis) => [name, axis]));
    this.parts = axes.written.map(text => this.read(text));
    this.memberLists = axes.name.map(() => []);
    const nodes = axes.name.map(() => new Set<number>());
    this.tensorSets = axes.name.map(() => new Set<number>());
    const again = new Set(flow.tensors.tied.map(([tensor]) => tensor));
    flow.tensors.node.forEach((node, tensor) => {
      this.ofNode.set(node, [...(this.ofNode.get(node) ?? []), tensor]);
      const name = this.nameOf(tensor);
      axes.dims[tensor].forEach((written, dim) => {
        for (const axis of axesIn(this.parts[written])) {
          nodes[axis].add(node);
          this.tensorSets[axis].add(tensor);
          if (!again.has(tensor)) {
            this.memberLists[axis].push({ node, tensor: name, dim });
          }
        }
      });
    });
    this.nodeLists = nodes.map(found => [...found].sort((a, b) => a - b));
  }

  find(name: string | null): number | undefined {
    return name === null ? undefined : this.byName.get(name);
  }

  name(axis: number): string {
    return this.axes.name[axis];
  }

  length(axis: number): number {
    return this.axes.size[axis];
  }

  role(axis: number): string | null {
    return this.axes.role[axis];
  }

  /** Why no index may go; null when the axis is free. */
  frozen(axis: number): string | null {
    const reason = this.axes.frozen[axis];
    return reason < 0 ? null : this.axes.reasons[reason];
  }

  /** A tensor under two names comes once. */
  members(axis: number): readonly Member[] {
    return this.memberLists[axis];
  }

  /** The modules whose own tensors an axis runs along, in tree order. */
  nodes(axis: number): readonly number[] {
    return this.nodeLists[axis];
  }

  /** The tensors that an axis runs along, by number, tied ones under each of their names. */
  tensorsOn(axis: number): ReadonlySet<number> {
    return this.tensorSets[axis];
  }

  /** The module's own parameters and buffers; where two axes would read the same, both go by their full names. */
  tensors(node: number): AxisTensor[] {
    return (this.ofNode.get(node) ?? []).map(tensor => {
      const dims = this.axes.dims[tensor].map(written => this.parts[written]);
      const labels = [...axesIn(dims.flat())].map(axis => this.axes.label[axis]);
      const isTwice = (axis: number) => labels.filter(label => label === this.axes.label[axis]).length > 1;
      const clear = (part: Part) => (part.axis !== null && isTwice(part.axis) ? this.part(part.axis, true) : part);
      return { name: this.nameOf(tensor), dims: dims.map(parts => parts.map(clear)) };
    });
  }

  /** The axes that run along tensors of a module or below it: free ones first, those of many members before others. */
  inside(node: number): number[] {
    const touches = (axis: number) => this.nodes(axis).some(at => this.h.isInside(at, node));
    const weight = (axis: number) => (this.axes.frozen[axis] < 0 ? 0 : 1);
    return this.axes.name
      .map((_, axis) => axis)
      .filter(touches)
      .sort((a, b) => weight(a) - weight(b) || a - b);
  }

  private nameOf(tensor: number): string {
    const { name, attributes } = this.flow.tensors;
    return attributes[name[tensor]];
  }

  /** "({3} {4})" as parts: "(", "heads=12", " ", "head_dim=64", ")". */
  private read(written: string): Part[] {
    return written
      .split(/(\{\d+\})/)
      .filter(text => text !== "")
      .map(text => {
        const axis = /^\{(\d+)\}$/.exec(text);
        const number = axis ? Number(axis[1]) : Infinity;
        return number < this.size ? this.part(number) : { text, axis: null };
      });
  }

  private part(axis: number, inFull = false): Part {
    return { text: `${(inFull ? this.axes.name : this.axes.label)[axis]}=${this.axes.size[axis]}`, axis };
  }
}

function axesIn(parts: readonly Part[]): Set<number> {
  return new Set(parts.flatMap(({ axis }) => (axis === null ? [] : [axis])));
}

const known = new WeakMap<Hierarchy, Axes>();

/** The axes of a traced model, made ready once; null without them. */
export function axesOf(h: Hierarchy): Axes | null {
  const { axes, flow } = h.payload;
  if (!axes || !flow) {
    return null;
  }
  let found = known.get(h);
  if (!found) {
    found = new Axes(h, axes, flow);
    known.set(h, found);
  }
  return found;
}
