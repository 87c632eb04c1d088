// Colors of the cells: a scale of scores under the page's theme, on which important indices stand out.

import { PALETTE } from "../../../generated/palette";
import { mix, readable, readTheme } from "../../shared/stage/theme";
import type { Scope, Scores } from "../draft/scores";

// How light each cell is: the place of its score between the least and the greatest, without the outermost ones.

export const LEVELS = 64;
export const NO_LEVEL = 255; // without a score
const OUTSIDE = 0.01; // of the scores lie beyond each end of the scale

type Ends = readonly [low: number, high: number];

/** Levels of the cells of every axis: within the axis, or for a common ranking on one scale for all. */
export class ScoreScale {
  private readonly levels = new Map<number, Uint8Array>();
  private common: Ends | null = null;

  constructor(
    private readonly scores: Scores | null,
    private readonly sizes: readonly number[],
    private readonly free: readonly number[],
    private readonly scope: Scope
  ) {}

  of(axis: number): Uint8Array {
    let found = this.levels.get(axis);
    if (!found) {
      found = this.make(axis);
      this.levels.set(axis, found);
    }
    return found;
  }

  private make(axis: number): Uint8Array {
    const { scores } = this;
    if (!scores) return new Uint8Array(this.sizes[axis]).fill(NO_LEVEL);
    if (this.scope === "local") return levels(scores.of(axis), endsOf(scores.of(axis)));
    this.common ??= endsOf(joined(this.free.map(own => scores.normalised(own))));
    return levels(scores.normalised(axis), this.common);
  }
}

function endsOf(values: Float64Array): Ends {
  const sorted = values.filter(Number.isFinite).sort();
  if (!sorted.length) return [0, 0];
  const spare = Math.floor(sorted.length * OUTSIDE);
  return [sorted[spare], sorted[sorted.length - 1 - spare]];
}

function levels(values: Float64Array, [low, high]: Ends): Uint8Array {
  return Uint8Array.from(values, value => {
    if (!Number.isFinite(value)) return NO_LEVEL;
    const place = high > low ? (value - low) / (high - low) : 0.5;
    return Math.round(Math.min(1, Math.max(0, place)) * (LEVELS - 1));
  });
}

function joined(parts: readonly Float64Array[]): Float64Array {
  const whole = new Float64Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

const SEEN = 3; // least contrast to the ground of what has to be found

export interface CellColors {
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

export function readCellColors(element: HTMLElement): CellColors {
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
