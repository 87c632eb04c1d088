// The colors of the overlap matrix.

import { mix } from "../shared/theme";

// one hue from the ground on, so that nothing in common looks like nothing
const LIGHT = ["#f0f2f5", "#b5d1e8", "#5a9fcd", "#1b66a5", "#08306b"];
const DARK = ["#222a33", "#24527a", "#3b86b8", "#86c3e6", "#eef8ff"];
const SHADES = 64; // each stop of the above included

export const stopsOf = (dark: boolean): readonly string[] => (dark ? DARK : LIGHT);

/** Colors from nothing in common to the same. */
export function shadesOf(dark: boolean): string[] {
  const stops = stopsOf(dark);
  return Array.from({ length: SHADES + 1 }, (_, i) => {
    const place = (i / SHADES) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    return mix(stops[low], stops[low + 1], place - low);
  });
}
