// The safetensors format: eight bytes with the length of the header, the header in JSON, and the bytes of the tensors.

import { FORMAT_TABLES } from "../../generated/format_tables";
import { type Fields, isObject, isString } from "../shared/base/schema";
import { FileProblem } from "../shared/payload/file_problem";
import {
  excess,
  isSize,
  MAX_HEADER_SIZE,
  MAX_DIMENSIONS,
  MAX_TENSORS,
  malformed,
  need,
  product,
  excerpt
} from "./bytes/bounds";
import { parseNamed } from "./bytes/json";
import { count } from "./bytes/numbers";
import type { FileContents, FileSource, Plain, TensorRecord } from "./bytes/records";

const LENGTH = 8; // bytes of the length of the header
const METADATA = "__metadata__";
const IN_ENTRY = 3; // dtype, shape and offsets

/** The dtypes of the format: torch's word, and the bits of one item. */
const DTYPES: ReadonlyMap<string, readonly [string, number]> = new Map(
  FORMAT_TABLES.safetensors_dtypes.map(([name, word, bits]) => [name, [word, bits]])
);

/** Reads the header, and checks that the tensors fill the rest of the file. */
export async function readSafetensors(source: FileSource): Promise<FileContents> {
  const length = count(await source.read(0, LENGTH));
  need(length >= 2, "its header is empty");
  if (length > source.size - LENGTH) throw new FileProblem("truncated");
  if (length > MAX_HEADER_SIZE) throw excess("bytes in its header");
  const document = parseNamed(await source.read(LENGTH, length), "its header");
  const header = document.value;
  need(isObject(header), "its header is no object");
  const metadata = texts(header[METADATA]);
  const keys = Object.keys(header);
  const names = keys.filter(name => name !== METADATA);
  if (names.length > MAX_TENSORS) throw excess("tensors");
  // in the order of the bytes: a header is often sorted by name, and who writes a model goes through it in order
  const tensors = names.map(name => record(name, header[name], LENGTH + length)).sort((a, b) => at(a) - at(b));
  const expected = keys.length + Object.keys(metadata).length + IN_ENTRY * names.length;
  need(document.names === expected, "a name stands twice in its header");
  checkOffsets(tensors, LENGTH + length, source.size);
  return { format: "safetensors", title: "", metadata, tensors, modules: [], graph: null, classes: [], warnings: [] };
}

function texts(metadata: unknown): Record<string, Plain> {
  const found = metadata ?? {};
  need(isObject(found) && Object.values(found).every(isString), "its metadata are not texts");
  return found as Record<string, string>;
}

function record(name: string, entry: unknown, data: number): TensorRecord {
  const is = () => `tensor ${excerpt(name)}`;
  need(isObject(entry) && Object.keys(entry).length === IN_ENTRY, () => `${is()} has not a dtype, a shape and offsets`);
  const [dtype, bits] = DTYPES.get(textOf(entry.dtype)) ?? [];
  if (dtype === undefined || bits === undefined)
    throw malformed(`${is()} is of the dtype ${excerpt(textOf(entry.dtype))}`);
  const [shape, offsets] = [sizes(entry, "shape", is), sizes(entry, "data_offsets", is)];
  need(shape.length <= MAX_DIMENSIONS && offsets.length === 2, () => `${is()} has too many dimensions or offsets`);
  const nbytes = offsets[1] - offsets[0];
  need(nbytes * 8 === product(shape, is) * bits, () => `${is()} has not as many bytes as its shape and dtype`);
  return { name, shape, dtype, nbytes, offset: data + offsets[0], file: "", strides: null, role: null };
}

function sizes(entry: Fields, key: string, is: () => string): number[] {
  const found = entry[key];
  need(Array.isArray(found) && found.every(isSize), () => `${is()} has sizes that are none`);
  return found as number[];
}

/** The format has neither gaps nor bytes of two tensors. */
function checkOffsets(tensors: readonly TensorRecord[], data: number, size: number): void {
  let end = data;
  for (const each of [...tensors].sort((a, b) => at(a) - at(b) || a.nbytes - b.nbytes)) {
    need(at(each) === end, () => `tensor ${excerpt(each.name)} does not begin where the one before ends`);
    end += each.nbytes;
  }
  if (end > size) throw new FileProblem("truncated");
  need(end === size, "it goes on behind its last tensor");
}

const textOf = (dtype: unknown) => (typeof dtype === "string" ? dtype : "?");
const at = (tensor: TensorRecord) => tensor.offset ?? 0;
