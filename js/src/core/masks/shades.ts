// How light each cell is: the place of its score between the least and the greatest, without the outermost ones.

import type { Scope } from "./ratio";
import type { Scores } from "./scores";

export const LEVELS = 64;
export const NO_LEVEL = 255; // without a score
const OUTSIDE = 0.01; // of the scores lie beyond each end of the scale

type Ends = readonly [low: number, high: number];

/** Levels of the cells of every axis: within the axis, or for a common ranking on one scale for all. */
export class Shades {
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
