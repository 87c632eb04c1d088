// The safetensors format: eight bytes with the length of the header, the header in JSON, and the bytes of the tensors;
// and the index of a model that is spread over several files.

import { FORMAT_TABLES } from "../../generated/format_tables";
import { type Fields, isObject, isString } from "../shared/base/schema";
import { FileProblem } from "../shared/payload/file_problem";
import {
  limitExceeded,
  isSize,
  MAX_HEADER_SIZE,
  MAX_DIMENSIONS,
  MAX_TENSORS,
  malformed,
  ensure,
  product,
  excerpt,
  isPlainName,
  mapSome,
  plainValues
} from "./bytes/limits";
import { parseNamed, parseObject } from "./bytes/json";
import { count, grouped } from "./bytes/numbers";
import type { FileContents, FileSource, Plain, TensorRecord, Reader } from "./bytes/records";
import { readTorch } from "./pickle/torch_file";

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
  ensure(length >= 2, "its header is empty");
  if (length > source.size - LENGTH) throw new FileProblem("truncated");
  if (length > MAX_HEADER_SIZE) throw limitExceeded("bytes in its header");
  const document = parseNamed(await source.read(LENGTH, length), "its header");
  const header = document.value;
  ensure(isObject(header), "its header is not an object");
  const metadata = texts(header[METADATA]);
  const keys = Object.keys(header);
  const names = keys.filter(name => name !== METADATA);
  if (names.length > MAX_TENSORS) throw limitExceeded("tensors");
  // in the order of the bytes: a header is often sorted by name, and who writes a model goes through it in order
  const tensors = names.map(name => record(name, header[name], LENGTH + length)).sort((a, b) => at(a) - at(b));
  const expected = keys.length + Object.keys(metadata).length + IN_ENTRY * names.length;
  ensure(document.names === expected, "a name stands twice in its header");
  checkOffsets(tensors, LENGTH + length, source.size);
  return { format: "safetensors", title: "", metadata, tensors, modules: [], graph: null, classes: [], warnings: [] };
}

function texts(metadata: unknown): Record<string, Plain> {
  const found = metadata ?? {};
  ensure(isObject(found) && Object.values(found).every(isString), "its metadata are not texts");
  return found as Record<string, string>;
}

function record(name: string, entry: unknown, data: number): TensorRecord {
  const is = () => `tensor ${excerpt(name)}`;
  ensure(
    isObject(entry) && Object.keys(entry).length === IN_ENTRY,
    () => `${is()} has not a dtype, a shape and offsets`
  );
  const [dtype, bits] = DTYPES.get(textOf(entry.dtype)) ?? [];
  if (dtype === undefined || bits === undefined)
    throw malformed(`${is()} is of the dtype ${excerpt(textOf(entry.dtype))}`);
  const [shape, offsets] = [sizes(entry, "shape", is), sizes(entry, "data_offsets", is)];
  ensure(shape.length <= MAX_DIMENSIONS && offsets.length === 2, () => `${is()} has too many dimensions or offsets`);
  const nbytes = offsets[1] - offsets[0];
  ensure(nbytes * 8 === product(shape, is) * bits, () => `${is()} has not as many bytes as its shape and dtype`);
  return { name, shape, dtype, nbytes, offset: data + offsets[0], file: "", strides: null, role: null };
}

function sizes(entry: Fields, key: string, is: () => string): number[] {
  const found = entry[key];
  ensure(Array.isArray(found) && found.every(isSize), () => `${is()} has sizes that are none`);
  return found as number[];
}

/** The format has neither gaps nor bytes of two tensors. */
function checkOffsets(tensors: readonly TensorRecord[], data: number, size: number): void {
  let end = data;
  for (const each of [...tensors].sort((a, b) => at(a) - at(b) || a.nbytes - b.nbytes)) {
    ensure(at(each) === end, () => `tensor ${excerpt(each.name)} does not begin where the one before ends`);
    end += each.nbytes;
  }
  if (end > size) throw new FileProblem("truncated");
  ensure(end === size, "it goes on behind its last tensor");
}

const textOf = (dtype: unknown) => (typeof dtype === "string" ? dtype : "?");
const at = (tensor: TensorRecord) => tensor.offset ?? 0;

// The index of a model in several files, of safetensors or checkpoints of torch.

const MAX_INDEX_SIZE = 64 * 2 ** 20; // bytes
const MAX_SHARDS = 5_000;
const AT_ONCE = 6; // requests, as browsers send them to one host
const MAX_LISTED = 5; // names in a message
const MAX_WARNINGS = 10; // of the files

type Listed = ReadonlyMap<string, string>; // by tensor: its file

/** The tensors of all the files of safetensors that an index names. */
export const readIndex: Reader = source => allFiles(source, "safetensors", readSafetensors);

/** The tensors of all the checkpoints that an index names. */
export const readCheckpointIndex: Reader = source => allFiles(source, "checkpoint", readTorch);

/** What the files of an index have; those that are not there are a warning. */
async function allFiles(source: FileSource, format: string, read: Reader): Promise<FileContents> {
  if (source.size > MAX_INDEX_SIZE) throw limitExceeded("bytes of an index");
  const index = parseObject(await source.read(0, source.size), "the index", true);
  const listed = weightMap(index);
  const shards = [...new Set(listed.values())];
  if (listed.size > MAX_TENSORS || shards.length > MAX_SHARDS) throw limitExceeded("tensors or files in the index");
  for (const shard of shards) if (!isPlainName(shard)) throw new FileProblem("elsewhere", excerpt(shard));
  const found = await mapSome(shards, AT_ONCE, shard => shardOf(source, shard, read));
  const missing = shards.filter((_, at) => found[at] === null);
  const there = found.filter(contents => contents !== null);
  const tensors = merged(there);
  const parts = there.map(contents => contents.metadata).reverse(); // of equal keys the first file's counts
  const texts = Object.fromEntries(parts.flatMap(part => Object.entries<Plain>(part)));
  const metadata = { ...texts, ...plainValues(index.metadata), ...texts };
  const told = [...new Set(there.flatMap(contents => contents.warnings))].slice(0, MAX_WARNINGS);
  return {
    format,
    title: "",
    metadata,
    tensors: inOrder(listed, tensors),
    modules: [],
    graph: null,
    classes: [...new Set(there.flatMap(contents => contents.classes))].sort(),
    warnings: [...absent(missing), ...disagreement(listed, tensors, new Set(missing)), ...told]
  };
}

function weightMap(index: Fields): Listed {
  const listed = index.weight_map;
  ensure(isObject(listed) && Object.values(listed).every(isString), "it has no weight_map from tensors to files");
  return new Map(Object.entries(listed as Record<string, string>));
}

/** What a file of the folder holds; null where there is none. */
async function shardOf(source: FileSource, shard: string, read: Reader): Promise<FileContents | null> {
  try {
    const file = await source.beside(shard);
    const contents = await read(file);
    return { ...contents, tensors: contents.tensors.map(tensor => ({ ...tensor, file: shard })) };
  } catch (error) {
    if (error instanceof FileProblem && error.reason === "missing") return null;
    throw error;
  }
}

function merged(found: readonly FileContents[]): Map<string, TensorRecord> {
  const tensors = new Map<string, TensorRecord>();
  for (const tensor of found.flatMap(contents => contents.tensors)) {
    ensure(!tensors.has(tensor.name), () => `${excerpt(tensor.name)} stands in two files`);
    tensors.set(tensor.name, tensor);
  }
  if (tensors.size > MAX_TENSORS) throw limitExceeded("tensors");
  return tensors;
}

/** As the index lists them, and then those that it does not. */
function inOrder(listed: Listed, tensors: ReadonlyMap<string, TensorRecord>): TensorRecord[] {
  const first = [...listed.keys()].flatMap(name => tensors.get(name) ?? []);
  return [...first, ...[...tensors.values()].filter(({ name }) => !listed.has(name))];
}

function absent(missing: readonly string[]): string[] {
  const count = grouped(missing.length);
  return missing.length === 0
    ? []
    : [`${count} of the files are not there, so their tensors are not shown: ${some(missing)}`];
}

/** Where the index says otherwise than the files. */
function disagreement(
  listed: Listed,
  tensors: ReadonlyMap<string, TensorRecord>,
  missing: ReadonlySet<string>
): string[] {
  const entries = [...listed];
  const lost = entries.filter(([name, shard]) => !missing.has(shard) && !tensors.has(name));
  const elsewhere = entries.filter(([name, shard]) => tensors.has(name) && tensors.get(name)?.file !== shard);
  const unlisted = [...tensors.keys()].filter(name => !listed.has(name));
  const names = (found: typeof entries) => found.map(([name]) => name);
  return [
    ...disagrees(names(lost), "are in no file"),
    ...disagrees(names(elsewhere), "are in another file"),
    ...disagrees(unlisted, "are not listed")
  ];
}

function disagrees(names: readonly string[], what: string): string[] {
  const text = `the index does not agree with the files: ${grouped(names.length)} tensors ${what}: ${some(names)}`;
  return names.length === 0 ? [] : [text];
}

function some(names: readonly string[]): string {
  const listed = names.slice(0, MAX_LISTED).map(name => excerpt(name));
  return listed.join(", ") + (names.length > MAX_LISTED ? ", …" : "");
}
