// Number formatting of the mask editor: counts of axes and indices, changes in percent, rises of the loss.

import { counted, exactNumber, shortBytes, shortNumber } from "../../shared/base/format";
import type { Totals } from "./counters";
import type { Dropped } from "./plan_data";

export function axesText(count: number): string {
  return `${exactNumber(count)} ${count === 1 ? "axis" : "axes"}`;
}

function indicesText(count: number): string {
  return `${exactNumber(count)} ${count === 1 ? "index" : "indices"}`;
}

export function blocksText(count: number): string {
  return counted(count, "block");
}

/** What goes: "3 indices of 2 axes and 1 block"; "" for nothing. */
export function removalText({ indices, axes, blocks }: Dropped, of: "of" | "on" = "of"): string {
  const parts = [indices ? `${indicesText(indices)} ${of} ${axesText(axes)}` : "", blocks ? blocksText(blocks) : ""];
  return parts.filter(Boolean).join(" and ");
}

export type Counter = keyof Totals;

export const COUNTERS: readonly [Counter, string][] = [
  ["params", "Parameters"],
  ["flops", "FLOPs"],
  ["bytes", "Bytes"]
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
  return batches === null ? "your batches" : batches === 1 ? "1 batch" : `${exactNumber(batches)} batches`;
}

export function shareText(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
