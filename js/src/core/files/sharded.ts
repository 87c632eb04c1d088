// The index of a model that is spread over several files, of safetensors or checkpoints of torch.

import { type Fields, isObject, isString } from "../shared/base/schema";
import { excess, isPlainName, mapSome, MAX_TENSORS, need, plainValues, excerpt } from "./bytes/bounds";
import { FileProblem } from "../shared/payload/file_problem";
import { parseObject } from "./bytes/json";
import { grouped } from "./bytes/numbers";
import type { FileContents, FileSource, Plain, Reader, TensorRecord } from "./bytes/records";
import { readSafetensors } from "./safetensors";
import { readTorch } from "./pickle/torch_file";

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
  if (source.size > MAX_INDEX_SIZE) throw excess("bytes of an index");
  const index = parseObject(await source.read(0, source.size), "the index", true);
  const listed = weightMap(index);
  const shards = [...new Set(listed.values())];
  if (listed.size > MAX_TENSORS || shards.length > MAX_SHARDS) throw excess("tensors or files in the index");
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
  need(isObject(listed) && Object.values(listed).every(isString), "it has no weight_map from tensors to files");
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
    need(!tensors.has(tensor.name), () => `${excerpt(tensor.name)} stands in two files`);
    tensors.set(tensor.name, tensor);
  }
  if (tensors.size > MAX_TENSORS) throw excess("tensors");
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
