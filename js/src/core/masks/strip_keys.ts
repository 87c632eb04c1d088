// Where a key takes the cursor of a strip.

import type { CellLayout } from "./cell_layout";

export type Leap = "above" | "below"; // to the row before or after

/** The new index, a leap to another row, or null for a key that does not move. */
export function movedBy(key: string, index: number, { size, columns }: CellLayout): number | Leap | null {
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
