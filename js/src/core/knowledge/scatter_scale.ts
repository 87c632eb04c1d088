// One axis of a scatter: from values to the picture and back, and its ticks. Pure arithmetic.

import { logTicks, roundTicks } from "../metrics/value_axis";

export interface Scale {
  readonly isLog: boolean;
  /** The place of a value in the picture. */
  at(value: number): number;
  /** Values of the axis between two places, with their places. */
  ticks(from: number, to: number, most: number): readonly { readonly value: number; readonly place: number }[];
}

const ROOM = 0.04; // at both ends, of the whole

/** The values over so much of the picture, from `start`; `isDown`: the largest comes first. */
export function scaleOf(
  values: readonly number[],
  wantsLog: boolean,
  start: number,
  length: number,
  isDown: boolean
): Scale {
  const isLog = wantsLog && values.length > 0 && values.every(value => value > 0);
  const raise = (value: number) => (isLog ? Math.log10(value) : value);
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, raise(value)), Math.max(most, raise(value))];
  if (!(most > least)) {
    const half = isLog || most === 0 ? 0.5 : Math.abs(most) / 2;
    [least, most] = Number.isFinite(most) ? [most - half, most + half] : [0, 1];
  }
  const room = (most - least) * ROOM;
  const [low, span] = [least - room, most - least + 2 * room];
  const share = (raised: number) => (isDown ? 1 - (raised - low) / span : (raised - low) / span);
  const back = (place: number) => {
    const part = (place - start) / length;
    return low + span * (isDown ? 1 - part : part);
  };
  const at = (value: number) => start + length * share(raise(value));
  return {
    isLog,
    at,
    ticks: (from, to, count) => {
      const [a, b] = [back(from), back(to)].sort((one, other) => one - other);
      const found = isLog ? logTicks(a, b, count).map(power => 10 ** power) : roundTicks(a, b, count);
      return found.map(value => ({ value, place: at(value) })).filter(({ place }) => Number.isFinite(place));
    }
  };
}
