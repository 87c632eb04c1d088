// How a draft travels, both ways: the axes that lose indices, and their bytes one after the other.

import { isCounts, isInteger, isObject, isString, isWithin } from "../shared/schema";
import { type BitTable, bytesOf, ones } from "./bits";

/** What was drawn in this page, set once per gesture. */
export interface Drawing {
  readonly generation: number; // of the axes: after a cut the same numbers are others
  readonly base: number; // the kernel's revision that it was drawn on
  readonly by: string; // this page
  readonly axes: readonly number[];
  readonly bits: DataView;
}

/** What the kernel has: the truth. */
export interface Known {
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
export function readKnown(raw: unknown, table: BitTable): Known | null {
  if (!isObject(raw) || !isInteger(raw.revision)) return null;
  const bits = unpacked(raw, table);
  return bits && { revision: raw.revision, by: isString(raw.by) ? (raw.by as string) : "", bits };
}
