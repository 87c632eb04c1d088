// Data edges between what is drawn: their ends lifted to the visible ancestors, duplicates merged.

import type { Fold, Hierarchy } from "../shared/hierarchy";
import { isAround } from "./scene_groups";

interface Drawn {
  index: number;
  parent: number;
}

export interface LiftedEdge {
  source: number;
  target: number;
  label: string;
}

interface Merged extends LiftedEdge {
  shapes: Set<string>;
}

const OUTSIDE = -1;

export class EdgeLifter {
  private readonly visible: Int32Array; // node of the hierarchy -> place that stands for it
  private readonly drawnMembers = new Map<Fold, number | undefined>();

  constructor(
    private readonly h: Hierarchy,
    private readonly nodes: readonly Drawn[],
    private readonly placeOf: ReadonlyMap<number, number>,
    private readonly focus: number,
    private readonly ends: { input: number; output: number } // places that stand for everything outside
  ) {
    this.visible = this.findVisible();
  }

  edges(): LiftedEdge[] {
    const merged = new Map<string, Merged>();
    for (const [from, to, shape] of this.h.payload.edges) {
      this.merge(merged, this.place(from), this.place(to), shape);
    }
    return [...merged.values()].map(({ source, target, shapes }) => ({ source, target, label: labelOf(shapes) }));
  }

  /** The model's own input and output are no nodes. */
  private place(node: number): number {
    return node < 0 ? OUTSIDE : this.visible[node];
  }

  private merge(merged: Map<string, Merged>, from: number, to: number, shape: string): void {
    const source = from === OUTSIDE ? this.ends.input : from;
    const target = to === OUTSIDE ? this.ends.output : to;
    if (
      (from === OUTSIDE && to === OUTSIDE) ||
      isAround(this.nodes, source, target) ||
      isAround(this.nodes, target, source)
    ) {
      return;
    }
    const key = `${source} ${target}`;
    const edge = merged.get(key) ?? { source, target, label: "", shapes: new Set<string>() };
    merged.set(key, edge);
    edge.shapes.add(shape);
  }

  private findVisible(): Int32Array {
    const { h } = this;
    const visible = new Int32Array(h.size).fill(OUTSIDE);
    for (let node = 0; node < h.size; node++) {
      const place = this.placeOf.get(node) ?? this.drawnMember(node);
      visible[node] = place ?? (node === this.focus || node === 0 ? OUTSIDE : visible[h.parent(node)]);
    }
    return visible;
  }

  /** A member that is not drawn is stood for by the one that is. */
  private drawnMember(node: number): number | undefined {
    const fold = this.h.fold(node);
    if (!fold) {
      return undefined;
    }
    if (!this.drawnMembers.has(fold)) {
      const drawn = fold.members.find(member => this.placeOf.has(member));
      this.drawnMembers.set(fold, drawn === undefined ? undefined : this.placeOf.get(drawn));
    }
    return this.drawnMembers.get(fold);
  }
}

/** The first shape, and how many others there are. */
export function labelOf(shapes: ReadonlySet<string>): string {
  const known = [...shapes].filter(shape => shape !== "");
  return known.length > 1 ? `${known[0]} +${known.length - 1}` : (known[0] ?? "");
}
