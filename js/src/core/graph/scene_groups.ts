// Which layout an edge belongs to: that of the innermost frame around both of its ends.

import type { Measure } from "../shared/canvas";
import { type LayoutGroup, NO_EDGE } from "./layout_types";
import type { SceneEdge } from "./scene_types";

interface Drawn {
  parent: number;
}

export const LABEL_SIZE = 10; // pixels of a shape on an edge

/** Enters every edge in the group in which its ends part, with room for its label, and its way out of and into frames. */
export function intoGroups(
  nodes: readonly Drawn[],
  edges: readonly SceneEdge[],
  groups: readonly LayoutGroup[],
  measure: Measure
): void {
  const byNode = new Map(groups.map(group => [group.node, new Entered(group)]));
  edges.forEach(({ source, target, label }, edge) => {
    const [a, b, owner] = parting(nodes, source, target);
    const isDirect = a === source && b === target;
    // the bends lead between the items themselves, not to what lies inside them
    byNode.get(owner)?.link(a, b, isDirect ? edge : NO_EDGE, labelWidth(label, measure));
    framesBetween(nodes, source, a).forEach(([frame, item]) => byNode.get(frame)?.exits.add(item));
    framesBetween(nodes, target, b).forEach(([frame, item]) => byNode.get(frame)?.entries.add(item));
  });
  byNode.forEach(entered => entered.finish());
}

/** The frames around a place, from the inside to `outermost`, each with its item that holds the place. */
export function framesBetween(nodes: readonly Drawn[], place: number, outermost: number): [number, number][] {
  const found: [number, number][] = [];
  for (let at = place; at !== outermost; at = nodes[at].parent) {
    found.push([nodes[at].parent, at]);
  }
  return found;
}

/** What is entered in one group. */
class Entered {
  readonly entries = new Set<number>(); // places that are reached from outside
  readonly exits = new Set<number>();
  private readonly places: ReadonlyMap<number, number>;
  private readonly widths: number[] = []; // beside the group's edges

  constructor(private readonly group: LayoutGroup) {
    this.places = new Map(group.items.map((item, at) => [item, at]));
  }

  link(source: number, target: number, edge: number, width: number): void {
    const [from, to] = [this.places.get(source), this.places.get(target)];
    if (from !== undefined && to !== undefined && from !== to) {
      this.group.edges.push([from, to, edge]);
      this.widths.push(width);
    }
  }

  finish(): void {
    const { group } = this;
    const room = widest(group, this.widths);
    group.edges = distinct(group.edges);
    this.keepLoose();
    const labels = group.edges.map(([from, to]) => room.get(`${from} ${to}`) ?? 0);
    if (labels.some(width => width > 0)) {
      group.labels = labels;
    }
    this.addPorts();
  }

  /** What nothing leads to or from stays behind what stands before it. */
  private keepLoose(): void {
    const { group } = this;
    const linked = new Set(group.edges.flatMap(([from, to]) => [from, to]));
    const passed = (at: number) => this.entries.has(group.items[at]) || this.exits.has(group.items[at]);
    if (linked.size === 0) {
      return;
    }
    for (let at = 1; at < group.items.length; at++) {
      if (!linked.has(at) && !passed(at)) {
        group.edges.push([at - 1, at, NO_EDGE]);
      }
    }
    group.edges = distinct(group.edges);
  }

  /** An edge through the border is told apart from those inside where it leads to, or from, more than the end of them. */
  private addPorts(): void {
    const { group } = this;
    const at = (places: ReadonlySet<number>) =>
      [...places].map(place => this.places.get(place) ?? 0).sort((a, b) => a - b);
    const [entries, exits] = [at(this.entries), at(this.exits)];
    const [reached, left] = [1, 0].map(end => new Set(group.edges.map(edge => edge[end])));
    const ports = {
      entries: entries.length > 1 || entries.some(item => reached.has(item)) ? entries : [],
      exits: exits.length > 1 || exits.some(item => left.has(item)) ? exits : []
    };
    if (group.node >= 0 && ports.entries.length + ports.exits.length > 0) {
      group.ports = ports;
    }
  }
}

/** For each pair of items the room that what is written between them needs. */
function widest(group: LayoutGroup, widths: readonly number[]): Map<string, number> {
  const room = new Map<string, number>();
  group.edges.forEach(([from, to], k) => {
    const key = `${from} ${to}`;
    room.set(key, Math.max(room.get(key) ?? 0, widths[k]));
  });
  return room;
}

export function labelWidth(text: string, measure: Measure): number {
  return text === "" ? 0 : Math.ceil(measure(text, LABEL_SIZE, false)) + 8;
}

/** The items around source and target in the innermost frame that has both, and the place of that frame. */
export function parting(nodes: readonly Drawn[], source: number, target: number): [number, number, number] {
  const [a, b] = [chainUp(nodes, source), chainUp(nodes, target)];
  let shared = 0;
  while (shared < Math.min(a.length, b.length) - 1 && a[shared] === b[shared]) {
    shared++;
  }
  return [a[shared], b[shared], nodes[a[shared]].parent];
}

/** The place and the frames around it, outermost first. */
export function chainUp(nodes: readonly Drawn[], place: number): number[] {
  const chain: number[] = [];
  for (let at = place; at >= 0; at = nodes[at].parent) {
    chain.push(at);
  }
  return chain.reverse();
}

/** Whether `frame` is around `place`, or is it. */
export function isAround(nodes: readonly Drawn[], frame: number, place: number): boolean {
  let at = place;
  while (at > frame) {
    at = nodes[at].parent; // a frame's place comes before those of its children
  }
  return at === frame;
}

/** A layout needs each pair once, the direct edge if there is one; in order, so that a chain is seen to be one. */
function distinct(edges: LayoutGroup["edges"]): LayoutGroup["edges"] {
  const sorted = [...edges].sort((a, b) => a[0] - b[0] || a[1] - b[1] || b[2] - a[2]);
  return sorted.filter(([from, to], i) => i === 0 || sorted[i - 1][0] !== from || sorted[i - 1][1] !== to);
}
