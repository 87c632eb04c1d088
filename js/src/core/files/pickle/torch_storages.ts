// Storages of the tensors that a pickle refers to: in members of the archive, or behind the pickle.

import { FileProblem } from "../../shared/payload/file_problem";
import { excess, malformed, need, excerpt } from "../bytes/bounds";
import { Whole, type Window } from "../bytes/buffered";
import { count } from "../bytes/numbers";
import { picklesIn } from "./opcodes";
import { ObjectRecord, Persistent, Tuple, type Value } from "./pickle";
import { argsOf, classPath, encoded, firstBytes } from "./pickled_plain";
import { bitsOf, type Storage, storageDtype } from "./pickled_tensors";
import type { FileSource } from "../bytes/records";
import type { Archive } from "../bytes/zip";

export const LEGACY_MAGIC = 0x1950a86a20f9469cfc6cn; // MAGIC_NUMBER of torch/serialization.py
const MAX_KEY_LENGTH = 200; // characters; torch numbers storages
const MAX_INLINE = 20_000;
const MAX_PREFIX_LENGTH = 1_000; // bytes that tell of a storage in a pickle; torch writes 400
const WIDTH = 8; // bytes of the number of elements before a storage

type Find = (value: Value) => Storage;

interface StorageId {
  readonly kind: Value;
  readonly key: string;
  readonly elements: Value | undefined;
  readonly part: Value | undefined; // of the old format: its key, and where it lies in the whole
}

/** Finds the storages of an archive, each a member in one folder that its key names; `referred` are those of a pickle. */
export async function archiveStorages(
  archive: Archive,
  folder: string,
  referred: readonly Persistent[]
): Promise<Find> {
  const order = archive.has("byteorder") ? await archive.read("byteorder", 16) : null;
  const isBig = order !== null && String.fromCharCode(...order).trim() === "big";
  const names = new Set(referred.map(({ key }) => `${folder}/${keyOf(key)}`).filter(name => archive.has(name)));
  const places = isBig ? new Map<string, number | null>() : await archive.offsets([...names]);
  const inline = new InlineStorages();
  return value => {
    if (value instanceof ObjectRecord) return inline.of(value);
    const { kind, key } = storageId(value);
    const name = `${folder}/${key}`;
    return { dtype: storageDtype(kind), nbytes: archive.size(name), offset: places.get(name) ?? null };
  };
}

const keyOf = (key: Value) => (key instanceof Tuple && isKey(key.items[2]) ? key.items[2] : "");

const isKey = (key: Value | undefined): key is string => typeof key === "string" && key.length <= MAX_KEY_LENGTH;

/** The class and key of a storage, and what else torch writes of it; malformed for what is none. */
function storageId(value: Value | undefined): StorageId {
  const id = value instanceof Persistent && value.key instanceof Tuple ? value.key.items : [];
  const key = id[2];
  need(id.length >= 5 && id[0] === "storage" && isKey(key), "a tensor has no storage that torch could find");
  return { kind: id[1], key, elements: id[4], part: id[5] };
}

/** Storages that a plain pickle holds as the bytes of other files of torch's old format, each read once. */
export class InlineStorages {
  private readonly known = new Map<Value, Storage>(); // by the bytes

  of(made: ObjectRecord): Storage {
    const isInline = classPath(made.maker) === "torch.storage._load_from_bytes";
    const content = isInline ? encoded(argsOf(made)[0] ?? null) : null;
    let storage = this.known.get(content);
    if (storage === undefined) {
      if (this.known.size >= MAX_INLINE) throw excess("storages in its pickle");
      storage = inlineStorage(content);
      this.known.set(content, storage);
    }
    return storage;
  }
}

function inlineStorage(content: Value): Storage {
  const head = firstBytes(content, MAX_PREFIX_LENGTH);
  need(head !== null, "a tensor has no storage that torch could find");
  const pickles = picklesIn(new Whole(head));
  need(pickles.load() === LEGACY_MAGIC, "a tensor is stored in bytes that torch does not know");
  const [, , storage] = [pickles.load(), pickles.load(), pickles.load()];
  const { kind, elements } = storageId(storage);
  const dtype = storageDtype(kind);
  return { dtype, nbytes: bytesOf(dtype, elements), offset: null };
}

function bytesOf(dtype: string, elements: Value | undefined): number {
  if (typeof elements !== "number" || !(elements >= 0)) throw malformed("a storage has no number of elements");
  return (elements * Math.max(bitsOf(dtype), 8)) / 8;
}

interface Legacy {
  readonly keys: Value;
  readonly referred: readonly Persistent[];
  readonly isLittle: boolean;
  readonly start: number;
}

/** By their keys, the storages that stand behind each other, each after its number of elements. */
export async function legacyOffsets(
  source: FileSource,
  window: Window,
  { keys, referred, isLittle, start }: Legacy
): Promise<Map<string, Storage>> {
  const types = legacyTypes(referred);
  const places = new Map<string, Storage>();
  let at = start;
  for (const key of Array.isArray(keys) ? keys : []) {
    const dtype = typeof key === "string" && !places.has(key) ? types.get(key) : undefined;
    if (typeof key !== "string" || dtype === undefined) {
      throw malformed("a storage that no tensor, or two, belong to");
    }
    window.passed(at);
    const elements = count(await window.run(() => window.bytes(at, WIDTH)), isLittle);
    const nbytes = bytesOf(dtype, elements);
    at += WIDTH;
    if (nbytes > source.size - at) throw new FileProblem("truncated");
    places.set(key, { dtype, nbytes, offset: isLittle ? at : null });
    at += nbytes;
  }
  return places;
}

function legacyTypes(referred: readonly Persistent[]): Map<string, string> {
  const types = new Map<string, string>();
  for (const persistent of referred) {
    if (!(persistent.key instanceof Tuple) || persistent.key.items[0] !== "storage") continue;
    const { kind, key } = storageId(persistent);
    if (!types.has(key)) types.set(key, storageDtype(kind));
  }
  return types;
}

/** Finds storages in torch's old format, where some are parts of others. */
export function legacyStorages(places: ReadonlyMap<string, Storage>): Find {
  const inline = new InlineStorages();
  return value => {
    if (value instanceof ObjectRecord) return inline.of(value);
    const { kind, key, part } = storageId(value);
    const whole = places.get(key);
    if (whole === undefined)
      throw malformed(`a tensor is in the storage ${excerpt(key)}, which the file does not have`);
    const dtype = storageDtype(kind);
    if (!(part instanceof Tuple) || part.items.length !== 3) return { ...whole, dtype };
    const [start, nbytes] = [bytesOf(whole.dtype, part.items[1]), bytesOf(whole.dtype, part.items[2])];
    need(start + nbytes <= whole.nbytes, `a tensor is beyond the end of the storage ${excerpt(key)}`);
    return { dtype, nbytes, offset: whole.offset === null ? null : whole.offset + start };
  };
}
