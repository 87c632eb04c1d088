// Module tree of a model file, built from its listed modules, tensor names and operator paths.

import { limitExceeded } from "../bytes/limits";
import { type OwnedTensor, ownersOf } from "./tensor_owners";
import type { FileContents, ModulePart, TensorRecord } from "../bytes/records";
import { push } from "../../shared/base/multimap";

const MAX_MODULES = 500_000;
const MAX_DEPTH = 200; // segments of a path
const NUMBER = /^\d{1,15}$/;

/** Depth first: a module stands behind the one that it lies in; 0 is the root. */
export interface FileTree {
  readonly names: readonly string[];
  readonly parents: readonly number[]; // -1 for the root
  readonly children: readonly (readonly number[])[];
  readonly parts: readonly (ModulePart | undefined)[]; // what the file tells of it
  readonly tensors: readonly ReadonlyMap<string, TensorRecord>[]; // its own, by their names in it
  readonly operators: readonly ReadonlySet<string>[]; // distinct ones that run in it, in the order of the file
  /** The module of a path; undefined where there is none. */
  find(path: string): number | undefined;
}

export function treeOf(contents: FileContents): FileTree {
  const growing = new GrowingTree();
  for (const part of contents.modules) growing.parts.set(growing.module(part.path), part);
  for (const { module, op } of contents.graph?.operators ?? []) growing.run(module, op);
  for (const owned of ownersOf(contents)) growing.add(owned);
  return growing.inOrder();
}

/** The names in a path; what is deeper than any model stands in the last one. */
function segmentsOf(path: string): string[] {
  if (path === "") return [];
  const found: string[] = [];
  let from = 0;
  for (let end = path.indexOf("."); end >= 0 && found.length < MAX_DEPTH; end = path.indexOf(".", from)) {
    found.push(path.slice(from, end));
    from = end + 1;
  }
  return [...found, path.slice(from)];
}

/** Modules in the order in which they are met. */
class GrowingTree {
  readonly parts = new Map<number, ModulePart>();
  private readonly tensors = new Map<number, Map<string, TensorRecord>>();
  private readonly operators = new Map<number, Set<string>>();
  private readonly names = [""];
  private readonly parents = [-1];
  private readonly children: number[][] = [[]];
  private readonly places = new Map<string, number>(); // by parent and name: a path as a key would be as long as it is deep

  /** The module of a path, made where there is none; loops, for a path may have as many parts as a file has bytes. */
  module(path: string): number {
    let node = 0;
    for (const name of segmentsOf(path)) node = this.child(node, name);
    return node;
  }

  /** Notes what runs in a module. */
  run(path: string, op: string): void {
    const node = this.module(path);
    let own = this.operators.get(node);
    if (!own) this.operators.set(node, (own = new Set()));
    own.add(op);
  }

  add({ path, name, tensor }: OwnedTensor): void {
    const node = this.module(path);
    let own = this.tensors.get(node);
    if (!own) this.tensors.set(node, (own = new Map()));
    own.set(name, tensor);
  }

  inOrder(): FileTree {
    const order = this.depthFirst();
    const placeOf = new Int32Array(order.length);
    order.forEach((node, place) => (placeOf[node] = place));
    return {
      names: order.map(node => this.names[node]),
      parents: order.map(node => (node === 0 ? -1 : placeOf[this.parents[node]])),
      children: order.map(node => this.children[node].map(child => placeOf[child])),
      parts: order.map(node => this.parts.get(node)),
      tensors: order.map(node => this.tensors.get(node) ?? NONE),
      operators: order.map(node => this.operators.get(node) ?? NOTHING),
      find: path => {
        const node = this.find(path);
        return node === undefined ? undefined : placeOf[node];
      }
    };
  }

  private find(path: string): number | undefined {
    let node: number | undefined = 0;
    for (const name of segmentsOf(path)) {
      node = this.places.get(key(node, name));
      if (node === undefined) break;
    }
    return node;
  }

  private child(parent: number, name: string): number {
    const known = this.places.get(key(parent, name));
    if (known !== undefined) return known;
    if (this.names.length >= MAX_MODULES) throw limitExceeded("modules");
    const node = this.names.length;
    this.places.set(key(parent, name), node);
    this.names.push(name);
    this.parents.push(parent);
    this.children.push([]);
    this.children[parent].push(node);
    return node;
  }

  private depthFirst(): number[] {
    const order: number[] = [];
    const waiting = [0];
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      order.push(node);
      const inside = this.sorted(this.children[node]);
      for (let i = inside.length - 1; i >= 0; i--) waiting.push(inside[i]);
    }
    return order;
  }

  /** Numbered siblings by their numbers: headers are often sorted as texts, 10 before 2. */
  private sorted(siblings: number[]): readonly number[] {
    if (siblings.length > 1 && siblings.every(node => NUMBER.test(this.names[node]))) {
      siblings.sort((a, b) => Number(this.names[a]) - Number(this.names[b]));
    }
    return siblings;
  }
}

const NONE: ReadonlyMap<string, TensorRecord> = new Map();
const NOTHING: ReadonlySet<string> = new Set();

const key = (parent: number, name: string) => `${parent}.${name}`;

// Tensors that stand under several names: the same bytes of a file, read in the same way.

const MAX_STEPS = 10_000_000; // up the tree; a hostile file has many ties, each a hundred thousand modules deep

export interface TiedPlace {
  readonly node: number;
  readonly name: string; // in the module
  readonly tensor: TensorRecord;
}

/** Groups of two and more, in the order of the modules. */
export function tiesOf(tree: FileTree): TiedPlace[][] {
  const groups = new Map<string, TiedPlace[]>();
  tree.tensors.forEach((own, node) => {
    for (const [name, tensor] of own) {
      const { file, offset, shape, strides, dtype, nbytes } = tensor;
      if (offset === null || nbytes === 0) continue;
      push(groups, `${file}\0${offset}\0${shape.join()}\0${strides?.join() ?? ""}\0${dtype}`, { node, name, tensor });
    }
  });
  return [...groups.values()].filter(group => group.length > 1);
}

/** Calls `note` with the innermost module around each place and the one before it: what counts a tensor twice. */
export function duplicateBytes(
  tree: FileTree,
  ties: readonly (readonly TiedPlace[])[],
  note: (around: number, place: TiedPlace) => void
): void {
  let steps = 0;
  for (const group of ties) {
    for (let i = 1; i < group.length; i++) {
      let [one, other] = [group[i - 1].node, group[i].node];
      // depth first: of two modules the later one is never around the other
      while (one !== other && steps++ < MAX_STEPS) {
        if (one > other) one = tree.parents[one];
        else other = tree.parents[other];
      }
      if (one === other) note(one, group[i]);
    }
  }
}
