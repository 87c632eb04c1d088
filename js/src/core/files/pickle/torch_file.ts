// Reader of the files of torch.save, torch.jit.save and torch.export.save, and of other pickles, without loading them.

import { FORMAT_TABLES } from "../../../generated/format_tables";
import { FileProblem } from "../../shared/payload/file_problem";
import { malformed, mapSome, ensure, limitExceeded, excerpt } from "../bytes/limits";
import { Whole, Window } from "../bytes/buffered";
import { picklesIn } from "./opcodes";
import { Global, ObjectRecord, type PickleMachine, Tuple, type Value, Persistent } from "./pickle";
import { classOf, Inventory, onlyNamed, SCRIPTED, type ScriptedClass } from "./pickled";
import { BITS, type Storage, STORAGES, Tensors, bitsOf, storageDtype } from "./pickled_tensors";
import { isPt2, readPt2 } from "../exported/pt2";
import type { FileContents, FileSource, Plain } from "../bytes/records";
import { Archive } from "../bytes/zip";
import { anyText, count } from "../bytes/numbers";
import { argsOf, classPath, encoded, firstBytes } from "./pickled_plain";

// The classes of a TorchScript archive, from the text of its code: which tensors are parameters, and constants.

const MAX_CODE_FILE_SIZE = 4 * 2 ** 20; // bytes of one file
const MAX_CODE_SIZE = 32 * 2 ** 20; // of all that are read
const AT_ONCE = 6; // requests

const CLASS = /^class (\w+)\(/gm;
const TENSORS = /^ {2}__(parameters|buffers)__ = \[(.*)\]$/gm;
const CONSTANT = /^ {2}(\w+) : Final\[\w+\] = (.{1,200})$/gm;
const TEXT = /"([^"\\]*)"/g;
const MARK = /___torch_mangle_\d+\./g; // tells apart classes of one name

/** Finds classes by what names them in a pickle, of which `globals` are all; each file of code is read once. */
async function scriptedClasses(archive: Archive, globals: Iterable<Global>): Promise<(maker: Value) => ScriptedClass> {
  const found = [...globals].filter(({ path }) => path.startsWith(SCRIPTED));
  const files = readable(archive, [...new Set(found.map(({ module }) => fileOf(module)))]);
  const codes = await mapSome(files, AT_ONCE, file => archive.read(file, MAX_CODE_FILE_SIZE));
  const texts = new Map(files.map((file, at) => [file, bodies(anyText(codes[at]))]));
  const classes = new Map(
    found.map(({ module, path }) => [
      path,
      classIn(path, texts.get(fileOf(module))?.get(path.slice(module.length + 1)))
    ])
  );
  return maker =>
    maker instanceof Global ? (classes.get(maker.path) ?? onlyNamed(nameOf(maker.path))) : onlyNamed("");
}

const fileOf = (module: string) => `code/${module.replaceAll(".", "/")}.py`;

/** The files of code that there are, as long as they are not too many. */
function readable(archive: Archive, files: readonly string[]): string[] {
  let left = MAX_CODE_SIZE;
  return files.filter(file => {
    const size = archive.has(file) ? archive.size(file) : 0;
    left -= size;
    return size > 0 && size <= MAX_CODE_FILE_SIZE && left >= 0;
  });
}

const nameOf = (path: string) => (path.startsWith(SCRIPTED) ? path.slice(SCRIPTED.length) : path).replace(MARK, "");

/** The text of each class of a file of code, up to the next class. */
function bodies(code: string): Map<string, string> {
  const starts = [...code.matchAll(CLASS)];
  return new Map(starts.map((found, at) => [found[1], code.slice(found.index, starts[at + 1]?.index ?? code.length)]));
}

function classIn(path: string, text: string | undefined): ScriptedClass {
  const name = nameOf(path);
  if (text === undefined) return onlyNamed(name);
  const tensors = new Map(Array.from(text.matchAll(TENSORS), found => [found[1], namesIn(found[2])]));
  return {
    name,
    parameters: tensors.get("parameters") ?? new Set(),
    buffers: tensors.get("buffers") ?? new Set(),
    constants: new Map(Array.from(text.matchAll(CONSTANT), found => [found[1], constant(found[2])]))
  };
}

const namesIn = (list: string): ReadonlySet<string> => new Set(Array.from(list.matchAll(TEXT), found => found[1]));

function constant(text: string): Plain {
  if (text === "True" || text === "False") return text === "True";
  const isNumber = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(text);
  return isNumber ? Number(text) : text.replace(/^"+|"+$/g, "");
}

export const ZIP = "PK\x03\x04";
export const PICKLE = "\x80"; // of protocol 2 and later
const LEGACY_VERSION = 1001; // PROTOCOL_VERSION of torch/serialization.py
const SCRIPT = "torchscript";
const LOADER = "torch.load(weights_only=False)";
const SCRIPT_WARNING = "torch.jit.load keeps the code in this file, and a call of the model runs it";

/** A zip archive or a pickle of torch. */
export async function readTorch(source: FileSource): Promise<FileContents> {
  const start = await source.read(0, Math.min(ZIP.length, source.size));
  if (String.fromCharCode(...start) !== ZIP) return readPickle(source);
  const archive = await Archive.open(source);
  if (archive.begin > 0 && archive.names.length > 0) throw new FileProblem("shards"); // several archives in a row
  if (isPt2(archive)) return readPt2(archive);
  if (archive.has(".data/extern_modules")) throw new FileProblem("package");
  ensure(archive.has("data.pkl"), "a zip archive without data.pkl, so torch has not written it");
  return archive.has("constants.pkl") ? readScript(source, archive) : readCheckpoint(source, archive);
}

async function readCheckpoint(source: FileSource, archive: Archive): Promise<FileContents> {
  const { root, pickles } = await memberOf(source, archive, "data.pkl");
  const inventory = new Inventory(new Tensors(await archiveStorages(archive, "data", pickles.persistent)));
  inventory.add(root);
  return contentsOf("checkpoint", root, pickles, inventory);
}

async function readScript(source: FileSource, archive: Archive): Promise<FileContents> {
  const { root, pickles } = await memberOf(source, archive, "data.pkl");
  const storages = await archiveStorages(archive, "data", pickles.persistent);
  const scripted: (maker: Value) => ScriptedClass = await scriptedClasses(archive, pickles.globals.values());
  const inventory = new Inventory(new Tensors(storages), scripted);
  inventory.add(root);
  const contents = contentsOf(SCRIPT, root, pickles, inventory);
  const constants = await constantsOf(source, archive);
  return {
    ...contents,
    tensors: [...contents.tensors, ...constants.tensors],
    warnings: [SCRIPT_WARNING, ...contents.warnings]
  };
}

/** The tensors that the code names as CONSTANTS.c0 and so on. */
async function constantsOf(source: FileSource, archive: Archive): Promise<Inventory> {
  const { root, pickles } = await memberOf(source, archive, "constants.pkl");
  const inventory = new Inventory(new Tensors(await archiveStorages(archive, "constants", pickles.persistent)));
  const values = root instanceof Tuple ? root.items : Array.isArray(root) ? root : [];
  values.forEach((value, index) => inventory.add(value, `CONSTANTS.c${index}`, "constant"));
  return inventory;
}

interface Loaded {
  readonly root: Value;
  readonly pickles: PickleMachine;
}

/** The pickle of a member, read in parts where it stands in the file as it is. */
async function memberOf(source: FileSource, archive: Archive, name: string): Promise<Loaded> {
  const place = (await archive.offsets([name])).get(name) ?? null;
  if (place === null) {
    const pickles = picklesIn(new Whole(await archive.read(name)));
    return { root: pickles.load(), pickles };
  }
  const part: FileSource = {
    name,
    size: archive.size(name),
    read: (offset, length) => source.read(place + offset, length),
    beside: () => Promise.reject(malformed("a part of an archive"))
  };
  const window = new Window(part);
  const pickles = picklesIn(window);
  return { root: await next(window, pickles), pickles };
}

/** What the next pickle makes; windows before it are not kept. */
const next = (window: Window, pickles: PickleMachine) =>
  window.run(() => {
    window.passed(pickles.position);
    return pickles.load();
  });

async function readPickle(source: FileSource): Promise<FileContents> {
  const window = new Window(source);
  const pickles = picklesIn(window);
  const root = await next(window, pickles);
  if (root === LEGACY_MAGIC) return readLegacy(source, window, pickles);
  const inventory = new Inventory(new Tensors(inlineOnly()));
  inventory.add(root);
  return contentsOf("pickle", root, pickles, inventory);
}

function inlineOnly(): (value: Value) => Storage {
  const inline = new InlineStorages();
  return value => {
    if (value instanceof ObjectRecord) return inline.of(value);
    throw malformed("a tensor is stored outside of the pickle");
  };
}

/** Magic number, version, system, the object, the keys of storages, and then the storages in that order. */
async function readLegacy(source: FileSource, window: Window, pickles: PickleMachine): Promise<FileContents> {
  const version = await next(window, pickles);
  const system = await next(window, pickles);
  ensure(version === LEGACY_VERSION, `torch's old format of another version than ${LEGACY_VERSION}`);
  const root = await next(window, pickles);
  const referred = [...pickles.persistent];
  const isLittle = !(system instanceof Map && system.get("little_endian") === false);
  const keys = await next(window, pickles);
  const places = await legacyOffsets(source, window, { keys, referred, isLittle, start: pickles.position });
  const inventory = new Inventory(new Tensors(legacyStorages(places)));
  inventory.add(root);
  return contentsOf("checkpoint", root, pickles, inventory);
}

function contentsOf(format: string, root: Value, pickles: PickleMachine, inventory: Inventory): FileContents {
  const paths = [...pickles.globals.values()].map(({ path }) => path);
  const classes = paths.filter(path => !`${path}.`.startsWith(SCRIPTED)).sort();
  const first = inventory.modules[0];
  const isModule = root instanceof ObjectRecord && first?.path === "";
  const className = first?.className ?? "";
  return {
    format,
    title: isModule ? className.slice(className.lastIndexOf(".") + 1) || classOf(root) : "",
    metadata: Object.fromEntries(inventory.metadata),
    tensors: inventory.tensors,
    modules: inventory.modules,
    graph: null,
    classes,
    warnings: [...codeWarnings(classes, LOADER, format === SCRIPT), ...inventory.warnings]
  };
}

// Storages of the tensors that a pickle refers to: in members of the archive, or behind the pickle.

const LEGACY_MAGIC = 0x1950a86a20f9469cfc6cn; // MAGIC_NUMBER of torch/serialization.py
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
async function archiveStorages(archive: Archive, folder: string, referred: readonly Persistent[]): Promise<Find> {
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
  ensure(id.length >= 5 && id[0] === "storage" && isKey(key), "a tensor has no storage that torch could find");
  return { kind: id[1], key, elements: id[4], part: id[5] };
}

/** Storages that a plain pickle holds as the bytes of other files of torch's old format, each read once. */
class InlineStorages {
  private readonly known = new Map<Value, Storage>(); // by the bytes

  of(made: ObjectRecord): Storage {
    const isInline = classPath(made.maker) === "torch.storage._load_from_bytes";
    const content = isInline ? encoded(argsOf(made)[0] ?? null) : null;
    let storage = this.known.get(content);
    if (storage === undefined) {
      if (this.known.size >= MAX_INLINE) throw limitExceeded("storages in its pickle");
      storage = inlineStorage(content);
      this.known.set(content, storage);
    }
    return storage;
  }
}

function inlineStorage(content: Value): Storage {
  const head = firstBytes(content, MAX_PREFIX_LENGTH);
  ensure(head !== null, "a tensor has no storage that torch could find");
  const pickles = picklesIn(new Whole(head));
  ensure(pickles.load() === LEGACY_MAGIC, "a tensor is stored in bytes that torch does not know");
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
async function legacyOffsets(
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
function legacyStorages(places: ReadonlyMap<string, Storage>): Find {
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
    ensure(start + nbytes <= whole.nbytes, `a tensor is beyond the end of the storage ${excerpt(key)}`);
    return { dtype, nbytes, offset: whole.offset === null ? null : whole.offset + start };
  };
}

// Warnings of the code that loading a file would run: what torch's own loader holds to be safe needs none.

const SAFE: ReadonlySet<string> = new Set([
  ...[...BITS.keys()].map(name => `torch.${name}`),
  ...[...STORAGES.keys()].filter(name => name !== "UntypedStorage").map(name => `torch.${name}`),
  ...Object.entries(FORMAT_TABLES.safe_globals).flatMap(([prefix, names]) => names.map(name => prefix + name))
]);
/** What torch writes into the pickles of TorchScript, whose own loader takes it for types of values. */
const SCRIPT_TYPES: ReadonlySet<string> = new Set(FORMAT_TABLES.script_types.map(name => `torch.jit._pickle.${name}`));

// what reaches beyond the model, to be named first: all of some modules, and some of others
const DANGEROUS_MODULES: ReadonlySet<string> = new Set(FORMAT_TABLES.dangerous_modules);
const DANGEROUS_NAMES: ReadonlySet<string> = new Set(FORMAT_TABLES.dangerous_names);
const MAX_NAMED = 8;

/** Whether something that a file would have imported reaches beyond the model: files, processes, other code. */
const isDangerous = (path: string) =>
  DANGEROUS_MODULES.has(path.split(".", 1)[0]) || DANGEROUS_NAMES.has(path.split("[", 1)[0]);

/** What to say of a file that names more than torch's own loader takes to be safe, the most dangerous first. */
function codeWarnings(classes: readonly string[], loader: string, isScript: boolean): string[] {
  const isSafe = (path: string) => SAFE.has(path) || (isScript && SCRIPT_TYPES.has(path));
  const unsafe = classes.filter(path => !isSafe(path)).sort();
  const beyond = [...unsafe.filter(isDangerous), ...unsafe.filter(path => !isDangerous(path))];
  if (beyond.length === 0) return [];
  const listed = beyond.slice(0, MAX_NAMED).map(path => excerpt(path));
  const named = listed.join(", ") + (beyond.length > MAX_NAMED ? ", …" : "");
  const text = `Loading this file with ${loader} can run code: ${named}`;
  return [
    isDangerous(beyond[0])
      ? `${text}. It may do anything on your computer: do not load it`
      : `${text}. Load it only if you trust its source`
  ];
}
