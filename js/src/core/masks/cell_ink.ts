// The colors of the cells under the page's theme.

import { contrast, sample } from "../shared/color";
import { mix, readTheme } from "../shared/theme";
import { LEVELS } from "./shades";

export interface CellInk {
  readonly dark: boolean;
  readonly ground: string;
  readonly fills: readonly string[]; // by level; the last is for cells without a score
  readonly edges: readonly string[];
  readonly hollow: string; // outline of an index that goes
  readonly kept: string; // marks of the dry run
  readonly taken: string;
  readonly stale: string; // marks of an earlier draft
  readonly range: string;
}

/** Where viridis begins and ends: what is nearer to the ground would hardly be seen on it. */
export const RAMP = { light: [0, 0.94], dark: [0.22, 1] } as const;

export function rampColor(share: number, dark: boolean): string {
  const [low, high] = dark ? RAMP.dark : RAMP.light;
  return sample(low + (high - low) * share);
}

export function readCellInk(element: HTMLElement): CellInk {
  const { surface, text, muted, accent, axis, dark } = readTheme(element);
  const shades = Array.from({ length: LEVELS }, (_, level) => rampColor(level / (LEVELS - 1), dark));
  const fills = [...shades, mix(surface, text, 0.22)];
  return {
    dark,
    ground: surface,
    fills,
    edges: fills.map(fill => (contrast(fill, surface) < 3 ? mix(fill, text, 0.45) : fill)),
    hollow: mix(surface, text, 0.26),
    kept: axis,
    taken: text,
    stale: muted,
    range: accent
  };
}
