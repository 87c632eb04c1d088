// What a module is, told by its own tensors where a file names no class; and what a tensor is to the module.

import { BY_DIMENSIONS, BY_NAME, CONTAINER, OTHER } from "../shared/file_kinds";
import type { TensorRecord } from "./records";

const BUFFERS: ReadonlySet<string> = new Set(["running_mean", "running_var", "num_batches_tracked"]);
const WHOLE_NUMBERS = /^(?:u?int\d+|bool)$/; // nothing that training changes
const WEIGHT = "weight";

/** In plain words; `tensors` are the module's own, by the last parts of their names. */
export function kindOf(tensors: ReadonlyMap<string, TensorRecord>): string {
  for (const [name, kind] of BY_NAME) {
    if (tensors.has(name)) return kind;
  }
  if (tensors.size === 0) return CONTAINER;
  return BY_DIMENSIONS.get(tensors.get(WEIGHT)?.shape.length ?? 0) ?? OTHER;
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
