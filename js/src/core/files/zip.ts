// A zip archive that may be forged: its table of contents, members read within bounds, and where raw bytes stand.

import { FileProblem } from "../shared/file_problem";
import { excess, malformed, mapSome, need, shown } from "./bounds";
import { count } from "./numbers";
import type { FileSource } from "./records";
import { type Directory, directoryOf, type Entry, HIDDEN, isSignature, LOCAL, nameOf } from "./zip_directory";

const LARGEST_MEMBER = 64 * 2 ** 20; // bytes, of those that are read; weights are not
const AT_ONCE = 6; // requests
const NEAR = 64 * 2 ** 10; // bytes between headers that are read at once
const LONGEST_HEADER = 512; // bytes, of a header before a member as it mostly is
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

  async read(name: string, largest = LARGEST_MEMBER): Promise<Uint8Array> {
    const member = this.member(name);
    if (Math.max(member.size, member.packed) > largest) throw excess(`bytes of ${shown(name)}`);
    const raw = await this.rawOf(member);
    const content = member.method === STORED ? raw : await inflated(raw, member);
    need(content.length === member.size, () => `${shown(name)} has not as many bytes as the archive says`);
    return content;
  }

  /** Where in the file the bytes of members stand as they are; null for compressed ones, and for those that are not. */
  async places(names: readonly string[]): Promise<Map<string, number | null>> {
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
    const until = Math.min(group[group.length - 1].header + LONGEST_HEADER, this.source.size);
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
    if (found === undefined) throw malformed(`it has no ${shown(name)}`);
    return found;
  }
}

const isStored = (member: Entry | undefined) => member?.method === STORED && member.packed === member.size;

/** Where the bytes of a member begin, by the header before them, which has to agree with the directory. */
function startOf(member: Entry, header: Uint8Array): number {
  const is = () => `the header of ${shown(member.name)} says other things than the directory`;
  const short = (at: number) => count(header.subarray(at, at + 2));
  const start = member.header + LOCAL + short(26) + short(28);
  need(isSignature(header, 0, 3, 4), is);
  need((short(6) & HIDDEN) === 0 && short(8) === member.method && start + member.packed <= member.end, is);
  need(nameOf(header.subarray(LOCAL, LOCAL + short(26)), member.isUtf8) === member.name, is);
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
  need(member.method === DEFLATED, `${shown(member.name)} is compressed by another method than models are`);
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
      need(filled + part.value.length <= content.length, "more bytes than the archive says");
      content.set(part.value, filled);
      filled += part.value.length;
    }
  } catch (error) {
    void reader.cancel().catch(() => undefined);
    throw error instanceof FileProblem ? error : malformed(`${shown(member.name)} cannot be inflated`);
  }
  return content.subarray(0, filled);
}

/** The first folder of all names, with its slash; "" where they have none in common. */
function commonFolder(files: readonly Entry[]): string {
  const first = files.length > 0 ? files[0].name.slice(0, files[0].name.indexOf("/") + 1) : "";
  return first !== "" && first !== "/" && files.every(({ name }) => name.startsWith(first)) ? first : "";
}
