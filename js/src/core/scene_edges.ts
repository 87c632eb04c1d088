// Data edges between what is drawn: their ends lifted to the visible ancestors, duplicates merged.

import type { Fold, Hierarchy } from "./hierarchy";
import type { LayoutGroup } from "./layout";

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
    private readonly ends: { input: number; output: number }, // places that stand for everything outside
  ) {
    this.visible = this.findVisible();
  }

  edges(): LiftedEdge[] {
    const merged = new Map<string, Merged>();
    for (const [from, to, shape] of this.h.payload.edges) {
      this.merge(merged, this.visible[from], this.visible[to], shape);
    }
    this.joinEnds(merged);
    return [...merged.values()].map(({ source, target, shapes }) => ({ source, target, label: labelOf(shapes) }));
  }

  /** The group in which the two ends part, and its items around each end. */
  meeting(source: number, target: number, groups: readonly LayoutGroup[]): [LayoutGroup, number, number] {
    const [a, b] = [this.chainUp(source), this.chainUp(target)];
    let shared = 0;
    while (shared < Math.min(a.length, b.length) - 1 && a[shared] === b[shared]) {
      shared++;
    }
    const owner = this.nodes[a[shared]].parent;
    const group = groups.find(other => other.node === owner) ?? groups[0];
    return [group, group.items.indexOf(a[shared]), group.items.indexOf(b[shared])];
  }

  /** The place and the frames around it, outermost first. */
  private chainUp(place: number): number[] {
    const chain: number[] = [];
    for (let at = place; at >= 0; at = this.nodes[at].parent) {
      chain.push(at);
    }
    return chain.reverse();
  }

  private merge(merged: Map<string, Merged>, from: number, to: number, shape: string): void {
    const source = from === OUTSIDE ? this.ends.input : from;
    const target = to === OUTSIDE ? this.ends.output : to;
    if ((from === OUTSIDE && to === OUTSIDE) || this.isAround(source, target) || this.isAround(target, source)) {
      return;
    }
    const key = `${source} ${target}`;
    const edge = merged.get(key) ?? { source, target, label: "", shapes: new Set<string>() };
    merged.set(key, edge);
    edge.shapes.add(shape);
  }

  private isAround(frame: number, place: number): boolean {
    let at = place;
    while (at > frame) {
      at = this.nodes[at].parent; // a frame's place comes before those of its children
    }
    return at === frame;
  }

  /** What nothing leads to hangs on the input, what leads nowhere on the output. */
  private joinEnds(merged: Map<string, Merged>): void {
    const reached = new Set<number>();
    const left = new Set<number>();
    for (const { source, target } of merged.values()) {
      this.chainUp(target).forEach(place => reached.add(place));
      this.chainUp(source).forEach(place => left.add(place));
    }
    this.nodes.forEach(({ index, parent }, place) => {
      if (index >= 0 && parent < 0 && reached.has(place) !== left.has(place)) {
        const [from, to] = reached.has(place) ? [place, OUTSIDE] : [OUTSIDE, place];
        this.merge(merged, from, to, "");
      }
    });
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

function labelOf(shapes: ReadonlySet<string>): string {
  const known = [...shapes].filter(shape => shape !== "");
  return known.length > 1 ? `${known[0]} +${known.length - 1}` : (known[0] ?? "");
}
