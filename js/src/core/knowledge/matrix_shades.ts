// The colors of the overlap matrix.

import { PALETTE } from "../../generated/palette";
import { mix } from "../shared/theme";

const SHADES = 64; // each stop of the above included

/** One hue from the ground on, so that nothing in common looks like nothing. */
export const stopsOf = (dark: boolean): readonly string[] => PALETTE.overlap[dark ? "dark" : "light"];

/** Colors from nothing in common to the same. */
export function shadesOf(dark: boolean): string[] {
  const stops = stopsOf(dark);
  return Array.from({ length: SHADES + 1 }, (_, i) => {
    const place = (i / SHADES) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    return mix(stops[low], stops[low + 1], place - low);
  });
}
