// The list that the kernel sends: its types and its checks.

import { isArrayOf, isObject, isValue } from "../core/shared/schema";

export const OBJECT_KINDS = ["model", "plan", "monitor", "recording", "graph"] as const;
export type ObjectKind = (typeof OBJECT_KINDS)[number];

export interface KernelObject {
  readonly name: string;
  readonly kind: ObjectKind;
  readonly className: string;
  readonly size: readonly number[] | null;
}

export interface KernelList {
  readonly objects: readonly KernelObject[];
  readonly leftOut: number;
}

export const SCHEMA_VERSION = 1;
export const OTHER_VERSION = "other-version";

const LONGEST = 200;
const MOST_OBJECTS = 1000;

/** The list, without the entries that are none; null for something else altogether. */
export function readKernelList(
  raw: unknown,
  isName: (name: unknown) => boolean
): KernelList | typeof OTHER_VERSION | null {
  if (!isObject(raw) || !Array.isArray(raw.objects)) {
    return null;
  }
  if (raw.schema_version !== SCHEMA_VERSION) {
    return OTHER_VERSION;
  }
  const leftOut = typeof raw.left_out === "number" && raw.left_out > 0 ? Math.floor(raw.left_out) : 0;
  const objects = raw.objects.slice(0, MOST_OBJECTS).map(entry => readObject(entry, isName));
  return { objects: objects.filter(entry => entry !== null), leftOut };
}

function readObject(raw: unknown, isName: (name: unknown) => boolean): KernelObject | null {
  if (!isObject(raw) || !isName(raw.name) || !OBJECT_KINDS.some(kind => kind === raw.kind)) {
    return null;
  }
  return {
    name: raw.name as string,
    kind: raw.kind as ObjectKind,
    className: typeof raw.class === "string" ? raw.class.slice(0, LONGEST) : "",
    size: isArrayOf(raw.size, isValue) ? raw.size.map(Number) : null // large ones come as text
  };
}
