// Tensors of ONNX as records: dtypes in torch's words, where their bytes are, and what lies in other files.

import { FORMAT_TABLES } from "../../../generated/format_tables";
import { FileProblem } from "../../shared/payload/file_problem";
import { isPlainPath, malformed, ensure, product, excerpt } from "../bytes/limits";
import { type Element, elementText, Float, short, shortList } from "../bytes/graph_building";
import { isSmallFloat, numberIn, type NumberKind, smallFloat, widthOf } from "../bytes/numbers";
import type { SparseMessage, TensorMessage } from "./onnx_messages";
import type { OperatorRecord, Plain, TensorRecord } from "../bytes/records";

const FEW = 8; // elements: a constant of no more is a setting, one of more a tensor
const BOOL = 9;
const PACKED: readonly number[] = [1, 11, 14, 15]; // whose numbers stand in lists of floats as they do in bytes
const PATTERNS = 5; // the field of small numbers, of which floats stand there as patterns of bits

/** How the bytes of an element are read, by torch's word. */
const NUMBER_KINDS: Readonly<Partial<Record<string, NumberKind>>> = {
  float32: "f32",
  uint8: "u8",
  int8: "i8",
  uint16: "u16",
  int16: "i16",
  int32: "i32",
  int64: "i64",
  bool: "u8",
  float16: "u16",
  float64: "f64",
  uint32: "u32",
  uint64: "u64",
  bfloat16: "u16",
  float8_e4m3fn: "u8",
  float8_e4m3fnuz: "u8",
  float8_e5m2: "u8",
  float8_e5m2fnuz: "u8",
  float8_e8m0fnu: "u8"
};

/** TensorProto.DataType: torch's word, or its own where torch has none; bits of an element; how its bytes are read. */
const DTYPES: ReadonlyMap<number, readonly [string, number, NumberKind?]> = new Map(
  FORMAT_TABLES.onnx_dtypes.map(([number, word, bits]) => [number, [word, bits, NUMBER_KINDS[word]]])
);

type TensorDims = readonly [numbers: readonly number[], scales: readonly number[]];

/**
 * By operator, of ONNX and of ONNX Runtime: which inputs are quantised numbers, and which scales and zero points of
 * them.
 */
export const QUANTIZED: ReadonlyMap<string, TensorDims> = new Map(
  FORMAT_TABLES.quantized_operators.map(([name, numbers, scales]) => [name, [numbers, scales]])
);
const DYNAMIC = "DynamicQuantizeLinear"; // gives a scale and a zero point
/** What gives numbers of its first input as they are. */
const MOVING: ReadonlySet<string> = new Set(FORMAT_TABLES.data_movement_operators);

/** The tensors that operators of quantisation read, as they are met in a graph. */
export class QuantizedOperands {
  private readonly numbers = new Set<string>();
  private readonly scales = new Set<string>();

  /** Notes the inputs of an operator of `QUANTIZED`, by their places; "" is one that is left out. */
  add(op: string, inputs: readonly string[]): void {
    const [numbers, scales] = QUANTIZED.get(op) ?? [[], []];
    for (const place of numbers) if (place < inputs.length) this.numbers.add(inputs[place]);
    for (const place of scales) if (place < inputs.length) this.scales.add(inputs[place]);
  }

  /** The tensors: quantised weights are parameters, whatever their dtype, their scales and zero points are not. */
  withRoles(tensors: readonly TensorRecord[], operators: readonly OperatorRecord[]): TensorRecord[] {
    this.follow(operators);
    return tensors.map(each => {
      if (this.numbers.has(each.name)) return { ...each, role: "parameter" };
      return this.scales.has(each.name) ? { ...each, role: "buffer" } : each;
    });
  }

  /** Notes what is quantised before it is moved, and scales that are multiplied with others. */
  private follow(operators: readonly OperatorRecord[]): void {
    for (const { op, inputs, outputs } of [...operators].reverse()) {
      const isMoved = MOVING.has(op) && inputs.length > 0 && outputs.some(name => this.numbers.has(name));
      if (isMoved) this.numbers.add(inputs[0]);
    }
    const given = new Set<string>(); // scales that are computed
    for (const { op, inputs, outputs } of operators) {
      if (op === DYNAMIC) {
        for (const name of outputs.slice(1)) given.add(name);
      } else if (op === "Mul" && inputs.some(name => given.has(name))) {
        for (const name of inputs) this.scales.add(name);
        for (const name of outputs) given.add(name);
      }
    }
  }
}

/** "" for none, a number for what is newer than this. */
export function dtypeOf(number: number): string {
  return number === 0 ? "" : (DTYPES.get(number)?.[0] ?? `type ${number}`);
}

/** Whether numbers of a type are weights wherever they stand: floats are, indices and masks not. */
export const isWeightDtype = (number: number) => /^(?:b?float|complex)/.test(dtypeOf(number));

/** The record of a tensor, by its message without numbers. */
export function recordOf(name: string, tensor: TensorMessage, role: TensorRecord["role"] = null): TensorRecord {
  const { nbytes, raw, dataType } = tensor;
  const shape = shapeOf(tensor.dims, name);
  const bits = DTYPES.get(dataType)?.[1] ?? 0;
  const expected = bits === 0 ? null : Math.ceil((product(shape, () => excerpt(name)) * bits) / 8);
  const record = { name, shape, dtype: dtypeOf(dataType), strides: null, role };
  if (tensor.isExternal) return { ...record, ...elsewhere(tensor, name, expected) };
  const fits = raw === null || expected === null || nbytes === expected;
  ensure(fits, () => `${excerpt(name)} has not as many bytes as its shape takes`);
  const packed = nbytes === expected && PACKED.includes(dataType) ? tensor.packed : null;
  return { ...record, nbytes, offset: raw ?? packed, file: "" };
}

/** The record of a sparse tensor: what its values and their indices take. */
export function sparseRecord({ values, nbytes, dims }: SparseMessage): TensorRecord {
  const { name, dataType } = values;
  const shape = shapeOf(dims, name);
  return { name, shape, dtype: dtypeOf(dataType), nbytes, offset: null, file: "", strides: null, role: null };
}

/** Among the settings of an operator: the numbers of a small tensor, else its kind. */
export function elementsText(tensor: TensorMessage): Plain {
  const values = isSmall(tensor) ? fewValues(tensor) : [];
  if (values.length === 0) return `${dtypeOf(tensor.dataType)} of ${tupleText(tensor.dims)}`;
  return tensor.dims.length > 0 ? shortList(values) : short(values[0]);
}

/** Whether a tensor is rather a setting than weights: few numbers, and in the file itself. */
export function isSmall({ isExternal, dims }: TensorMessage): boolean {
  return !isExternal && dims.reduce((total, size) => total * size, 1) <= FEW;
}

function shapeOf(dims: readonly number[], name: string): readonly number[] {
  ensure(
    dims.every(size => size >= 0),
    () => `${excerpt(name)} has sizes that no tensor has`
  );
  product(dims, () => excerpt(name));
  return dims;
}

type Elsewhere = Pick<TensorRecord, "file" | "offset" | "nbytes">;

function elsewhere({ external }: TensorMessage, name: string, expected: number | null): Elsewhere {
  const location = external.get("location") ?? "";
  if (!isPlainPath(location)) throw new FileProblem("elsewhere", excerpt(location));
  const file = location.replace(/^\.\//, "");
  const length = external.get("length");
  const nbytes = length === undefined ? expected : placeOf(length, name);
  ensure(expected === null || nbytes === expected, () => `${excerpt(name)} has not as many bytes as its shape takes`);
  return { file, offset: placeOf(external.get("offset") ?? "0", name), nbytes: nbytes ?? 0 };
}

function placeOf(digits: string, name: string): number {
  const number = /^\d{1,18}$/.test(digits) ? Number(digits) : NaN;
  if (!Number.isSafeInteger(number)) throw malformed(`${excerpt(name)} begins or ends nowhere in another file`);
  return number;
}

/** The numbers of a small tensor; none where they are not read. */
function fewValues(tensor: TensorMessage): Element[] {
  const { dims, dataType, few, lists } = tensor;
  const count = dims.reduce((total, size) => total * size, 1);
  const [dtype, bits, kind] = DTYPES.get(dataType) ?? ["", 0];
  if (bits < 8) return []; // two or more stand in one byte
  if (few !== null && few.length > 0 && kind !== undefined && few.length === count * widthOf(kind)) {
    return toElements(rawNumbers(few, kind), kind.startsWith("f"), dataType);
  }
  const fields = isSmallFloat(dtype) ? [PATTERNS] : [4, PATTERNS, 7, 10, 11];
  const field = fields.find(each => (lists.get(each)?.length ?? 0) === count) ?? 0;
  return toElements(lists.get(field) ?? [], field === 4 || field === 10, dataType);
}

function rawNumbers(bytes: Uint8Array, kind: NumberKind): (number | bigint)[] {
  const width = widthOf(kind);
  const starts = Array.from({ length: bytes.length / width }, (_, index) => index * width);
  return starts.map(at => numberIn(bytes.subarray(at, at + width), kind));
}

function toElements(values: readonly (number | bigint)[], areFloats: boolean, dataType: number): Element[] {
  const dtype = dtypeOf(dataType);
  if (isSmallFloat(dtype)) return values.map(value => new Float(smallFloat(value, dtype)));
  if (dataType === BOOL) return values.map(value => Number(value) !== 0);
  return areFloats ? values.map(value => new Float(Number(value))) : [...values];
}

/** As Python writes a tuple. */
function tupleText(sizes: readonly number[]): string {
  return sizes.length === 1 ? `(${sizes[0]},)` : `(${sizes.map(elementText).join(", ")})`;
}
