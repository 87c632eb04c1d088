// GGUF files: metadata, and tensors with their types, which may be quantised. Versions 1 to 3, in either order of bytes:
// docs/gguf.md in ggml-org/ggml.

import { FORMAT_TABLES } from "../../generated/format_tables";
import { type Bytes, Window } from "./bytes/buffered";
import { limitExceeded, malformed, MAX_TENSORS, ensure, excerpt } from "./bytes/limits";
import { anyText, count, floatText, grouped, numberIn, type NumberKind, text, widthOf } from "./bytes/numbers";
import type { FileContents, FileSource, Plain, TensorRecord } from "./bytes/records";

/** A type of tensors: how many elements a block of it has, and its bytes. */
interface GgmlType {
  readonly name: string;
  readonly block: number;
  readonly nbytes: number;
}

const GGML_TYPES: ReadonlyMap<number, GgmlType> = new Map(
  FORMAT_TABLES.ggml_types.map(([kind, name, block, nbytes]) => [kind, { name, block, nbytes }])
);

/** Numbers that readers use differently, with what each calls them; a type of the table is meant where its bytes fit. */
const USED_DIFFERENTLY: ReadonlyMap<number, string> = new Map<number, string>(FORMAT_TABLES.ambiguous_ggml_types);

const MAX_KEYS = 20_000;
const MAX_SCANNED = 2_000_000; // elements of arrays that are looked at one by one
const MAX_TEXT_LENGTH = 2 ** 16; // bytes of a name, and what is kept of a text
const MAX_TEXT_TOTAL = 64 * 2 ** 20; // bytes of names and texts together
const MAX_LISTED = 8; // elements of an array that are told one by one
const SHOWN = 4; // elements, as which one that is told counts
const MAX_DIMENSIONS = 8;
const MAX_ARRAY_DEPTH = 4;
const MAX_ELEMENTS = 2n ** 62n;
const [TEXT, ARRAY] = [8, 9];

/** By `enum gguf_type`: how a number is read; true and false are bytes. */
const NUMBER_KINDS = {
  uint8: "u8",
  int8: "i8",
  uint16: "u16",
  int16: "i16",
  uint32: "u32",
  int32: "i32",
  float32: "f32",
  bool: "u8",
  uint64: "u64",
  int64: "i64",
  float64: "f64"
} as const;
const NUMBERS: ReadonlyMap<number, readonly [NumberKind, string]> = new Map(
  FORMAT_TABLES.gguf_numbers.map(([number, name]) => [number, [NUMBER_KINDS[name], name]])
);

/** What the header says of a tensor; `start` is counted from where the tensors begin. */
interface Entry {
  readonly name: string;
  readonly shape: readonly number[];
  readonly kind: number;
  readonly start: number;
}

/** The header: metadata, the entries of the tensors, and where it ends. */
export async function readGguf(source: FileSource): Promise<FileContents> {
  const window = new Window(source);
  const header = await window.run(() => new Header(window, source.size));
  const metadata = new Map<string, Plain>();
  const entries = new Map<string, Entry>();
  const step = (make: () => void) => {
    make();
    header.keep();
    window.passed(header.kept);
  };
  await window.run(() => {
    header.back();
    while (metadata.size < header.keys) step(() => addKey(header, metadata));
    while (entries.size < header.tensors) step(() => addEntry(header, entries));
  });
  return contents(source, metadata, [...entries.values()], header.kept);
}

/** A position in the header that goes back to where it was kept last whenever bytes have to be fetched. */
class Header {
  kept = 0;
  readonly tensors: number;
  readonly keys: number;
  private at = 4;
  private passedOver = 0;
  private passedKept = 0;
  private texts = 0;
  private textsKept = 0;
  private readonly little: boolean;
  private readonly width: number;

  constructor(
    private readonly from: Bytes,
    private readonly size: number
  ) {
    const version = this.bytes(4);
    this.little = version[0] !== 0 || version[1] !== 0; // no version is so large that it has none of its lowest bits
    const number = count(version, this.little);
    ensure(number >= 1 && number <= 3, `GGUF of version ${grouped(number)}, and versions 1 to 3 are read`);
    this.width = number === 1 ? 4 : 8;
    [this.tensors, this.keys] = [this.count(), this.count()];
    if (this.tensors > MAX_TENSORS) throw limitExceeded(`${grouped(this.tensors)} tensors`);
    if (this.keys > MAX_KEYS) throw limitExceeded(`${grouped(this.keys)} keys`);
    this.keep();
  }

  keep(): void {
    [this.kept, this.passedKept, this.textsKept] = [this.at, this.passedOver, this.texts];
  }

  back(): void {
    [this.at, this.passedOver, this.texts] = [this.kept, this.passedKept, this.textsKept];
  }

  number(kind: NumberKind): number | bigint {
    return numberIn(this.bytes(widthOf(kind)), kind, this.little);
  }

  kind(): number {
    return Number(this.number("u32"));
  }

  offset(): number {
    return count(this.bytes(8), this.little);
  }

  count(): number {
    return count(this.bytes(this.width), this.little);
  }

  name(): string {
    const length = this.count();
    if (length > MAX_TEXT_LENGTH) throw limitExceeded(`a name of ${grouped(length)} bytes`);
    this.keepText(length);
    return text(this.bytes(length), "a name");
  }

  text(): string {
    const length = this.count();
    this.keepText(Math.min(length, MAX_TEXT_LENGTH));
    const found = anyText(this.bytes(Math.min(length, MAX_TEXT_LENGTH)));
    this.skip(Math.max(length - MAX_TEXT_LENGTH, 0));
    return length > MAX_TEXT_LENGTH ? `${found}…` : found;
  }

  skip(length: number): void {
    if (length > this.size - this.at) this.from.bytes(this.at, length); // says that the file is cut off
    this.at += length;
  }

  passOver(number: number): void {
    this.passedOver += number;
    if (this.passedOver > MAX_SCANNED) throw limitExceeded("elements in its metadata");
  }

  private keepText(length: number): void {
    this.texts += length;
    if (this.texts > MAX_TEXT_TOTAL) throw limitExceeded("bytes of names and texts");
  }

  private bytes(length: number): Uint8Array {
    const found = this.from.bytes(this.at, length);
    this.at += length;
    return found;
  }
}

function addKey(header: Header, metadata: Map<string, Plain>): void {
  const key = header.name();
  const found = value(header, header.kind());
  ensure(!metadata.has(key), () => `it has the key ${excerpt(key)} twice`);
  metadata.set(key, plain(found));
}

type MetadataValue = string | boolean | number | bigint;

const plain = (found: MetadataValue): Plain => (typeof found === "bigint" ? Number(found) : found);

function value(header: Header, kind: number, depth = 0): MetadataValue {
  const [number, name] = NUMBERS.get(kind) ?? [];
  if (number !== undefined) return name === "bool" ? header.number(number) !== 0 : header.number(number);
  if (kind === TEXT) return header.text();
  ensure(
    kind === ARRAY && depth < MAX_ARRAY_DEPTH,
    () => `a value of the type ${grouped(kind)}, which GGUF does not have`
  );
  return array(header, depth);
}

/** A short array as text, a long one by what it has. */
function array(header: Header, depth: number): string {
  const [kind, number] = [header.kind(), header.count()];
  if (number <= MAX_LISTED) {
    header.passOver(SHOWN * number);
    const elements = Array.from({ length: number }, () => elementText(value(header, kind, depth + 1), kind));
    return `[${elements.join(", ")}]`;
  }
  const [numberKind, name] = NUMBERS.get(kind) ?? [];
  if (numberKind !== undefined) {
    header.skip(number * widthOf(numberKind));
    return `${grouped(number)} × ${name ?? ""}`;
  }
  header.passOver(number);
  for (let index = 0; index < number; index++) {
    if (kind === TEXT) header.skip(header.count());
    else value(header, kind, depth + 1);
  }
  return `${grouped(number)} ${kind === TEXT ? "strings" : "arrays"}`;
}

/** As Python writes it. */
function elementText(found: MetadataValue, kind: number): string {
  if (typeof found === "boolean") return found ? "True" : "False";
  const isFloat = NUMBERS.get(kind)?.[0].startsWith("f") === true;
  return isFloat ? floatText(Number(found)) : String(found);
}

function addEntry(header: Header, entries: Map<string, Entry>): void {
  const [name, dimensions] = [header.name(), header.kind()];
  if (dimensions > MAX_DIMENSIONS) throw limitExceeded(`dimensions of ${excerpt(name)}`);
  const shape = Array.from({ length: dimensions }, () => header.count()).reverse();
  const entry = { name, shape, kind: header.kind(), start: header.offset() };
  ensure(!entries.has(name), () => `it has the tensor ${excerpt(name)} twice`);
  entries.set(name, entry);
}

function contents(
  source: FileSource,
  found: ReadonlyMap<string, Plain>,
  entries: readonly Entry[],
  end: number
): FileContents {
  const alignment = found.get("general.alignment") ?? 32;
  const isPower = typeof alignment === "number" && alignment >= 1 && Number.isInteger(Math.log2(alignment));
  if (!isPower) throw malformed(`tensors aligned by ${excerpt(String(alignment))}`);
  const data = Math.ceil(end / alignment) * alignment;
  const rooms = roomsOf(entries, source.size - data);
  const known = entries.map((entry, at) => typeOf(entry, rooms[at], alignment));
  const tensors = entries.map((entry, at) => recordOf(entry, { data, room: rooms[at], known: known[at] }));
  const untold = entries.filter((_, at) => known[at] === undefined);
  const title = String(found.get("general.name") || found.get("general.architecture") || "");
  const metadata = Object.fromEntries([...found, ...measures(tensors)]);
  const warnings = [...partsOf(found), ...usedDifferently(untold), ...unknownTypes(untold)];
  return { format: "gguf", title, metadata, tensors, modules: [], graph: null, classes: [], warnings };
}

/** The bytes up to where the next tensor begins, or the end, by the order of the header. */
function roomsOf(entries: readonly Entry[], size: number): number[] {
  const order = entries.map((_, index) => index).sort((a, b) => entries[a].start - entries[b].start);
  const rooms = new Array<number>(entries.length);
  order.forEach((index, place) => {
    const next = place + 1 < order.length ? entries[order[place + 1]].start : size;
    rooms[index] = next - entries[index].start;
  });
  return rooms;
}

/** Undefined for an unknown type, and where a number that readers use differently may be another. */
function typeOf(entry: Entry, room: number, alignment: number): GgmlType | undefined {
  const known = GGML_TYPES.get(entry.kind);
  if (known === undefined || !USED_DIFFERENTLY.has(entry.kind)) return known;
  const last = entry.shape[entry.shape.length - 1];
  const rest = room - bytesOf(entry, known);
  return last !== undefined && last % known.block === 0 && rest >= 0 && rest < alignment ? known : undefined;
}

const elementsOf = ({ shape }: Entry) => shape.reduce((total, size) => total * BigInt(size), 1n);

const bytesOf = (entry: Entry, { block, nbytes }: GgmlType) =>
  Number((elementsOf(entry) / BigInt(block)) * BigInt(nbytes));

interface Placed {
  readonly data: number; // where the tensors begin
  readonly room: number;
  readonly known: GgmlType | undefined;
}

/** Malformed for bytes of two tensors, and for those beyond the end. */
function recordOf(entry: Entry, { data, room, known }: Placed): TensorRecord {
  const { name, shape, kind, start } = entry;
  const dtype = known?.name ?? `ggml type ${kind}`;
  const nbytes = lengthOf(entry, room, known);
  return { name, shape, dtype, nbytes, offset: data + start, file: "", strides: null, role: null };
}

/** The bytes of a tensor that has `room` up to the next or to the end; one of an unknown type has all of them. */
function lengthOf(entry: Entry, room: number, known: GgmlType | undefined): number {
  const { name, shape } = entry;
  ensure(elementsOf(entry) <= MAX_ELEMENTS, () => `${excerpt(name)} has more elements than memories have`);
  if (known === undefined) return Math.max(room, 0);
  const { block } = known;
  ensure(
    block === 1 || (shape[shape.length - 1] ?? 1) % block === 0,
    () => `rows of ${excerpt(name)} cannot be cut into blocks`
  );
  const length = bytesOf(entry, known);
  ensure(length <= room, () => `${excerpt(name)} is cut off, or has bytes of another tensor`);
  return length;
}

function measures(tensors: readonly TensorRecord[]): [string, Plain][] {
  const elements = tensors.reduce((total, { shape }) => total + shape.reduce((size, each) => size * each, 1), 0);
  const nbytes = tensors.reduce((total, tensor) => total + tensor.nbytes, 0);
  return elements === 0 ? [] : [["bits per weight", Math.round((8000 * nbytes) / elements) / 1000]];
}

/** What to say of one of several files that `llama-gguf-split` has made of a model. */
function partsOf(found: ReadonlyMap<string, Plain>): string[] {
  const [number, count] = [found.get("split.no"), found.get("split.count")];
  if (!Number.isInteger(number) || !Number.isInteger(count) || Number(count) < 2) return [];
  return [
    `this is part ${grouped(Number(number) + 1)} of ${grouped(Number(count))}: tensors of the other parts are not shown`
  ];
}

function usedDifferently(untold: readonly Entry[]): string[] {
  const kinds = [...new Set(untold.map(({ kind }) => kind))].filter(kind => USED_DIFFERENTLY.has(kind));
  return kinds
    .sort((a, b) => a - b)
    .map(
      kind =>
        `${grouped(untold.filter(each => each.kind === kind).length)} tensors have the type ${kind}, which readers use ` +
        `differently (${USED_DIFFERENTLY.get(kind)}): their bytes are counted up to the next one`
    );
}

function unknownTypes(untold: readonly Entry[]): string[] {
  const unknown = untold.filter(({ kind }) => !USED_DIFFERENTLY.has(kind));
  if (unknown.length === 0) return [];
  const kinds = [...new Set(unknown.map(entry => entry.kind))].sort((a, b) => a - b).slice(0, 8);
  return [
    `${grouped(unknown.length)} tensors have types that are not known (${kinds.join(", ")}): ` +
      "their bytes are counted up to the next one"
  ];
}
