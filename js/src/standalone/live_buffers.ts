// Binary values apart from the rest of a message, and back in their places.

type Path = readonly (string | number)[];

export interface Split {
  readonly state: Record<string, unknown>; // without the binary values
  readonly buffer_paths: readonly Path[];
  readonly buffers: readonly DataView[];
}

export function viewOf(value: unknown): DataView | null {
  if (value instanceof ArrayBuffer) return new DataView(value);
  return ArrayBuffer.isView(value) ? new DataView(value.buffer, value.byteOffset, value.byteLength) : null;
}

export const viewsOf = (values: unknown): DataView[] =>
  Array.isArray(values) ? values.map(viewOf).filter(view => view !== null) : [];

export function withoutBuffers(state: Record<string, unknown>): Split {
  const [paths, buffers]: [Path[], DataView[]] = [[], []];
  const taken = (value: unknown, path: Path): unknown => {
    const view = viewOf(value);
    if (view) {
      paths.push(path);
      buffers.push(view);
      return null;
    }
    if (Array.isArray(value)) return value.map((item, at) => taken(item, [...path, at]));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, taken(item, [...path, key])]));
  };
  return { state: taken(state, []) as Record<string, unknown>, buffer_paths: paths, buffers };
}

/** Puts each buffer at its path in `state`, which is changed. */
export function putBuffers(state: object, paths: readonly Path[], buffers: readonly DataView[]): void {
  for (const [at, path] of paths.entries()) {
    let place = state as Record<string | number, unknown>;
    for (const step of path.slice(0, -1)) place = place[step] as typeof place;
    place[path[path.length - 1]] = buffers[at];
  }
}
