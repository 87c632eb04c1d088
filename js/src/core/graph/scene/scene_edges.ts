// Edges of a scene: the layouts that each takes part in, and data edges lifted to the visible ancestors.

import type { Fold, Hierarchy } from "../../shared/model/hierarchy";
import type { Measure } from "../../shared/base/canvas";
import { BORDER, ITSELF, type LayoutGroup, type Net } from "../../layout/types";
import { labelWidth } from "./edge_labels";
import type { Piece, SceneEdge } from "./scene";

// Which layouts an edge takes part in: those of all frames that it passes, and of the innermost around both of its ends.

interface FramedNode {
  parent: number;
}

/** Enters every edge in the groups that it passes; edges of one source are one net, a line that branches. */
export function addToGroups(
  nodes: readonly FramedNode[],
  edges: readonly SceneEdge[],
  groups: readonly LayoutGroup[],
  measure: Measure
): void {
  const byNode = new Map(groups.map(group => [group.node, new Entered(group)]));
  for (const edge of edges) {
    const { source, target } = edge;
    const [a, b, owner] = parting(nodes, source, target);
    edge.labelRoom = labelWidth(edge.label, measure);
    const steps: Step[] = [
      ...framesBetween(nodes, source, a).map(([frame, item]) => ({ frame, from: item, to: BORDER })),
      { frame: owner, from: a, to: b },
      ...framesBetween(nodes, target, b)
        .reverse()
        .map(([frame, item]) => ({ frame, from: BORDER, to: item }))
    ];
    edge.way = steps.flatMap(({ frame, from, to }) => {
      const entered = byNode.get(frame);
      return entered ? [entered.link(edge, from, to)] : [];
    });
  }
  byNode.forEach(entered => entered.finish(byNode));
}

interface Step {
  frame: number;
  from: number; // places, or BORDER
  to: number;
}

/** The frames around a place, from the inside to `outermost`, each with its item that holds the place. */
function framesBetween(nodes: readonly FramedNode[], place: number, outermost: number): [number, number][] {
  const found: [number, number][] = [];
  for (let at = place; at !== outermost; at = nodes[at].parent) {
    found.push([nodes[at].parent, at]);
  }
  return found;
}

/** The nets of one group. */
class Entered {
  private readonly places: ReadonlyMap<number, number>;
  private readonly numbers = new Map<number, number>(); // source -> net
  private readonly ends = new Map<string, number>();
  private readonly sources: number[] = [];
  private readonly labels: string[] = []; // of each net

  constructor(private readonly group: LayoutGroup) {
    this.places = new Map(group.items.map((item, at) => [item, at]));
  }

  link({ source, label, labelRoom = 0 }: SceneEdge, from: number, to: number): Piece {
    const { group } = this;
    let number = this.numbers.get(source);
    if (number === undefined) {
      number = group.nets.length;
      this.numbers.set(source, number);
      this.sources.push(source);
      this.labels.push(label);
      group.nets.push({ start: [this.placeOf(from), ITSELF], ends: [], label: from === source ? labelRoom : 0 });
    }
    const net = group.nets[number];
    if (label !== this.labels[number]) net.label = 0; // what the line that they share carries no label says
    const key = `${number} ${to}`;
    let end = this.ends.get(key);
    if (end === undefined) {
      end = net.ends.length;
      this.ends.set(key, end);
      net.ends.push([this.placeOf(to), ITSELF]);
    }
    return [group.node, number, end];
  }

  /** At an open frame a line goes on as the net of the same source inside of it. */
  finish(byNode: ReadonlyMap<number, Entered>): void {
    const { group } = this;
    group.nets.forEach((net: Net, number) => {
      const inner = (item: number): number =>
        item === BORDER ? ITSELF : (byNode.get(group.items[item])?.numbers.get(this.sources[number]) ?? ITSELF);
      net.start[1] = inner(net.start[0]);
      net.ends.forEach(end => (end[1] = inner(end[0])));
    });
  }

  private placeOf(item: number): number {
    return item === BORDER ? BORDER : (this.places.get(item) ?? BORDER);
  }
}

/** The items around source and target in the innermost frame that has both, and the place of that frame. */
function parting(nodes: readonly FramedNode[], source: number, target: number): [number, number, number] {
  const [a, b] = [chainUp(nodes, source), chainUp(nodes, target)];
  let shared = 0;
  while (shared < Math.min(a.length, b.length) - 1 && a[shared] === b[shared]) {
    shared++;
  }
  return [a[shared], b[shared], nodes[a[shared]].parent];
}

/** The place and the frames around it, outermost first. */
function chainUp(nodes: readonly FramedNode[], place: number): number[] {
  const chain: number[] = [];
  for (let at = place; at >= 0; at = nodes[at].parent) {
    chain.push(at);
  }
  return chain.reverse();
}

/** Whether `frame` is around `place`, or is it. */
export function isAround(nodes: readonly FramedNode[], frame: number, place: number): boolean {
  let at = place;
  while (at > frame) {
    at = nodes[at].parent; // a frame's place comes before those of its children
  }
  return at === frame;
}

interface NestedNode {
  index: number;
  parent: number;
}

interface LiftedEdge {
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
    private readonly nodes: readonly NestedNode[],
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
