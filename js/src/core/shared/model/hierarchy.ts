// The module tree of one payload: parents, children, folds and the facts of each node.

import * as words from "../../words/graph";
import { push } from "../base/multimap";
import { ModelPayload, Tensor, toNumber } from "../payload/payload";
import { Scalar } from "../base/schema";

// What modules of files are called whose classes no file tells: by a tensor that no other kind has, or by their weights.

export const CONTAINER = "module";
export const OTHER = "tensors";
export const BY_NAME: ReadonlyMap<string, string> = new Map([
  ["running_mean", words.BATCH_NORM],
  ["weight_ih_l0", "recurrent"],
  ["in_proj_weight", "attention"]
]);
export const BY_DIMENSIONS: ReadonlyMap<number, string> = new Map([
  [1, "norm"],
  [2, "matrix"],
  [3, "convolution 1d"],
  [4, "convolution 2d"],
  [5, "convolution 3d"]
]);
export const KINDS: ReadonlySet<string> = new Set([CONTAINER, OTHER, ...BY_NAME.values(), ...BY_DIMENSIONS.values()]);

export interface Fold {
  first: number;
  count: number;
  kind: "exact" | "family";
  label: string;
  members: number[];
}

/** A slot whose module has its place elsewhere. */
export interface Link {
  slot: string;
  target: number;
  kind: "shared" | "cycle";
}

/** One tensor under two names. */
interface TiedTensor {
  name: string;
  other: number;
  otherName: string;
}

const REMEMBERED = 64; // paths: every part of the view asks for the same few

export class Hierarchy {
  readonly size: number;
  private readonly start: Int32Array; // children of i are order[start[i]] .. order[start[i + 1] - 1]
  private readonly order: Int32Array;
  private readonly depths: Int32Array;
  private readonly folds = new Map<number, Fold>(); // every member -> its fold
  private readonly linksOf = new Map<number, Link[]>();
  private readonly tiedOf = new Map<number, TiedTensor[]>();
  private readonly childLists = new Map<number, readonly number[]>();
  private readonly rowLists = new Map<number, readonly number[]>();
  private readonly slots = new Map<number, Slots>();
  private readonly paths = new Map<number, string>();
  private readonly found = new Map<string, number | undefined>(); // the latest answers of find()
  private readonly columns = new Map<string, readonly (number | null)[]>();

  constructor(readonly payload: ModelPayload) {
    const { parent } = payload.nodes;
    this.size = parent.length;
    this.depths = new Int32Array(this.size);
    this.start = new Int32Array(this.size + 1);
    for (let i = 1; i < this.size; i++) {
      this.depths[i] = this.depths[parent[i]] + 1;
      this.start[parent[i] + 1]++;
    }
    for (let i = 0; i < this.size; i++) {
      this.start[i + 1] += this.start[i];
    }
    this.order = this.sortByParent(parent);
    this.readFolds();
    this.readRelations();
  }

  parent(i: number): number {
    return this.payload.nodes.parent[i];
  }

  name(i: number): string {
    return this.payload.nodes.name[i];
  }

  depth(i: number): number {
    return this.depths[i];
  }

  isContainer(i: number): boolean {
    return this.start[i + 1] > this.start[i];
  }

  children(i: number): readonly number[] {
    return cached(this.childLists, i, () => Array.from(this.order.subarray(this.start[i], this.start[i + 1])));
  }

  /** Children as shown: the first member stands for its fold. */
  rows(i: number): readonly number[] {
    return cached(this.rowLists, i, () =>
      this.children(i).filter(child => (this.folds.get(child)?.first ?? child) === child)
    );
  }

  fold(i: number): Fold | undefined {
    return this.folds.get(i);
  }

  /** Root first, i excluded. */
  ancestors(i: number): number[] {
    const found: number[] = [];
    for (let at = this.parent(i); at >= 0; at = this.parent(at)) {
      found.push(at);
    }
    return found.reverse();
  }

  /** Whether `i` lies below `above`, or is it. */
  isInside(i: number, above: number): boolean {
    let at = i;
    while (this.depths[at] > this.depths[above]) {
      at = this.parent(at);
    }
    return at === above;
  }

  path(i: number): string {
    return cached(this.paths, i, () => {
      const names: string[] = [];
      for (let at = i; at > 0; at = this.parent(at)) {
        names.push(this.name(at));
      }
      return names.reverse().join(".");
    });
  }

  /** The node with this dotted path. */
  find(path: string): number | undefined {
    if (this.found.has(path)) {
      return this.found.get(path);
    }
    const node = path === "" ? 0 : this.search(path);
    if (this.found.size >= REMEMBERED) {
      this.found.clear();
    }
    this.found.set(path, node);
    return node;
  }

  className(i: number): string {
    return this.payload.classes.name[this.classOf(i)];
  }

  qualifiedName(i: number): string {
    return this.payload.classes.qualified[this.classOf(i)];
  }

  /** Whether the class is none, but a word for what a file tells of the module without one. */
  isKind(i: number): boolean {
    return Boolean(this.payload.file) && i > 0 && KINDS.has(this.className(i)) && !this.qualifiedName(i).includes(".");
  }

  /** The class, or the kind of a module of a file; "" where that says no more than that it is one. */
  word(i: number): string {
    const name = this.className(i);
    return name === CONTAINER && this.isKind(i) ? "" : name;
  }

  source(i: number): string | null {
    return this.payload.classes.source[this.classOf(i)];
  }

  entity(i: number): number {
    return this.payload.nodes.entity[i];
  }

  entityName(i: number): string {
    return this.payload.entities.name[this.entity(i)];
  }

  digest(i: number): string {
    return this.payload.entities.digest[this.entity(i)];
  }

  /** Hyper-parameters that this instance has, in the order of its class. */
  hyper(i: number): [string, Scalar][] {
    const fields = this.payload.classes.fields[this.classOf(i)];
    const values = this.payload.entities.hyper[this.entity(i)];
    const pairs: [string, Scalar][] = [];
    values.forEach((value, k) => {
      if (value !== null) {
        pairs.push([fields[k], value]);
      }
    });
    return pairs;
  }

  tensors(i: number): readonly Tensor[] {
    return this.payload.entities.tensors[this.entity(i)];
  }

  marks(i: number): readonly string[] {
    return this.payload.marks[String(i)] ?? [];
  }

  /** What is said of a residual block; nothing of any other module. */
  blocks(i: number): readonly string[] {
    const text = this.payload.blocks[String(i)];
    return text === undefined ? [] : [text];
  }

  links(i: number): readonly Link[] {
    return this.linksOf.get(i) ?? [];
  }

  tied(i: number): readonly TiedTensor[] {
    return this.tiedOf.get(i) ?? [];
  }

  /** A column of the payload as numbers, or "occurrences": how many nodes share the entity. */
  column(name: string): readonly (number | null)[] | undefined {
    if (name === "occurrences") {
      return cached(this.columns, name, () => this.occurrences());
    }
    if (!Object.prototype.hasOwnProperty.call(this.payload.columns, name)) {
      return undefined;
    }
    return cached(this.columns, name, () => this.payload.columns[name].map(toNumber));
  }

  /** Names may themselves contain dots, so a path can have several readings. */
  private search(path: string): number | undefined {
    const open = [{ node: 0, from: 0 }];
    for (let state = open.pop(); state; state = open.pop()) {
      const { node, from } = state;
      const slots = this.slotsOf(node);
      for (let dot = from - 1, more = true; more; more = slots.dotted && dot < path.length) {
        const next = path.indexOf(".", dot + 1);
        dot = next < 0 ? path.length : next;
        const child = slots.byName.get(path.slice(from, dot));
        if (child !== undefined && dot === path.length) {
          return child;
        }
        if (child !== undefined) {
          open.push({ node: child, from: dot + 1 });
        }
      }
    }
    return undefined;
  }

  private classOf(i: number): number {
    return this.payload.entities.class[this.entity(i)];
  }

  private occurrences(): number[] {
    const { entity } = this.payload.nodes;
    const counts = new Int32Array(this.payload.entities.name.length);
    entity.forEach(e => counts[e]++);
    return entity.map(e => counts[e]);
  }

  private sortByParent(parent: readonly number[]): Int32Array {
    const order = new Int32Array(this.size - 1);
    const next = this.start.slice();
    for (let i = 1; i < this.size; i++) {
      order[next[parent[i]]++] = i;
    }
    return order;
  }

  private readFolds(): void {
    for (const [first, count, kind, label] of this.payload.folds) {
      const siblings = this.children(this.parent(first));
      const at = binarySearch(siblings, first);
      const members = siblings.slice(at, at + count);
      const fold: Fold = { first, count: members.length, kind, label, members };
      members.forEach(member => this.folds.set(member, fold));
    }
  }

  private readRelations(): void {
    for (const [node, slot, target, kind] of this.payload.links) {
      push(this.linksOf, node, { slot, target, kind });
    }
    for (const [node, name, other, otherName] of this.payload.tied) {
      push(this.tiedOf, node, { name, other, otherName });
      push(this.tiedOf, other, { name: otherName, other: node, otherName: name });
    }
  }

  private slotsOf(node: number): Slots {
    return cached(this.slots, node, () => {
      const byName = new Map<string, number>();
      let dotted = false;
      for (const child of this.children(node)) {
        const name = this.name(child);
        dotted ||= name.includes(".");
        if (!byName.has(name)) {
          byName.set(name, child);
        }
      }
      return { byName, dotted };
    });
  }
}

interface Slots {
  byName: Map<string, number>;
  dotted: boolean;
}

function cached<K, V>(store: Map<K, V>, key: K, make: () => V): V {
  let value = store.get(key);
  if (value === undefined) {
    value = make();
    store.set(key, value);
  }
  return value;
}

function binarySearch(sorted: readonly number[], value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The small signs beside a name, and what they mean in words: the same in the tree and on the canvas.

export const NOTE = "!";
export const BLOCK = "−";

export function foldBadge(fold: Fold): string {
  return fold.kind === "exact" ? `×${fold.count}` : `≈ ×${fold.count}`;
}

/** One line for each sign of a module; `fold`: what it stands for. */
export function badgeDescriptions(h: Hierarchy, node: number, fold?: Fold): string[] {
  return [
    ...(fold ? [`${foldBadge(fold)} ${foldWords(fold)}`] : []),
    ...h.marks(node).map(text => `${NOTE} ${text}`),
    ...h.tied(node).map(({ name, other, otherName }) => words.tiedTo(name, otherName, h.path(other) || words.ROOT)),
    ...h.blocks(node).map(text => `${BLOCK} ${text}`)
  ];
}

function foldWords({ kind, label }: Fold): string {
  return kind === "exact" ? words.SAME : words.otherSizes(label);
}
