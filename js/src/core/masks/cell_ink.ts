// The colors of the cells under the page's theme: the more important an index is, the more its cell stands out.

import { PALETTE } from "../../generated/palette";
import { mix, readable, readTheme } from "../shared/theme";
import { LEVELS } from "./shades";

const SEEN = 3; // least contrast to the ground of what has to be found

export interface CellInk {
  readonly dark: boolean;
  readonly ground: string;
  readonly fills: readonly string[]; // by level, from near the ground to far from it
  readonly dots: readonly string[]; // by level, of indices that go: small, so they are never near the ground
  readonly frame: string; // around every cell that stays: the least important ones are seen by it
  readonly unscored: string;
  readonly kept: string; // marks of the dry run
  readonly taken: string;
  readonly stale: string; // marks of an earlier draft
  readonly range: string;
}

/** From the color of the least important index, near the ground in either theme, to that of the most important one. */
export function rampColor(share: number, dark: boolean): string {
  const anchors = dark ? PALETTE.mask.dark : PALETTE.mask.light;
  const place = Math.min(1, Math.max(0, share)) * (anchors.length - 1);
  const low = Math.min(Math.floor(place), anchors.length - 2);
  return mix(anchors[low], anchors[low + 1], place - low);
}

export function readCellInk(element: HTMLElement): CellInk {
  const { surface, text, muted, accent, axis, dark } = readTheme(element);
  const fills = Array.from({ length: LEVELS }, (_, level) => rampColor(level / (LEVELS - 1), dark));
  const seen = (color: string) => readable(color, text, surface, SEEN);
  return {
    dark,
    ground: surface,
    fills,
    dots: fills.map(seen),
    frame: seen(mix(surface, text, 0.4)),
    unscored: seen(muted),
    kept: seen(axis),
    taken: text,
    stale: seen(muted),
    range: seen(accent)
  };
}
