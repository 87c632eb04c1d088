// Reader of untrusted zip archives: the central directory, members read within bounds, and offsets of stored bytes.

import { FileProblem } from "../../shared/payload/file_problem";
import { limitExceeded, malformed, mapSome, ensure, excerpt } from "./limits";
import { count, text } from "./numbers";
import type { FileSource } from "./records";

// The table of contents of a zip archive, of 32 or 64 bits, checked before it is believed.

const MAX_DIRECTORY_SIZE = 20 * 2 ** 20; // bytes; that of 100,000 tensors has 12 MB
const MAX_MEMBERS = 125_000;
const HIDDEN = 0x1 | 0x40 | 0x2000; // flags of encrypted members and encrypted directories
const LOCAL = 30; // bytes of the header before a member, without its name
const [END, END_64, LOCATOR, CENTRAL] = [22, 56, 20, 46]; // bytes of the other parts
const MAX_COMMENT_LENGTH = 2 ** 16;
const UTF8 = 0x800;
const MAX_UINT32 = 0xffffffff; // stands for a number among the extras
const EXTRA_64 = 1;

/** A member: where its header begins, the bytes that it takes and has, and where its room ends. */
interface Entry {
  readonly name: string;
  readonly isUtf8: boolean;
  readonly method: number;
  readonly packed: number;
  readonly size: number;
  readonly header: number;
  end: number;
}

interface Directory {
  readonly entries: readonly Entry[];
}

interface Extent {
  readonly start: number;
  readonly end: number;
  readonly shift: number; // of what stands before the archive
}

/** The members, in the order of the directory; malformed where two overlap, or have one name. */
async function directoryOf(source: FileSource): Promise<Directory> {
  const { start, end, shift } = await extentOf(source);
  const content = await source.read(start, end - start);
  const entries: Entry[] = [];
  for (let at = 0; at < content.length;) {
    const { entry, next } = entryAt(content, at, shift);
    entries.push(entry);
    if (entries.length > MAX_MEMBERS) throw limitExceeded("members of the archive");
    at = next;
  }
  ensure(new Set(entries.map(({ name }) => name)).size === entries.length, "a member stands twice in the archive");
  checkRooms(entries, start);
  return { entries };
}

/** Where the directory is, by the record at the end of the file. */
async function extentOf(source: FileSource): Promise<Extent> {
  const length = Math.min(source.size, END + MAX_COMMENT_LENGTH + LOCATOR + END_64);
  const from = source.size - length;
  const tail = await source.read(from, length);
  const at = endIn(tail);
  const u32 = (offset: number) => count(tail.subarray(offset, offset + 4));
  const [size, offset] = [u32(at + 12), u32(at + 16)];
  const found = (await extentOf64(source, from, tail, at)) ?? { size, offset, end: from + at };
  const start = found.end - found.size;
  if (found.size > MAX_DIRECTORY_SIZE) throw limitExceeded("bytes of the archive's directory");
  ensure(start >= found.offset, "the archive's directory does not stand where it should");
  return { start, end: found.end, shift: start - found.offset };
}

/** Where the record of the end begins: the last one, for a comment may follow it. */
function endIn(tail: Uint8Array): number {
  for (let at = tail.length - END; at >= 0; at--) {
    if (isSignature(tail, at, 5, 6)) return at;
  }
  throw new FileProblem("truncated"); // what tells the end of an archive is its end
}

async function extentOf64(
  source: FileSource,
  from: number,
  tail: Uint8Array,
  at: number
): Promise<{ size: number; offset: number; end: number } | null> {
  const locator = at - LOCATOR;
  if (locator < 0 || !isSignature(tail, locator, 6, 7)) return null;
  const end = from + locator - END_64;
  if (end < 0) throw malformed("the archive's directory does not stand where it should");
  const record = await source.read(end, END_64);
  if (!isSignature(record, 0, 6, 6)) return null;
  return { size: count(record.subarray(40, 48)), offset: count(record.subarray(48, 56)), end };
}

const isSignature = (bytes: Uint8Array, at: number, third: number, fourth: number) =>
  bytes[at] === 0x50 && bytes[at + 1] === 0x4b && bytes[at + 2] === third && bytes[at + 3] === fourth;

function entryAt(content: Uint8Array, at: number, shift: number): { entry: Entry; next: number } {
  ensure(
    at + CENTRAL <= content.length && isSignature(content, at, 1, 2),
    "the archive's directory has no entry there"
  );
  const short = (offset: number) => count(content.subarray(at + offset, at + offset + 2));
  const long = (offset: number) => count(content.subarray(at + offset, at + offset + 4));
  const [nameEnd, flags] = [at + CENTRAL + short(28), short(8)];
  const [extraEnd, next] = [nameEnd + short(30), nameEnd + short(30) + short(32)];
  ensure(next <= content.length, "the archive's directory ends within an entry");
  const isUtf8 = (flags & UTF8) !== 0;
  const name = nameOf(content.subarray(at + CENTRAL, nameEnd), isUtf8);
  ensure((flags & HIDDEN) === 0, () => `${excerpt(name)} is encrypted`);
  ensure(!name.includes("\0"), () => `${excerpt(name)} is not a name`);
  const told = [long(24), long(20), long(42)]; // size, packed, header
  const [size, packed, header] = extended(told, content.subarray(nameEnd, extraEnd));
  return { entry: { name, isUtf8, method: short(10), packed, size, header: header + shift, end: 0 }, next };
}

/** The numbers, those that 32 bits have no room for from the extras. */
function extended(told: readonly number[], extra: Uint8Array): number[] {
  for (let at = 0; at + 4 <= extra.length;) {
    const [kind, length] = [count(extra.subarray(at, at + 2)), count(extra.subarray(at + 2, at + 4))];
    if (kind === EXTRA_64) {
      let place = at + 4;
      return told.map(number => {
        if (number !== MAX_UINT32) return number;
        ensure(place + 8 <= Math.min(at + 4 + length, extra.length), "an entry of the archive has no large size");
        place += 8;
        return count(extra.subarray(place - 8, place));
      });
    }
    at += 4 + length;
  }
  return [...told];
}

/** Tells each entry where its room ends. */
function checkRooms(entries: readonly Entry[], end: number): void {
  const ordered = [...entries].sort((a, b) => a.header - b.header);
  ordered.forEach((entry, index) => {
    entry.end = ordered[index + 1]?.header ?? end;
    const least = entry.header + LOCAL + entry.packed;
    ensure(entry.header >= 0 && least <= entry.end, () => `${excerpt(entry.name)} overlaps what comes after it`);
  });
}

const UPPER_437 =
  "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0";

/** A name, which is in the letters of DOS unless a flag says otherwise. */
function nameOf(bytes: Uint8Array, isUtf8: boolean): string {
  if (isUtf8) return text(bytes, "a name in the archive");
  return Array.from(bytes, byte => (byte < 128 ? String.fromCharCode(byte) : UPPER_437[byte - 128])).join("");
}

const MAX_MEMBER_SIZE = 64 * 2 ** 20; // bytes, of those that are read; weights are not
const AT_ONCE = 6; // requests
const NEAR = 64 * 2 ** 10; // bytes between headers that are read at once
const MAX_HEADER_LENGTH = 512; // bytes, of a header before a member as it mostly is
const [STORED, DEFLATED] = [0, 8];

/** The members of an archive, by their names without the folder that all of them lie in, which is `prefix`. */
export class Archive {
  readonly names: readonly string[]; // in the order of the archive
  readonly prefix: string;
  readonly begin: number; // of the first member in the file
  private readonly members: ReadonlyMap<string, Entry>;

  private constructor(
    private readonly source: FileSource,
    directory: Directory
  ) {
    const files = directory.entries.filter(({ name }) => !name.endsWith("/"));
    this.prefix = commonFolder(files);
    this.begin = directory.entries.reduce((least, { header }) => Math.min(least, header), Infinity);
    this.members = new Map(files.map(entry => [entry.name.slice(this.prefix.length), entry]));
    this.names = [...this.members.keys()];
  }

  static async open(source: FileSource): Promise<Archive> {
    return new Archive(source, await directoryOf(source));
  }

  has(name: string): boolean {
    return this.members.has(name);
  }

  /** How many bytes a member has, once inflated, by what the archive says. */
  size(name: string): number {
    return this.member(name).size;
  }

  async read(name: string, largest = MAX_MEMBER_SIZE): Promise<Uint8Array> {
    const member = this.member(name);
    if (Math.max(member.size, member.packed) > largest) throw limitExceeded(`bytes of ${excerpt(name)}`);
    const raw = await this.rawOf(member);
    const content = member.method === STORED ? raw : await inflated(raw, member);
    ensure(content.length === member.size, () => `${excerpt(name)} has not as many bytes as the archive says`);
    return content;
  }

  /** Where in the file the bytes of members stand as they are; null for compressed ones, and for those that are not. */
  async offsets(names: readonly string[]): Promise<Map<string, number | null>> {
    const places = new Map<string, number | null>(names.map(name => [name, null]));
    const stored = names.filter(name => isStored(this.members.get(name)));
    const groups = near(stored.map(name => this.member(name)));
    const found = await mapSome(groups, AT_ONCE, group => this.startsOf(group));
    for (const [member, start] of found.flat()) places.set(member.name.slice(this.prefix.length), start);
    return places;
  }

  /** The bytes as they stand in the file; what is small is read with its header. */
  private async rawOf(member: Entry): Promise<Uint8Array> {
    if (member.end - member.header > NEAR) {
      return this.source.read(startOf(member, await this.headerOf(member)), member.packed);
    }
    const room = await this.source.read(member.header, member.end - member.header);
    const start = startOf(member, room) - member.header;
    return room.subarray(start, start + member.packed);
  }

  private async startsOf(group: readonly Entry[]): Promise<[Entry, number][]> {
    const from = group[0].header;
    const until = Math.min(group[group.length - 1].header + MAX_HEADER_LENGTH, this.source.size);
    const content = await this.source.read(from, until - from);
    const starts: [Entry, number][] = [];
    for (const member of group) {
      const header = content.subarray(member.header - from);
      const isWhole = header.length >= LOCAL && header.length >= LOCAL + count(header.subarray(26, 28));
      starts.push([member, startOf(member, isWhole ? header : await this.headerOf(member))]);
    }
    return starts;
  }

  private async headerOf(member: Entry): Promise<Uint8Array> {
    const fixed = await this.source.read(member.header, LOCAL);
    const name = await this.source.read(member.header + LOCAL, count(fixed.subarray(26, 28)));
    return Uint8Array.of(...fixed, ...name);
  }

  private member(name: string): Entry {
    const found = this.members.get(name);
    if (found === undefined) throw malformed(`it has no ${excerpt(name)}`);
    return found;
  }
}

const isStored = (member: Entry | undefined) => member?.method === STORED && member.packed === member.size;

/** Where the bytes of a member begin, by the header before them, which has to agree with the directory. */
function startOf(member: Entry, header: Uint8Array): number {
  const is = () => `the header of ${excerpt(member.name)} says other things than the directory`;
  const short = (at: number) => count(header.subarray(at, at + 2));
  const start = member.header + LOCAL + short(26) + short(28);
  ensure(isSignature(header, 0, 3, 4), is);
  ensure((short(6) & HIDDEN) === 0 && short(8) === member.method && start + member.packed <= member.end, is);
  ensure(nameOf(header.subarray(LOCAL, LOCAL + short(26)), member.isUtf8) === member.name, is);
  return start;
}

/** Members in their order in the file, in groups that one request gets the headers of. */
function near(members: readonly Entry[]): Entry[][] {
  const groups: Entry[][] = [];
  for (const member of [...members].sort((a, b) => a.header - b.header)) {
    const group = groups[groups.length - 1];
    const last = group?.[group.length - 1];
    const isNear = last !== undefined && member.header - last.header < NEAR && group.length < 1000;
    if (isNear) group.push(member);
    else groups.push([member]);
  }
  return groups;
}

async function inflated(raw: Uint8Array, member: Entry): Promise<Uint8Array> {
  ensure(member.method === DEFLATED, `${excerpt(member.name)} is compressed by another method than models are`);
  const content = new Uint8Array(member.size);
  const { readable, writable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter();
  // what goes wrong is told by the reader, too
  void writer.write(raw as Uint8Array<ArrayBuffer>).catch(() => undefined);
  void writer.close().catch(() => undefined);
  const reader = readable.getReader();
  let filled = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      ensure(filled + part.value.length <= content.length, "more bytes than the archive says");
      content.set(part.value, filled);
      filled += part.value.length;
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    throw error instanceof FileProblem ? error : malformed(`${excerpt(member.name)} cannot be inflated`);
  }
  return content.subarray(0, filled);
}

/** The first folder of all names, with its slash; "" where they have none in common. */
function commonFolder(files: readonly Entry[]): string {
  const first = files.length > 0 ? files[0].name.slice(0, files[0].name.indexOf("/") + 1) : "";
  return first !== "" && first !== "/" && files.every(({ name }) => name.startsWith(first)) ? first : "";
}
