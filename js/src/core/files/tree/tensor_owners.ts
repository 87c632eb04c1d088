// Owner module of each tensor in a file: by its name, else the only module that reads it.
// modulekg_widgets/engine/files/tensor_owners.py has the same rules.

import type { FileContents, TensorRecord } from "../bytes/records";

/** Formats that tell no roles: those that tensors have are by how operators read them. */
const UNTOLD_ROLES: readonly string[] = ["onnx"];

export interface OwnedTensor {
  readonly path: string; // of the module
  readonly name: string; // in the module
  readonly tensor: TensorRecord;
}

/**
 * Every tensor with its module and its name there, in the order of the file, constants last. An exporter that computes
 * a weight anew, or a constant, gives it a name that is no path: it belongs to the module in which alone operators read
 * it, under its whole name, and else to the root.
 */
export function ownersOf(contents: FileContents): OwnedTensor[] {
  const others = contents.tensors.filter(({ role }) => role !== "constant");
  const constants = contents.tensors.filter(({ role }) => role === "constant");
  const known = constants.length > 0 ? new Paths(told(contents, others)) : undefined;
  const placed = [...others.map(named), ...constants.map(tensor => ofConstant(tensor, known))];
  const moves = UNTOLD_ROLES.includes(contents.format);
  const loose = placed.filter(({ path, tensor }) => path === "" && (moves || mayMove(tensor)));
  const readers = onlyReaders(contents, new Set(loose.map(({ tensor }) => tensor.name)));
  const taken = new Set(readers.size > 0 ? contents.tensors.map(({ name }) => name) : []);
  return placed.map(owned => {
    const { tensor } = owned;
    const path = readers.get(tensor.name) ?? "";
    return path === "" || taken.has(`${path}.${tensor.name}`) ? owned : { path, name: tensor.name, tensor };
  });
}

/** By the path that a name begins with; a tensor whose name has none stands in the root as it is. */
function named(tensor: TensorRecord): OwnedTensor {
  const path = pathIn(tensor.name);
  return path === "" ? inRoot(tensor) : { path, name: tensor.name.slice(path.length + 1), tensor };
}

/**
 * The path of the module that the name of a tensor begins with, and "" where it has none. A name as
 * "/model.1/Constant_output_0" is that of a value, in the words of torch's older exporter, and no path.
 */
export const pathIn = (name: string): string =>
  name.startsWith("/") ? "" : name.slice(0, Math.max(name.lastIndexOf("."), 0));

function ofConstant(tensor: TensorRecord, known: Paths | undefined): OwnedTensor {
  const owned = named(tensor);
  return known?.has(owned.path) ? owned : inRoot(tensor);
}

const inRoot = (tensor: TensorRecord): OwnedTensor => ({ path: "", name: tensor.name, tensor });

/** Whether the root has it only for want of another: what is told to be a parameter or buffer has its full name. */
const mayMove = ({ role }: TensorRecord) => role === null || role === "constant";

function* told(contents: FileContents, tensors: readonly TensorRecord[]): Iterable<string> {
  for (const { path } of contents.modules) yield path;
  for (const { module } of contents.graph?.operators ?? []) yield module;
  for (const tensor of tensors) yield named(tensor).path;
}

/** Paths and all that they begin with, which may be too many to list: one may have as many parts as characters. */
export class Paths {
  private readonly sorted: readonly string[];

  constructor(paths: Iterable<string>) {
    this.sorted = [...new Set(paths)].map(path => `${path}.`).sort();
  }

  has(path: string): boolean {
    const inside = `${path}.`;
    let [low, high] = [0, this.sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sorted[middle] < inside) low = middle + 1;
      else high = middle;
    }
    return low < this.sorted.length && this.sorted[low].startsWith(inside);
  }
}

/** Of each of these tensors that is read the module in which that is done; "" for the root or several modules. */
function onlyReaders({ graph }: FileContents, names: ReadonlySet<string>): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { inputs, module } of names.size > 0 ? (graph?.operators ?? []) : []) {
    for (const name of inputs) {
      if (names.has(name)) found.set(name, (found.get(name) ?? module) === module ? module : "");
    }
  }
  return found;
}
