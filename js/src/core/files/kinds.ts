// What a module is, told by its own tensors where a file names no class; and what a tensor is to the module.

import type { TensorRecord } from "./records";

const BUFFERS: ReadonlySet<string> = new Set(["running_mean", "running_var", "num_batches_tracked"]);
const WHOLE_NUMBERS = /^(?:u?int\d+|bool)$/; // nothing that training changes
const OF_NAME: ReadonlyMap<string, string> = new Map([
  ["running_mean", "batch norm"],
  ["weight_ih_l0", "recurrent"],
  ["in_proj_weight", "attention"]
]);
const OF_DIMENSIONS: ReadonlyMap<number, string> = new Map([
  [1, "norm"],
  [2, "matrix"],
  [3, "convolution 1d"],
  [4, "convolution 2d"],
  [5, "convolution 3d"]
]);
const WEIGHT = "weight";

/** In plain words; `tensors` are the module's own, by the last parts of their names. */
export function kindOf(tensors: ReadonlyMap<string, TensorRecord>): string {
  for (const [name, kind] of OF_NAME) {
    if (tensors.has(name)) return kind;
  }
  if (tensors.size === 0) return "module";
  return OF_DIMENSIONS.get(tensors.get(WEIGHT)?.shape.length ?? 0) ?? "tensors";
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
