// The draft as packed bits, little end first: 1 = this index goes. Every axis begins with a byte of its own.

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

export function bytesFor(size: number): number {
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
