// The table of contents of a zip archive, of 32 or 64 bits, checked before it is believed.

import { FileProblem } from "../shared/file_problem";
import { excess, malformed, need, shown } from "./bounds";
import { count, text } from "./numbers";
import type { FileSource } from "./records";

const LARGEST_DIRECTORY = 20 * 2 ** 20; // bytes; that of 100,000 tensors has 12 MB
const MOST_MEMBERS = 125_000;
export const HIDDEN = 0x1 | 0x40 | 0x2000; // flags of encrypted members and encrypted directories
export const LOCAL = 30; // bytes of the header before a member, without its name
const [END, END_64, LOCATOR, CENTRAL] = [22, 56, 20, 46]; // bytes of the other parts
const LONGEST_COMMENT = 2 ** 16;
const UTF8 = 0x800;
const LARGEST_32 = 0xffffffff; // stands for a number among the extras
const EXTRA_64 = 1;

/** A member: where its header begins, the bytes that it takes and has, and where its room ends. */
export interface Entry {
  readonly name: string;
  readonly isUtf8: boolean;
  readonly method: number;
  readonly packed: number;
  readonly size: number;
  readonly header: number;
  end: number;
}

export interface Directory {
  readonly entries: readonly Entry[];
}

interface Extent {
  readonly start: number;
  readonly end: number;
  readonly shift: number; // of what stands before the archive
}

/** The members, in the order of the directory; malformed where two overlap, or have one name. */
export async function directoryOf(source: FileSource): Promise<Directory> {
  const { start, end, shift } = await extentOf(source);
  const content = await source.read(start, end - start);
  const entries: Entry[] = [];
  for (let at = 0; at < content.length;) {
    const { entry, next } = entryAt(content, at, shift);
    entries.push(entry);
    if (entries.length > MOST_MEMBERS) throw excess("members of the archive");
    at = next;
  }
  need(new Set(entries.map(({ name }) => name)).size === entries.length, "a member stands twice in the archive");
  checkRooms(entries, start);
  return { entries };
}

/** Where the directory is, by the record at the end of the file. */
async function extentOf(source: FileSource): Promise<Extent> {
  const length = Math.min(source.size, END + LONGEST_COMMENT + LOCATOR + END_64);
  const from = source.size - length;
  const tail = await source.read(from, length);
  const at = endIn(tail);
  const u32 = (offset: number) => count(tail.subarray(offset, offset + 4));
  const [size, offset] = [u32(at + 12), u32(at + 16)];
  const found = (await extentOf64(source, from, tail, at)) ?? { size, offset, end: from + at };
  const start = found.end - found.size;
  if (found.size > LARGEST_DIRECTORY) throw excess("bytes of the archive's directory");
  need(start >= found.offset, "the archive's directory does not stand where it should");
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

export const isSignature = (bytes: Uint8Array, at: number, third: number, fourth: number) =>
  bytes[at] === 0x50 && bytes[at + 1] === 0x4b && bytes[at + 2] === third && bytes[at + 3] === fourth;

function entryAt(content: Uint8Array, at: number, shift: number): { entry: Entry; next: number } {
  need(at + CENTRAL <= content.length && isSignature(content, at, 1, 2), "the archive's directory has no entry there");
  const short = (offset: number) => count(content.subarray(at + offset, at + offset + 2));
  const long = (offset: number) => count(content.subarray(at + offset, at + offset + 4));
  const [nameEnd, flags] = [at + CENTRAL + short(28), short(8)];
  const [extraEnd, next] = [nameEnd + short(30), nameEnd + short(30) + short(32)];
  need(next <= content.length, "the archive's directory ends within an entry");
  const isUtf8 = (flags & UTF8) !== 0;
  const name = nameOf(content.subarray(at + CENTRAL, nameEnd), isUtf8);
  need((flags & HIDDEN) === 0, () => `${shown(name)} is encrypted`);
  need(!name.includes("\0"), () => `${shown(name)} is no name`);
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
        if (number !== LARGEST_32) return number;
        need(place + 8 <= Math.min(at + 4 + length, extra.length), "an entry of the archive has no large size");
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
    need(entry.header >= 0 && least <= entry.end, () => `${shown(entry.name)} overlaps what comes after it`);
  });
}

const UPPER_437 =
  "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u00a0";

/** A name, which is in the letters of DOS unless a flag says otherwise. */
export function nameOf(bytes: Uint8Array, isUtf8: boolean): string {
  if (isUtf8) return text(bytes, "a name in the archive");
  return Array.from(bytes, byte => (byte < 128 ? String.fromCharCode(byte) : UPPER_437[byte - 128])).join("");
}
