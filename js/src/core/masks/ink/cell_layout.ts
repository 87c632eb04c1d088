// The layout of an axis's cells: lines of groups of eight, smaller the more there are; and the moves of the cursor.

export interface CellLayout {
  readonly size: number;
  readonly pitch: number; // px from one cell to the next
  readonly cell: number; // px
  readonly columns: number;
  readonly lines: number;
  readonly width: number;
  readonly height: number;
}

const GROUP = 8;
const GAP = 3; // px between groups
const PITCHES: readonly [most: number, pitch: number][] = [
  [96, 16],
  [384, 12],
  [1024, 10],
  [4096, 8],
  [16384, 6]
];
const MIN_PITCH = 5;

export function pitchFor(size: number): number {
  return PITCHES.find(([most]) => size <= most)?.[1] ?? MIN_PITCH;
}

export function cellLayout(size: number, room: number): CellLayout {
  const pitch = pitchFor(size);
  const groups = Math.max(1, Math.floor((room + GAP) / (GROUP * pitch + GAP)));
  const columns = Math.min(size, groups * GROUP);
  const lines = Math.ceil(size / columns);
  return {
    size,
    pitch,
    cell: pitch - (pitch > 8 ? 2 : 1),
    columns,
    lines,
    width: left(columns - 1, pitch) + pitch,
    height: lines * pitch
  };
}

function left(column: number, pitch: number): number {
  return column * pitch + Math.floor(column / GROUP) * GAP;
}

/** The corner of a cell. */
export function corner({ columns, pitch }: CellLayout, index: number): readonly [x: number, y: number] {
  return [left(index % columns, pitch), Math.floor(index / columns) * pitch];
}

/** The index at a place; -1 where there is none. */
export function indexAt({ size, columns, lines, pitch }: CellLayout, x: number, y: number): number {
  const group = Math.floor(x / (GROUP * pitch + GAP));
  const inGroup = Math.min(GROUP - 1, Math.floor((x - group * (GROUP * pitch + GAP)) / pitch));
  const column = group * GROUP + inGroup;
  const line = Math.floor(y / pitch);
  if (x < 0 || column >= columns || line < 0 || line >= lines) return -1;
  const index = line * columns + column;
  return index < size ? index : -1;
}

/** The indices on the straight way between two places. */
export function indicesBetween(
  layout: CellLayout,
  from: readonly [number, number],
  to: readonly [number, number]
): number[] {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const steps = Math.max(1, Math.ceil(Math.hypot(dx, dy) / (layout.pitch / 3)));
  const found = new Set<number>();
  for (let step = 0; step <= steps; step += 1) {
    const share = step / steps;
    const index = indexAt(layout, from[0] + dx * share, from[1] + dy * share);
    if (index >= 0) found.add(index);
  }
  return [...found];
}

// Where a key takes the cursor of a strip.

export type RowMove = "above" | "below"; // to the row before or after

/** The new index, a leap to another row, or null for a key that does not move. */
export function moveCursor(key: string, index: number, { size, columns }: CellLayout): number | RowMove | null {
  switch (key) {
    case "ArrowLeft":
      return Math.max(0, index - 1);
    case "ArrowRight":
      return Math.min(size - 1, index + 1);
    case "ArrowUp":
      return index < columns ? "above" : index - columns;
    case "ArrowDown":
      return lineOf(index, columns) === lineOf(size - 1, columns) ? "below" : Math.min(size - 1, index + columns);
    case "Home":
      return 0;
    case "End":
      return size - 1;
    default:
      return null;
  }
}

function lineOf(index: number, columns: number): number {
  return Math.floor(index / columns);
}
