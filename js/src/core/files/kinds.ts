// What a module is, told by its own tensors where a file names no class; and what a tensor is to the module.

import { BY_DIMENSIONS, BY_NAME, CONTAINER, OTHER } from "../shared/file_kinds";
import type { TensorRecord } from "./records";

const BUFFERS: ReadonlySet<string> = new Set(["running_mean", "running_var", "num_batches_tracked"]);
const WHOLE_NUMBERS = /^(?:u?int\d+|bool)$/; // nothing that training changes
const WEIGHT = "weight";
const TORCH = /^(?:torch\.ops\.(\w+)|(aten|prims|quantized|torchvision))\.(\w+)/;
const MOST_NAMES = 2; // of operators that a module is called by

/**
 * In plain words; `tensors` are the module's own, by the last parts of their names. Where these tell none it is what runs
 * in it: `operators` are those of a module that holds no others.
 */
export function kindOf(tensors: ReadonlyMap<string, TensorRecord>, operators: Iterable<string> = []): string {
  const kind = kindByTensors(tensors);
  if (kind !== CONTAINER && kind !== OTHER) return kind;
  const names = [...new Set(Array.from(operators, op => operatorName(op).replace(/^.*:/s, "")))];
  const listed = names.slice(0, MOST_NAMES);
  if (names.length > MOST_NAMES) listed.push(`+${names.length - MOST_NAMES}`);
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
