// Zip archives, also those that lie.

import { deflateRawSync } from "node:zlib";

interface Member {
  readonly name: string;
  readonly content: string;
  readonly isDeflated?: boolean;
  readonly size?: number; // that the archive says, once inflated
}

const UTF8 = 0x800;

/** An archive; with `overlaps`, every member is said to begin where the first one does. */
export function zipped(members: readonly Member[], overlaps = false): Uint8Array {
  const parts: Uint8Array[] = [];
  const directory: Uint8Array[] = [];
  let at = 0;
  for (const member of members) {
    const name = new TextEncoder().encode(member.name);
    const content = new TextEncoder().encode(member.content);
    const packed = member.isDeflated === true ? new Uint8Array(deflateRawSync(content)) : content;
    const fields = [20, UTF8, member.isDeflated === true ? 8 : 0, 0, 0];
    const sizes = [0, packed.length, member.size ?? content.length];
    const local = [...u32(0x04034b50), ...fields.flatMap(u16), ...sizes.flatMap(u32), ...u16(name.length), ...u16(0)];
    const central = [...u32(0x02014b50), ...u16(20), ...fields.flatMap(u16), ...sizes.flatMap(u32)];
    const rest = [...u16(name.length), ...[0, 0, 0, 0].flatMap(u16), ...u32(0), ...u32(overlaps ? 0 : at)];
    parts.push(Uint8Array.from(local), name, packed);
    directory.push(Uint8Array.from([...central, ...rest]), name);
    at += local.length + name.length + packed.length;
  }
  const length = directory.reduce((total, part) => total + part.length, 0);
  const count = u16(members.length);
  const end = Uint8Array.from([...u32(0x06054b50), 0, 0, 0, 0, ...count, ...count, ...u32(length), ...u32(at), 0, 0]);
  return joined([...parts, ...directory, end]);
}

const u16 = (value: number) => [value & 255, (value >> 8) & 255];
const u32 = (value: number) => [...u16(value), ...u16(value >>> 16)];

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
