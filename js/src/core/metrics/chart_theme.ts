// The colors of the charts: those of the page's theme, made strong enough to be read.

import { PALETTE } from "../../generated/palette";
import { MISSING_COLOR } from "../shared/color";
import { mix, readable, readTheme } from "../shared/theme";
import { lineColor } from "./palette";

export interface ChartTheme {
  readonly dark: boolean;
  readonly ground: string;
  readonly text: string;
  readonly muted: string; // axis texts: at least 4.5 to 1
  readonly grid: string;
  readonly axis: string;
  readonly empty: string; // cells without a value
  readonly warn: string;
  readonly accent: string;
  readonly font: string; // the family alone
  line(slot: number): string;
}

export function readChartTheme(element: HTMLElement): ChartTheme {
  const { surface: ground, text, muted, accent, dark } = readTheme(element);
  return {
    dark,
    ground,
    text,
    muted: readable(muted, text, ground),
    grid: mix(ground, text, 0.09),
    axis: mix(ground, text, 0.3),
    empty: mix(ground, MISSING_COLOR, dark ? 0.16 : 0.45),
    warn: readable(PALETTE.warning, text, ground, 3),
    accent: readable(accent, text, ground),
    font: getComputedStyle(element).fontFamily || "sans-serif",
    line: slot => lineColor(slot, dark)
  };
}

export function sameTheme(a: ChartTheme, b: ChartTheme): boolean {
  return (["ground", "text", "muted", "accent", "font", "dark"] as const).every(key => a[key] === b[key]);
}
