// Bit masks of the draft, little end first: 1 = this index is removed. Every axis begins with a byte of its own.

import { isCounts, isInteger, isObject, isString, isWithin } from "../../shared/base/schema";

const ONES = Uint8Array.from({ length: 256 }, (_, byte) => {
  let count = 0;
  for (let rest = byte; rest; rest >>= 1) count += rest & 1;
  return count;
});

/** Where the bytes of each axis begin. */
export class BitTable {
  readonly starts: readonly number[];
  readonly total: number; // bytes

  constructor(readonly sizes: readonly number[]) {
    let total = 0;
    this.starts = sizes.map(size => {
      const start = total;
      total += bytesFor(size);
      return start;
    });
    this.total = total;
  }

  /** How many bytes an axis has. */
  length(axis: number): number {
    return bytesFor(this.sizes[axis]);
  }

  /** The bytes of one axis, not copied. */
  of(bits: Uint8Array, axis: number): Uint8Array {
    return bits.subarray(this.starts[axis], this.starts[axis] + this.length(axis));
  }

  /** Clears what lies behind the last index of each axis. */
  trim(bits: Uint8Array): Uint8Array {
    this.sizes.forEach((size, axis) => trimAxis(this.of(bits, axis), size));
    return bits;
  }
}

function bytesFor(size: number): number {
  return (size + 7) >> 3;
}

export function trimAxis(bytes: Uint8Array, size: number): void {
  const spare = size & 7;
  if (spare) bytes[size >> 3] &= (1 << spare) - 1;
}

export function bit(bytes: Uint8Array, index: number): boolean {
  return ((bytes[index >> 3] >> (index & 7)) & 1) === 1;
}

export function setBit(bytes: Uint8Array, index: number, value: boolean): void {
  if (value) bytes[index >> 3] |= 1 << (index & 7);
  else bytes[index >> 3] &= ~(1 << (index & 7));
}

export function ones(bytes: Uint8Array): number {
  let count = 0;
  for (let at = 0; at < bytes.length; at += 1) count += ONES[bytes[at]];
  return count;
}

/** First and one past the last byte that differ; null when none does. */
export function difference(a: Uint8Array, b: Uint8Array): readonly [start: number, end: number] | null {
  let start = 0;
  let end = a.length;
  while (start < end && a[start] === b[start]) start += 1;
  while (end > start && a[end - 1] === b[end - 1]) end -= 1;
  return start < end ? [start, end] : null;
}

/** What came over the wire as bytes of our own; null for anything else. */
export function bytesOf(value: unknown): Uint8Array | null {
  if (value instanceof ArrayBuffer) return new Uint8Array(value.slice(0));
  if (!ArrayBuffer.isView(value)) return null;
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice();
}

// How a draft travels, both ways: the axes that lose indices, and their bytes one after the other.

/** What was drawn in this page, set once per gesture. */
export interface Drawing {
  readonly generation: number; // of the axes: after a cut the same numbers are others
  readonly base: number; // the kernel's revision that it was drawn on
  readonly by: string; // this page
  readonly axes: readonly number[];
  readonly bits: DataView;
}

/** What the kernel has: the truth. */
interface KernelDraft {
  readonly revision: number;
  readonly by: string; // the page that has drawn it; "": none
  readonly bits: Uint8Array; // of all axes
}

export function packed(bits: Uint8Array, table: BitTable): Pick<Drawing, "axes" | "bits"> {
  const axes = [...table.sizes.keys()].filter(axis => ones(table.of(bits, axis)) > 0);
  const parts = new Uint8Array(axes.reduce((total, axis) => total + table.length(axis), 0));
  let at = 0;
  for (const axis of axes) {
    parts.set(table.of(bits, axis), at);
    at += table.length(axis);
  }
  return { axes, bits: new DataView(parts.buffer) };
}

/** The bits of all axes; null for what does not fit them. Of a notebook from before, they are all there is. */
export function unpacked(raw: unknown, table: BitTable): Uint8Array | null {
  const whole = bytesOf(raw);
  if (whole) return whole.length === table.total ? table.trim(whole) : null;
  if (!isObject(raw) || !isCounts(raw.axes) || !isWithin(raw.axes, table.sizes.length)) return null;
  const parts = bytesOf(raw.bits);
  const bits = new Uint8Array(table.total);
  let at = 0;
  for (const axis of raw.axes) {
    const end = at + table.length(axis);
    if (!parts || end > parts.length) return null;
    table.of(bits, axis).set(parts.subarray(at, end));
    at = end;
  }
  return parts?.length === at ? table.trim(bits) : null;
}

/** Null for what is none of the kernel's: a drawing of our own has no revision. */
export function readKernelDraft(raw: unknown, table: BitTable): KernelDraft | null {
  if (!isObject(raw) || !isInteger(raw.revision)) return null;
  const bits = unpacked(raw, table);
  return bits && { revision: raw.revision, by: isString(raw.by) ? (raw.by as string) : "", bits };
}
