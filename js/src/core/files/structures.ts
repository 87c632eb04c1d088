// Which modules of a file are of one structure: the same class, settings and tensors, and the same inside.

import { kindOf, roleOf } from "./kinds";
import type { Plain, TensorRecord } from "./records";
import type { FileTree } from "./tree";

export interface ModuleClass {
  readonly name: string; // as it is shown
  readonly qualified: string;
}

/** A distinct structure; modules of one structure differ in nothing but their values. */
export interface Structure {
  readonly classPlace: number;
  readonly digest: string;
  readonly settings: readonly (readonly [string, Plain])[];
  readonly tensors: readonly (readonly [string, "parameter" | "buffer", readonly number[]])[];
}

export interface Structures {
  readonly classes: readonly ModuleClass[];
  readonly list: readonly Structure[];
  readonly of: readonly number[]; // of each module
  readonly skeletons: readonly number[]; // of each module: equal where class and inside are, whatever the sizes
}

/** `title` is the root's class where the file tells none. */
export function structuresOf(tree: FileTree, title: string): Structures {
  const [classes, wholes, skeletons] = [new Places(), new Places(), new Places()];
  const shown: ModuleClass[] = [];
  const list: Structure[] = [];
  const count = tree.names.length;
  const [of, skeletonOf] = [new Array<number>(count).fill(0), new Array<number>(count).fill(0)];
  // what is inside comes behind
  for (let node = count - 1; node >= 0; node--) {
    const { name, qualified } = classOf(tree, node, title);
    const place = classes.place(node === 0 ? "" : qualified); // of which the name is the end
    if (place === shown.length) shown.push({ name, qualified });
    const inside = tree.children[node];
    skeletonOf[node] = skeletons.place(`${place}:${inside.map(child => skeletonOf[child]).join()}`);
    const settings = Object.entries(tree.parts[node]?.settings ?? {});
    const tensors = [...tree.tensors[node]];
    const own = [place, settings, tensors.map(([name, tensor]) => shapeOf(name, tensor))];
    of[node] = wholes.place(JSON.stringify([own, inside.map(child => [tree.names[child], of[child]])]));
    if (of[node] < list.length) continue;
    // the title is often a file's name, which says nothing of the structure
    const named = node === 0 ? "" : qualified;
    const within = inside.map(child => [tree.names[child], list[of[child]].digest]);
    list.push({
      classPlace: place,
      digest: digestOf(JSON.stringify([named, own.slice(1), within])),
      settings,
      tensors: tensors.map(([name, tensor]) => [name, roleOf(name, tensor), tensor.shape] as const)
    });
  }
  return { classes: shown, list, of, skeletons: skeletonOf };
}

/** Whether the file itself tells the class of a module. */
export const isTold = (tree: FileTree, node: number) => (tree.parts[node]?.className ?? "") !== "";

function classOf(tree: FileTree, node: number, title: string): ModuleClass {
  const told = tree.parts[node]?.className ?? "";
  if (node === 0) return { name: title, qualified: told || title };
  if (told !== "") return { name: told.slice(told.lastIndexOf(".") + 1), qualified: told };
  const kind = kindOf(tree.tensors[node], tree.children[node].length > 0 ? [] : tree.operators[node]);
  return { name: kind, qualified: kind };
}

const shapeOf = (name: string, tensor: TensorRecord) => [name, roleOf(name, tensor), tensor.shape, tensor.dtype];

/** Distinct texts by the order in which they were met. */
class Places {
  private readonly places = new Map<string, number>();

  place(text: string): number {
    let place = this.places.get(text);
    if (place === undefined) this.places.set(text, (place = this.places.size));
    return place;
  }
}

/** 128 bits of a text as hex digits: of equal texts the same, of others another, as long as nobody wants it otherwise. */
export function digestOf(text: string): string {
  let [a, b, c, d] = [0x9e3779b1, 0xc2b2ae3d, 0x165667b1, 0x27d4eb2f];
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    a = Math.imul(a ^ unit, 0x85ebca77);
    b = Math.imul(b ^ unit, 0x27d4eb2f);
    c = Math.imul(c ^ unit, 0x9e3779b1);
    d = Math.imul(d ^ unit, 0xc2b2ae3d);
    a ^= a >>> 15; // else the high bits of a factor never reach the low ones
    b ^= b >>> 13;
    c ^= c >>> 16;
    d ^= d >>> 14;
  }
  return hexOf(a) + hexOf(b ^ text.length) + hexOf(c) + hexOf(d);
}

/** The bits of a number well mixed, as eight digits. */
function hexOf(state: number): string {
  let mixed = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return ((mixed ^ (mixed >>> 16)) >>> 0).toString(16).padStart(8, "0");
}
