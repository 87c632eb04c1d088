// One page of pictures of an output: how it comes from the kernel, checked.

import { type Fields, isArrayOf, isCount, isObject, tuple } from "../shared/schema";
import { isTop, type Num, type Top } from "./payload";

/** Which pictures are wanted. */
export interface MapsRequest {
  readonly run: number;
  readonly step: number;
  readonly sample: number;
  readonly page: number;
}

export type Form = "channels" | "heat" | "strip" | "none";

export interface MapPage {
  readonly form: Form;
  readonly width: number; // of each map, in pixels
  readonly height: number;
  readonly first: number; // channel or value
  readonly total: number;
  readonly sizes: readonly number[]; // of a map before it was averaged
  readonly slice: number | null;
  readonly ranges: readonly (readonly [Num, Num])[];
  readonly top: Top | null;
  readonly item: number;
  readonly pixels: Uint8Array; // map after map; 255 is not finite
}

export type Drawing = Omit<MapPage, "pixels">;

export function keyOf({ run, step, sample, page }: MapsRequest): string {
  return [run, step, sample, page].join();
}

/** How many bytes its pixels are. */
export function sizeOf({ width, height, ranges }: Drawing): number {
  return width * height * ranges.length;
}

const isNum = (value: unknown) => typeof value === "number" || typeof value === "string";

export function isDrawing(maps: unknown): maps is Drawing & Fields {
  if (!isObject(maps)) return false;
  const counts = [maps.width, maps.height, maps.first, maps.total, maps.item];
  return (
    ["channels", "heat", "strip", "none"].includes(maps.form as string) &&
    counts.every(isCount) &&
    isArrayOf(maps.sizes, isCount) &&
    (maps.slice === null || isCount(maps.slice)) &&
    isArrayOf(maps.ranges, tuple(isNum, isNum)) &&
    (maps.top === null || isTop(maps.top))
  );
}

export function bytesOf(buffer: unknown): Uint8Array {
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  return ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(0);
}
