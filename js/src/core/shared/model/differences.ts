// Differences between two models, each place once, as `mk.diff` lists and counts them.

import * as words from "../../words/graph";
import { counted } from "../base/format";
import { Hierarchy } from "./hierarchy";
import type { Comparison, Status } from "../payload/payload";

/** One model of the two. */
export interface Compared {
  readonly h: Hierarchy;
  readonly status: readonly Status[];
  readonly partners: ReadonlyMap<number, number>; // node -> node of the other model
}

/** What a comparison says of a module, once for each place that is counted; "changed inside": no place, but around some. */
export type Mark = Exclude<Status, "same"> | "changed inside";

export interface Difference {
  readonly side: 0 | 1;
  readonly node: number;
  readonly status: Status;
}

/** In the words and the order of `mk.diff`'s summary. */
export const STATUSES: readonly Status[] = ["renamed", "moved", "changed", "removed", "added"];

/** In the order of the left tree; what only the right model has comes after all that the container around it holds. */
export function findDifferences(left: Compared, right: Compared): Difference[] {
  const places = (side: 0 | 1, keep: (status: Status) => boolean) => {
    const [own, other] = side === 0 ? [left, right] : [right, left];
    const wrappers = wrappersOf(own);
    return own.status.flatMap((status, node) =>
      keep(status) && isItself(own, other, node, wrappers)
        ? [{ side, node, status, at: placeOf(side, node, right, left) }]
        : []
    );
  };
  const found = [...places(0, status => status !== "same"), ...places(1, status => status === "added")];
  return found
    .sort((a, b) => a.at - b.at || a.side - b.side || a.node - b.node)
    .map(({ side, node, status }) => ({ side, node, status }));
}

/** What one model alone has around modules that both have, such as what a prefix in the names of tensors stands for. */
export function wrappersOf({ h, partners }: Compared): Set<number> {
  const found = new Set<number>();
  for (const node of partners.keys()) {
    for (let around = h.parent(node); around >= 0 && !partners.has(around) && !found.has(around);) {
      found.add(around);
      around = h.parent(around);
    }
  }
  return found;
}

const known = new WeakMap<Hierarchy, readonly [Compared, Compared]>();

/** A model and the one that its payload compares it with; undefined where there is none. */
export function comparedOf(h: Hierarchy): readonly [Compared, Compared] | undefined {
  const { compare } = h.payload;
  if (!compare) return undefined;
  const found = known.get(h) ?? [
    { h, status: compare.left, partners: new Map(compare.pairs) },
    { h: new Hierarchy(compare.model), status: compare.right, partners: new Map(compare.pairs.map(([a, b]) => [b, a])) }
  ];
  known.set(h, found);
  return found;
}

/** The marks of both models by node; none on what is the same, and on what came, went or moved with what is around it. */
export function marksOf(left: Compared, right: Compared): readonly [(Mark | null)[], (Mark | null)[]] {
  const marks = ({ status }: Compared) =>
    status.map(one => (one === "changed" ? (words.CHANGED_INSIDE as Mark) : null));
  const found = [marks(left), marks(right)] as const;
  for (const { side, node, status } of findDifferences(left, right)) {
    if (status === "same") continue;
    found[side][node] = status;
    const partner = side === 0 ? left.partners.get(node) : undefined;
    if (partner !== undefined) found[1][partner] = status;
  }
  return found;
}

/** The marks of the left model alone, where it is compared. */
export function changeMarks(h: Hierarchy): readonly (Mark | null)[] | undefined {
  const models = comparedOf(h);
  return models && marksOf(...models)[0];
}

/** "4 differences: 2 changed, 2 added" */
export function summary(differences: readonly Difference[]): string {
  if (differences.length === 0) return words.NO_DIFFERENCES;
  const counts = countsOf(differences);
  const parts = STATUSES.flatMap(status => (counts.has(status) ? [`${counts.get(status)} ${status}`] : []));
  return `${counted(differences.length, "difference")}: ${parts.join(", ")}`;
}

export function countsOf(differences: readonly Difference[]): Map<Status, number> {
  const counts = new Map<Status, number>();
  for (const { status } of differences) counts.set(status, (counts.get(status) ?? 0) + 1);
  return counts;
}

/** Not merely changed by something inside it, nor there, gone or moved together with what is around it. */
function isItself(side: Compared, other: Compared, node: number, wrappers: ReadonlySet<number>): boolean {
  const { h, status, partners } = side;
  const parent = h.parent(node);
  if (status[node] !== "changed") return node === 0 || status[parent] !== status[node] || wrappers.has(parent);
  const partner = partners.get(node);
  if (partner === undefined) return !differsInside(side, node);
  // what was added inside stands on the other side only
  const isInside = differsInside(side, node) || differsInside(other, partner);
  return !isInside || h.qualifiedName(node) !== other.h.qualifiedName(partner);
}

function differsInside({ h, status }: Compared, node: number): boolean {
  return h.children(node).some(child => status[child] !== "same");
}

/** A place among the nodes of the left model. */
function placeOf(side: 0 | 1, node: number, right: Compared, left: Compared): number {
  if (side === 0) return node;
  let around = right.h.parent(node);
  while (around >= 0 && !right.partners.has(around)) around = right.h.parent(around);
  return lastInside(left.h, right.partners.get(around) ?? 0);
}

/** Nodes are listed depth first. */
function lastInside(h: Hierarchy, node: number): number {
  let last = node;
  for (let children = h.children(last); children.length > 0; children = h.children(last)) {
    last = children[children.length - 1];
  }
  return last;
}

// What corresponds to a module in the model that it is compared with.

export class Counterparts {
  private readonly h: Hierarchy;
  private readonly partners: ReadonlyMap<number, number>;

  constructor(compare: Comparison) {
    this.h = new Hierarchy(compare.model);
    this.partners = new Map(compare.pairs);
  }

  path(node: number): string | undefined {
    return this.ask(node, partner => this.h.path(partner));
  }

  hyper(node: number): ReturnType<Hierarchy["hyper"]> | undefined {
    return this.ask(node, partner => this.h.hyper(partner));
  }

  tensors(node: number): ReturnType<Hierarchy["tensors"]> | undefined {
    return this.ask(node, partner => this.h.tensors(partner));
  }

  private ask<T>(node: number, question: (partner: number) => T): T | undefined {
    const partner = this.partners.get(node);
    return partner === undefined ? undefined : question(partner);
  }
}
