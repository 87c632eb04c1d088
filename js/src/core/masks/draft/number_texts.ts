// Number formatting of the mask editor: counts of what is removed, changes in percent, rises of the loss.

import { shortBytes, shortNumber } from "../../shared/base/format";
import type { Totals } from "./counters";
import type { Dropped } from "./plan_data";
import * as words from "../../words/masks";

/** What is removed: "3 channels in 2 groups and 1 block"; "" for nothing. */
export function removalText({ indices, axes, blocks }: Dropped): string {
  const parts = [indices ? words.channelsInGroups(indices, axes) : "", blocks ? words.blocks(blocks) : ""];
  return words.allOf(parts.filter(Boolean));
}

export type Counter = keyof Totals;

export const COUNTERS: readonly [Counter, string][] = [
  ["params", words.PARAMETERS],
  ["flops", "FLOPs"],
  ["bytes", words.BYTES]
];

export function amountText(counter: Counter, value: number): string {
  return counter === "bytes" ? shortBytes(value) : shortNumber(value);
}

/** "−28.7 %"; "" without a change. */
export function changeText(before: number, after: number): string {
  if (before <= 0 || before === after) return "";
  const share = (100 * (after - before)) / before;
  const text = Math.abs(share) < 0.05 ? "< 0.1" : Math.abs(share).toFixed(1);
  return `${share < 0 ? "−" : "+"}${text} %`;
}

/** "+0.0123", "−0.004", "±0". */
export function increaseText(increase: number): string {
  const text = shortNumber(increase);
  return increase > 0 ? `+${text}` : increase === 0 ? `±${text}` : text;
}

/** "1 batch"; "your batches" where nobody knows how many there are. */
export function batchesText(batches: number | null): string {
  return batches === null ? words.YOUR_BATCHES : words.batches(batches);
}

export function shareText(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
