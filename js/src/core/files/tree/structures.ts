// Module classes of a file, inferred from tensors; equal modules and folded siblings.

import type { Plain, TensorRecord } from "../bytes/records";
import type { FileTree } from "./tree";
import { BY_DIMENSIONS, BY_NAME, CONTAINER, OTHER } from "../../shared/model/hierarchy";
import type { FoldRecord } from "../../shared/payload/payload";

// What a module is, told by its own tensors where a file names no class; and what a tensor is to the module.

const BUFFERS: ReadonlySet<string> = new Set(["running_mean", "running_var", "num_batches_tracked"]);
const WHOLE_NUMBERS = /^(?:u?int\d+|bool)$/; // nothing that training changes
const WEIGHT = "weight";
const TORCH = /^(?:torch\.ops\.(\w+)|(aten|prims|quantized|torchvision))\.(\w+)/;
const MAX_NAMES = 2; // of operators that a module is called by

/**
 * In plain words; `tensors` are the module's own, by the last parts of their names. Where these tell none it is what runs
 * in it: `operators` are those of a module that holds no others.
 */
function kindOf(tensors: ReadonlyMap<string, TensorRecord>, operators: Iterable<string> = []): string {
  const kind = kindByTensors(tensors);
  if (kind !== CONTAINER && kind !== OTHER) return kind;
  const names = [...new Set(Array.from(operators, op => operatorName(op).replace(/^.*:/s, "")))];
  const listed = names.slice(0, MAX_NAMES);
  if (names.length > MAX_NAMES) listed.push(`+${names.length - MAX_NAMES}`);
  return listed.join(", ") || kind;
}

function kindByTensors(tensors: ReadonlyMap<string, TensorRecord>): string {
  for (const [name, kind] of BY_NAME) {
    if (tensors.has(name)) return kind;
  }
  if (tensors.size === 0) return CONTAINER;
  return BY_DIMENSIONS.get(tensors.get(WEIGHT)?.shape.length ?? 0) ?? OTHER;
}

/** "torch.ops.aten.conv2d.default" or "aten.conv2d.default" as "aten::conv2d". */
export function operatorName(op: string): string {
  const parts = TORCH.exec(op);
  return parts ? `${parts[1] ?? parts[2]}::${parts[3]}` : op;
}

/** A constant is nothing that is trained either. */
export function roleOf(name: string, { role, dtype }: TensorRecord): "parameter" | "buffer" {
  if (role !== null) return role === "parameter" ? "parameter" : "buffer";
  return BUFFERS.has(name) || WHOLE_NUMBERS.test(dtype) ? "buffer" : "parameter";
}

/** How many numbers a tensor has. */
export function elementsOf({ shape }: TensorRecord): number {
  return shape.includes(0) ? 0 : shape.reduce((product, size) => product * size, 1);
}

interface ModuleClass {
  readonly name: string; // as it is shown
  readonly qualified: string;
}

/** A distinct structure; modules of one structure differ in nothing but their values. */
interface Structure {
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
  const [classes, wholes, skeletons] = [new Interner(), new Interner(), new Interner()];
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
const hasClassName = (tree: FileTree, node: number) => (tree.parts[node]?.className ?? "") !== "";

function classOf(tree: FileTree, node: number, title: string): ModuleClass {
  const told = tree.parts[node]?.className ?? "";
  if (node === 0) return { name: title, qualified: told || title };
  if (told !== "") return { name: told.slice(told.lastIndexOf(".") + 1), qualified: told };
  const kind = kindOf(tree.tensors[node], tree.children[node].length > 0 ? [] : tree.operators[node]);
  return { name: kind, qualified: kind };
}

const shapeOf = (name: string, tensor: TensorRecord) => [name, roleOf(name, tensor), tensor.shape, tensor.dtype];

/** Distinct texts by the order in which they were met. */
class Interner {
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

// Which siblings are drawn as one, as modulekg_widgets/engine/identity/folding.py has it for models.

const MAX_STAGES = 8; // children of the root that stay apart when only their sizes differ: a reader looks for layer4
const MAX_NAMED = 3; // values of a range that are not numbers
const SAME = "identical structure, separate weights";

interface Run {
  kind: "one" | "exact" | "family";
  readonly members: number[];
}

/** `shared`: modules with a tensor that stands elsewhere, too; they stand alone, for folded away, nobody would see it. */
export function foldsOf(tree: FileTree, structures: Structures, shared: ReadonlySet<number>): FoldRecord[] {
  const folds: FoldRecord[] = [];
  const patterns = tree.names.map(name => name.replace(/\d+/g, "#"));
  tree.children.forEach((children, parent) => {
    for (const { kind, members } of runsOf(children, tree, structures, patterns, shared)) {
      if (kind === "one" || (kind === "family" && parent === 0 && members.length <= MAX_STAGES)) continue;
      const label = kind === "exact" ? SAME : whatVaries(tree, structures, members);
      folds.push([members[0], members.length, kind, label]);
    }
  });
  return folds;
}

function runsOf(
  children: readonly number[],
  tree: FileTree,
  structures: Structures,
  patterns: readonly string[],
  shared: ReadonlySet<number>
): Run[] {
  const runs: Run[] = [];
  for (const node of children) {
    const last: Run | undefined = runs[runs.length - 1];
    // where no class is told, names are what tells a query from a key
    const isNamedAlike =
      last !== undefined &&
      (patterns[last.members[0]] === patterns[node] ||
        (hasClassName(tree, last.members[0]) && hasClassName(tree, node)));
    if (!last || !isNamedAlike || shared.has(node) || shared.has(last.members[0]) || !joins(last, node, structures))
      runs.push({ kind: "one", members: [node] });
    else last.members.push(node);
  }
  return runs;
}

/** Whether a module goes on with a run; sets the kind that the run has then. */
function joins(run: Run, node: number, { of, skeletons }: Structures): boolean {
  const first = run.members[0];
  if (run.kind !== "family" && of[first] === of[node]) run.kind = "exact";
  else if (skeletons[first] === skeletons[node]) run.kind = "family";
  else return false;
  return true;
}

/** A setting that differs among the members, or else a shape or dtype, of them or else of what is inside, as a range. */
function whatVaries(tree: FileTree, structures: Structures, members: readonly number[]): string {
  let level = members.map(member => [member]);
  while (level[0].length > 0) {
    for (const about of [settingsOf, shapesOf, dtypesOf]) {
      const differences = new Map<string, unknown[]>();
      for (let at = 0; at < level[0].length; at++) {
        const column = level.map(group => about(tree, structures, group[at]));
        for (const [name, values] of differing(column)) if (!differences.has(name)) differences.set(name, values);
      }
      const names = [...differences.keys()];
      const name = names.find(each => each.startsWith("in_")) ?? names[0];
      if (name !== undefined) return `${name} ${rangeOf(differences.get(name) ?? [])}`;
    }
    level = level.map(group => group.flatMap(node => tree.children[node]));
  }
  return "other attributes";
}

type About = ReadonlyMap<string, Plain>;

const settingsOf = (_: FileTree, { list, of }: Structures, node: number): About => new Map(list[of[node]].settings);

const shapesOf = (_: FileTree, { list, of }: Structures, node: number): About =>
  new Map(list[of[node]].tensors.map(([name, , shape]) => [name, shape.join("×") || "scalar"]));

const dtypesOf = (tree: FileTree, _: Structures, node: number): About =>
  new Map([...tree.tensors[node]].map(([name, { dtype }]) => [name, dtype]));

/** Of what the first member has, that which is otherwise in another. */
function differing(members: readonly About[]): [string, unknown[]][] {
  const columns = [...members[0].keys()].map(name => [name, members.map(member => member.get(name))] as const);
  return columns
    .filter(([, column]) => column.some(value => value !== column[0]))
    .map(([name, column]) => [name, [...column]]);
}

function rangeOf(values: readonly unknown[]): string {
  const numbers = values.filter(value => typeof value === "number");
  if (numbers.length === values.length) {
    const [least, most] = numbers.reduce(([a, b], n) => [Math.min(a, n), Math.max(b, n)], [Infinity, -Infinity]);
    return `${least}…${most}`;
  }
  const distinct = [...new Set(values.map(value => (value === undefined ? "none" : String(value))))];
  return distinct.slice(0, MAX_NAMED).join(", ") + (distinct.length > MAX_NAMED ? ", …" : "");
}
