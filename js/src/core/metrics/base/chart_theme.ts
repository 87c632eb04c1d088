// Colors of the charts: those of the page's theme, colors of modules and dashes of runs, legible on light and dark.

import { PALETTE } from "../../../generated/palette";
import { MISSING_COLOR } from "../../shared/stage/color";
import { mix, readable, readTheme } from "../../shared/stage/theme";

// Colors of modules and dashes of runs: told apart by every kind of color vision, on light and on dark ground.

const { light, dark } = PALETTE.lines;

export const COLORS = light.length;

/** The color in a slot of the book below. */
export function lineColor(slot: number, isDark: boolean): string {
  const set = isDark ? dark : light;
  return set[slot % set.length];
}

const DASHES: readonly (readonly number[])[] = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4, 2, 4, 2, 4]];

/** The dash of a run's lines, in CSS pixels; the first run's are solid. */
export function runDash(run: number): readonly number[] {
  return DASHES[run % DASHES.length];
}

const GREY = COLORS - 1; // the last color: of the eighth line, and of all further ones

/** Remembers which module has which color in a chart, for as long as it is drawn; in other charts the same, if it can. */
export class ColorBook {
  private readonly charts = new Map<string, Map<string, number>>();
  private readonly liked = new Map<string, number>(); // what a key has had first

  /** The slots of the keys that are drawn now, each its own; grey where there are more. Those drawn before keep theirs. */
  slotsOf(keys: readonly string[], chart = ""): number[] {
    const slots = this.charts.get(chart) ?? new Map<string, number>();
    this.charts.set(chart, slots);
    const drawn = new Set(keys);
    const used = new Set<number>();
    for (const [key, slot] of slots) {
      if (drawn.has(key) && !used.has(slot)) used.add(slot);
      else slots.delete(key);
    }
    for (const key of drawn) {
      if (slots.has(key)) continue;
      const free = [this.liked.get(key) ?? -1, ...PALETTE.lines.light.keys()].find(
        slot => slot >= 0 && !used.has(slot)
      );
      slots.set(key, free ?? GREY);
      if (free === undefined) continue;
      used.add(free);
      if (!this.liked.has(key)) this.liked.set(key, free);
    }
    return keys.map(key => slots.get(key) ?? GREY);
  }
}

/** How many keys share the grey, where they do. */
export function sharingGrey(keys: readonly string[], slots: readonly number[]): number {
  const grey = new Set(keys.filter((_, i) => slots[i] === GREY)).size;
  return grey > 1 ? grey : 0;
}

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
