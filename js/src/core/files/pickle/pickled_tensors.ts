// Tensors in pickles: dtype, shape and storage from the arguments of torch's and numpy's rebuild functions.

import { FORMAT_TABLES } from "../../../generated/format_tables";
import { malformed, ensure, product, excerpt } from "../bytes/limits";
import { Global, Long, ObjectRecord, Persistent, Tuple, type Value } from "./pickle";
import { argsOf, classPath, encoded } from "./pickled_plain";
import type { TensorRecord } from "../bytes/records";

/** How many bits an element takes, by torch's word. */
export const BITS: ReadonlyMap<string, number> = new Map(
  Object.entries(FORMAT_TABLES.torch_bits).flatMap(([bits, words]) =>
    words.map((word): [string, number] => [word, Number(bits)])
  )
);

/** By the name of the class: what a storage has; an untyped one has bytes. */
export const STORAGES: ReadonlyMap<string, string> = new Map(Object.entries(FORMAT_TABLES.torch_storages));

const MAX_DIMENSIONS = 16;
const MAX_DEPTH = 8; // parameters of subclasses of parameters …
const [SIZE, PARAMETER] = ["torch.Size", "torch.nn.parameter.Parameter"];

/** What torch keeps the elements of tensors in; `offset` is null where they do not stand as they are. */
export interface Storage {
  readonly dtype: string;
  readonly nbytes: number;
  readonly offset: number | null;
}

/** A tensor without its name. */
export type TensorInfo = Omit<TensorRecord, "name" | "file">;

export const bitsOf = (dtype: string): number => BITS.get(dtype) ?? 8;

/** What a storage of a class has; malformed for what is no class of storages. */
export function storageDtype(kind: Value): string {
  const dtype = kind instanceof Global ? STORAGES.get(kind.path.slice(kind.path.lastIndexOf(".") + 1)) : undefined;
  if (dtype === undefined) {
    throw malformed(`a tensor is stored in ${excerpt(classPath(kind)) || "nothing"}, which torch does not have`);
  }
  return dtype;
}

type Rebuild = (tensors: Tensors, made: ObjectRecord, depth: number) => TensorInfo | null;

/** Finds tensors; `storage` finds what a persistent id, or bytes in the pickle, stand for. */
export class Tensors {
  constructor(readonly storage: (value: Value) => Storage) {}

  /** The tensor that a value would be; null for anything else, and malformed for one that cannot be. */
  of(value: Value, depth = 0): TensorInfo | null {
    if (value instanceof ObjectRecord) {
      const rebuild = REBUILD.get(classPath(value.maker));
      ensure(rebuild === undefined || depth <= MAX_DEPTH, "a tensor is wrapped in too many others");
      return rebuild === undefined ? null : rebuild(this, value, depth + 1);
    }
    if (!(value instanceof Persistent && value.key instanceof Tuple && value.key.items[0] === "storage")) return null;
    const { dtype, nbytes, offset } = this.storage(value);
    return { shape: [Math.floor((nbytes * 8) / bitsOf(dtype))], dtype, nbytes, offset, strides: null, role: null };
  }
}

function argument(made: ObjectRecord, at: number): Value {
  const found = argsOf(made)[at];
  if (found === undefined) throw malformed(`${excerpt(classPath(made.maker))} is given what makes no tensor`);
  return found;
}

/** `_rebuild_tensor(storage, offset, size, stride)` and those that add to it. */
const dense: Rebuild = ({ storage }, made) => {
  const found = storage(argument(made, 0));
  return view(found, found.dtype, argsOf(made).slice(1, 4), isChanged(argsOf(made)[6]));
};

/** `_rebuild_tensor_v3`, which tells the dtype of an untyped storage. */
const typed: Rebuild = ({ storage }, made) => {
  const dtype = dtypeOf(argument(made, 6));
  return view(storage(argument(made, 0)), dtype, argsOf(made).slice(1, 4), isChanged(argsOf(made)[7]));
};

const quantized: Rebuild = ({ storage }, made) => {
  const found = storage(argument(made, 0));
  return view(found, found.dtype, argsOf(made).slice(1, 4), false);
};

const parameter: Rebuild = (tensors, made, depth) => withRole(tensors.of(argument(made, 0), depth), "parameter");

/** `_rebuild_from_type_v2(function, class, arguments, state)`, where buffers are marked in the state. */
const subclass: Rebuild = (tensors, made, depth) => {
  const found = tensors.of(new ObjectRecord(argument(made, 0), argument(made, 2)), depth);
  const state = argument(made, 3);
  if (state instanceof Map && state.get("_is_buffer") === true) return withRole(found, "buffer");
  return classPath(argument(made, 1)) === PARAMETER ? withRole(found, "parameter") : found;
};

const withRole = (found: TensorInfo | null, role: TensorInfo["role"]) => found && { ...found, role };

/** `_rebuild_sparse_tensor(layout, (indices, …, values, size, …))`. */
const sparse: Rebuild = (tensors, made, depth) => {
  const data = argument(made, 1);
  ensure(data instanceof Tuple, "a sparse tensor of nothing");
  const parts = data.items.slice(0, 4);
  const isSize = (part: Value) => !(part instanceof ObjectRecord) || classPath(part.maker) === SIZE;
  const held = parts.filter(part => !isSize(part)).map(part => tensors.of(part, Math.max(MAX_DEPTH, depth))); // no sparse ones
  const found = held.filter((part): part is TensorInfo => part !== null);
  const size = parts.find(isSize);
  ensure(found.length > 0 && size !== undefined, "a sparse tensor of nothing");
  const nbytes = found.reduce((total, part) => total + part.nbytes, 0);
  return { shape: sizes(size), dtype: found[found.length - 1].dtype, nbytes, offset: null, strides: null, role: null };
};

const withoutBytes =
  (shapeAt: number, dtypeAt: number): Rebuild =>
  (_, made) => ({
    shape: sizes(argument(made, shapeAt)),
    dtype: dtypeOf(argument(made, dtypeAt)),
    nbytes: 0,
    offset: null,
    strides: null,
    role: null
  });

/** A tensor of another device, or a nested one, from a plain one. */
const wrapped: Rebuild = (tensors, made, depth) => tensors.of(argument(made, 0), depth);

/** A numpy array, whose state is its version, shape, dtype, order and bytes. */
const array: Rebuild = (_, { state }) => {
  if (!(state instanceof Tuple)) return null;
  ensure(state.items.length === 5, "an array of numpy without its parts");
  return inline(state.items[1], state.items[2], state.items[4]);
};

const bufferArray: Rebuild = (_, made) => inline(argument(made, 2), argument(made, 1), argument(made, 0));

const changed = new WeakMap<Value & object, boolean>(); // many tensors may have one

/** Whether the values are the conjugates or negatives of those that are stored. */
function isChanged(metadata: Value | undefined): boolean {
  if (!(metadata instanceof Map)) return false;
  let found = changed.get(metadata);
  if (found === undefined) {
    found = hasTrue(metadata.values());
    changed.set(metadata, found);
  }
  return found;
}

function hasTrue(values: Iterable<Value>): boolean {
  for (const value of values) if (value) return true;
  return false;
}

function dtypeOf(kind: Value): string {
  const name = kind instanceof Global ? kind.path.replace(/^torch\./, "") : "";
  ensure(
    BITS.has(name),
    () => `a tensor has the type ${excerpt(classPath(kind)) || "of nothing"}, which torch does not have`
  );
  return name;
}

function sizes(value: Value): readonly number[] {
  const inner = value instanceof ObjectRecord && classPath(value.maker) === SIZE ? (argsOf(value)[0] ?? []) : value;
  const list = inner instanceof Tuple ? inner.items : inner;
  ensure(Array.isArray(list) && list.length <= MAX_DIMENSIONS, "a tensor has no shape that can be");
  ensure(list.every(isSize), "a tensor has a size or stride that is none");
  const found = list as number[];
  product(found, () => "a tensor");
  return found;
}

const isSize = (size: Value) => Number.isSafeInteger(size) && (size as number) >= 0;

/** The part of a storage that offset, size and strides take; malformed for what goes beyond it. */
function view(storage: Storage, dtype: string, layout: readonly Value[], changed: boolean): TensorInfo {
  ensure(layout.length === 3, "a tensor has no layout");
  const [start, size, steps] = layout;
  const shape = sizes(size);
  const strides = steps instanceof Tuple ? (steps.items as number[]) : [];
  ensure(
    steps instanceof Tuple && strides.length === shape.length && strides.every(isSize),
    "a tensor has strides that do not fit its shape"
  );
  ensure(isSize(start), "a tensor ends after its storage");
  const [first, bits, elements] = [start as number, bitsOf(dtype), product(shape, () => "a tensor")];
  const end = first + 1 + shape.reduce((total, length, at) => total + (length - 1) * strides[at], 0);
  ensure(elements === 0 || end * bits <= storage.nbytes * 8 + 7, "a tensor ends after its storage");
  const isWhole = (bits >= 8 || first === 0) && !changed;
  const offset = storage.offset === null || !isWhole ? null : storage.offset + Math.floor((first * bits) / 8);
  const nbytes = Math.min(Math.ceil((elements * bits) / 8), storage.nbytes);
  return { shape, dtype, nbytes, offset, strides: isContiguous(shape, strides, elements) ? null : strides, role: null };
}

function isContiguous(shape: readonly number[], strides: readonly number[], elements: number): boolean {
  let expected = 1;
  for (let at = shape.length - 1; at >= 0; at--) {
    if (shape[at] !== 1 && strides[at] !== expected) return elements === 0;
    expected *= shape[at];
  }
  return true;
}

const NUMPY: ReadonlyMap<string, string> = new Map([
  ["f2", "float16"],
  ["f4", "float32"],
  ["f8", "float64"],
  ["i1", "int8"],
  ["i2", "int16"],
  ["i4", "int32"],
  ["i8", "int64"],
  ["u1", "uint8"],
  ["u2", "uint16"],
  ["u4", "uint32"],
  ["u8", "uint64"],
  ["b1", "bool"],
  ["c8", "complex64"],
  ["c16", "complex128"]
]);

/** An array whose bytes are in the pickle, and null for one of objects. */
function inline(shape: Value, dtype: Value, bytes: Value): TensorInfo | null {
  const content = encoded(bytes);
  ensure(dtype instanceof ObjectRecord, "an array has a type that numpy does not have");
  const code = argument(dtype, 0);
  ensure(typeof code === "string" && /^[A-Za-z]\d{1,9}$/.test(code), "an array has a type that numpy does not have");
  const isBytes = content instanceof Uint8Array || typeof content === "string" || content instanceof Long;
  if (code.startsWith("O") || !isBytes) return null;
  const size = Number(code.slice(1)) * (code.startsWith("U") ? 4 : 1);
  const found = sizes(shape);
  const nbytes = product([...found, size], () => "an array");
  ensure(nbytes <= content.length, "an array has fewer bytes than its shape needs");
  return { shape: found, dtype: NUMPY.get(code) ?? code, nbytes, offset: null, strides: null, role: null };
}

const REBUILD: ReadonlyMap<string, Rebuild> = new Map([
  ["torch._utils._rebuild_tensor", dense],
  ["torch._utils._rebuild_tensor_v2", dense],
  ["torch._utils._rebuild_tensor_v3", typed],
  ["torch._utils._rebuild_qtensor", quantized],
  ["torch._utils._rebuild_parameter", parameter],
  ["torch._utils._rebuild_parameter_with_state", parameter],
  [PARAMETER, parameter],
  ["torch._tensor._rebuild_from_type_v2", subclass],
  ["torch._utils._rebuild_sparse_tensor", sparse],
  ["torch._utils._rebuild_meta_tensor_no_storage", withoutBytes(1, 0)],
  ["torch._utils._rebuild_wrapper_subclass", withoutBytes(2, 1)],
  ["torch._utils._rebuild_nested_tensor", wrapped],
  ["torch._utils._rebuild_xla_tensor", wrapped],
  ["torch._utils._rebuild_device_tensor_from_numpy", wrapped],
  ["torch._utils._rebuild_device_tensor_from_cpu_tensor", wrapped],
  ["numpy.core.multiarray._reconstruct", array],
  ["numpy._core.multiarray._reconstruct", array],
  ["numpy.core.numeric._frombuffer", bufferArray],
  ["numpy._core.numeric._frombuffer", bufferArray]
]);
