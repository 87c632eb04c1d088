// Colors of numbers: a perceptual, color-blind-safe scale and the values it shows.

import { PALETTE } from "../../../generated/palette";
import type { Hierarchy } from "../model/hierarchy";
import { toNumber } from "../payload/payload";
import { type Value } from "../base/schema";
import type { GraphStore } from "../model/graph_store";
import * as words from "../../words/shared";

export interface Scale {
  readonly column: string;
  readonly label: string;
  readonly aggregate: Aggregate; // how a closed container got its value
  readonly logarithmic: boolean;
  readonly min: number; // of the finite values; both NaN when there are none
  readonly max: number;
  readonly missing: number; // leaf modules without a value
  readonly notFinite: number; // leaf modules with NaN or an infinity
  position(value: number): number; // 0…1, monotonic
  at(position: number): number; // inverse of position
}

interface NodeValue {
  readonly value: number | null;
  readonly note: string; // "sum of subtree", "mean of 12 modules", ""
}

/** Color of modules without a value, and of those whose value is NaN or infinite. */
export const { missing: MISSING_COLOR, not_finite: NOT_FINITE_COLOR } = PALETTE;

const ANCHORS = PALETTE.scale.map(channels);

type Rgb = [number, number, number];

function channels(color: string): Rgb {
  const hex = /^#([\da-f]{3}|[\da-f]{6})$/i.exec(color.trim())?.[1];
  if (hex) {
    const wide = hex.length === 3 ? hex.replace(/./g, "$&$&") : hex;
    const value = Number.parseInt(wide, 16);
    return [value >> 16, (value >> 8) & 255, value & 255];
  }
  const parts = color.match(/\d+(?:\.\d+)?/g)?.map(Number) ?? [];
  return [parts[0] ?? 255, parts[1] ?? 255, parts[2] ?? 255];
}

/** The scale's color at a position between 0 and 1, as #rrggbb. */
export function sample(position: number): string {
  const place = Math.min(1, Math.max(0, position)) * (ANCHORS.length - 1);
  const low = Math.min(Math.floor(place), ANCHORS.length - 2);
  const share = place - low;
  const mixed = ANCHORS[low].map((channel, i) => Math.round(channel + (ANCHORS[low + 1][i] - channel) * share));
  return `#${mixed.map(channel => channel.toString(16).padStart(2, "0")).join("")}`;
}

/** Relative luminance as WCAG defines it. */
export function luminance(color: string): number {
  const [red, green, blue] = channels(color).map(channel => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

export function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** Black or white, whichever is easier to read: never below 4.5 to 1. */
export function textColorOn(color: string): "#000000" | "#ffffff" {
  return contrast(color, "#000000") >= contrast(color, "#ffffff") ? "#000000" : "#ffffff";
}

/** Color of every node under the store's present choice; follows the store. Null: not colored. */
export function colorOf(h: Hierarchy, store: GraphStore): (node: number) => string | null {
  return node => {
    const shown = colored(h, store);
    if (!shown) return null;
    const value = shown.values[node];
    if (value === null) return shown.colorBy === "pruned" ? null : MISSING_COLOR;
    return Number.isFinite(value) ? sample(shown.scale.position(value)) : NOT_FINITE_COLOR;
  };
}

/** The legend's data; null when nothing is colored. */
export function scaleOf(h: Hierarchy, store: GraphStore): Scale | null {
  return colored(h, store)?.scale ?? null;
}

/** The value a node is colored by, with how it came about; null when nothing is colored. */
export function valueOf(h: Hierarchy, store: GraphStore, node: number): NodeValue | null {
  const shown = colored(h, store);
  if (!shown) return null;
  const own = shown.given[node];
  const value = shown.values[node];
  if (!h.isContainer(node) || value === null) return { value, note: "" };
  if (own !== null) return { value, note: shown.scale.column === "overlay" ? "" : NOTES[shown.scale.aggregate] };
  return {
    value,
    note: Number.isFinite(value) ? words.meanOf(shown.counts[node]) : words.NO_FINITE
  };
}

interface Colored {
  colorBy: string;
  overlay: Readonly<Record<string, Value>> | null; // what is colored, where it is no column of the payload
  given: readonly (number | null)[]; // as the kernel sent them
  values: readonly (number | null)[]; // with containers filled in from below
  counts: readonly number[]; // how many given values a container's mean has
  scale: Scale;
}

const latest = new WeakMap<Hierarchy, Colored>();

function colored(h: Hierarchy, store: GraphStore): Colored | null {
  const colorBy = store.get("colorBy");
  if (colorBy === "none") return null;
  const overlay = colorBy === "overlay" || colorBy === "pruned" ? store.get(colorBy) : null;
  if (colorBy === "pruned" && !isPruned(store.get("pruned"))) return null;
  const known = latest.get(h);
  if (known && known.colorBy === colorBy && known.overlay === overlay) return known;
  const given = overlay ? overlayValues(h, overlay, colorBy === "pruned") : h.column(colorBy);
  if (!given) return null;
  const aggregate = aggregateOf(h, colorBy);
  const { values, counts } = aggregate === "mean" ? filledByMean(h, given) : { values: given, counts: [] };
  const scale = makeScale(h, colorBy, aggregate, values);
  const result = { colorBy, overlay, given, values, counts, scale };
  latest.set(h, result);
  return result;
}

/** Until something goes, a graph that is colored by what is pruned looks as it does without colors. */
function isPruned(shares: Readonly<Record<string, Value>>): boolean {
  return Object.values(shares).some(isShare);
}

const isShare = (value: Value): boolean => (toNumber(value) ?? 0) > 0;

function overlayValues(h: Hierarchy, overlay: Readonly<Record<string, Value>>, sharesOnly: boolean): (number | null)[] {
  const values = new Array<number | null>(h.size).fill(null);
  for (const [path, value] of Object.entries(overlay)) {
    const node = h.find(path);
    if (node !== undefined && (!sharesOnly || isShare(value))) values[node] = toNumber(value);
  }
  return values;
}

type Aggregate = "sum" | "mean" | "own";

function aggregateOf(h: Hierarchy, colorBy: string): Aggregate {
  if (colorBy === "overlay") return "mean";
  return infoOf(h, colorBy)?.aggregate ?? "own";
}

function infoOf(h: Hierarchy, column: string): { label: string; aggregate: Aggregate } | undefined {
  const info = h.payload.column_info;
  return Object.prototype.hasOwnProperty.call(info, column) ? info[column] : undefined;
}

/** What people call a column, at the beginning of a line; the user's own as they called it. */
export function titleOf(h: Hierarchy, column: string): string {
  return words.COLUMNS.get(column) ?? labelOf(h, column);
}

/** The same within a line. */
export function labelOf(h: Hierarchy, column: string): string {
  if (column === "overlay") return words.OVERLAY;
  if (column === "pruned") return words.SHARE_PRUNED;
  return infoOf(h, column)?.label ?? column;
}

/** Containers without a value of their own get the mean of the finite values given below them, or NaN if there is nothing else. */
function filledByMean(
  h: Hierarchy,
  given: readonly (number | null)[]
): { values: (number | null)[]; counts: number[] } {
  const values = [...given];
  const sums = new Float64Array(h.size);
  const counts = new Array<number>(h.size).fill(0);
  const broken = new Uint8Array(h.size);
  for (let node = h.size - 1; node >= 0; node -= 1) {
    const value = given[node];
    if (value === null && counts[node]) values[node] = sums[node] / counts[node];
    else if (value === null && broken[node]) values[node] = Number.NaN;
    const above = h.parent(node);
    if (above < 0) continue;
    // a container with its own value speaks for what lies below it
    const finite = value !== null && Number.isFinite(value);
    if (finite) sums[above] += value;
    else if (value === null) sums[above] += sums[node];
    if (finite) counts[above] += 1;
    else if (value === null) counts[above] += counts[node];
    if ((value !== null && !finite) || (value === null && broken[node])) broken[above] = 1;
  }
  return { values, counts };
}

const NOTES: Readonly<Record<Aggregate, string>> = {
  sum: words.SUM_OF_CHILDREN,
  mean: words.MEAN_OF_MODULES,
  own: ""
};

function makeScale(h: Hierarchy, column: string, aggregate: Aggregate, values: readonly (number | null)[]): Scale {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  let smallest = Number.POSITIVE_INFINITY;
  let missing = 0;
  let notFinite = 0;
  // the root is never a card, and its total would press all others together
  for (let node = h.size > 1 ? 1 : 0; node < h.size; node += 1) {
    const value = values[node];
    if (value === null || !Number.isFinite(value)) {
      if (h.isContainer(node)) continue;
      if (value === null) missing += 1;
      else notFinite += 1;
      continue;
    }
    min = Math.min(min, value);
    max = Math.max(max, value);
    if (value > 0) smallest = Math.min(smallest, value);
  }
  if (column === "pruned") [min, missing] = [0, 0]; // what has no share is left as it is without colors
  const logarithmic = column !== "pruned" && min >= 0 && max > 100 * smallest;
  if (min > max) min = max = Number.NaN;
  const map = logarithmic ? logMap(smallest, max) : linearMap(min, max);
  return {
    column,
    label: column === "occurrences" ? words.OCCURRENCES : titleOf(h, column),
    aggregate,
    logarithmic,
    min,
    max,
    missing,
    notFinite,
    ...map
  };
}

interface Mapping {
  position(value: number): number;
  at(position: number): number;
}

/** Logarithmic in units of the smallest positive value, so that zero has a place of its own at the start. */
function logMap(unit: number, max: number): Mapping {
  const span = Math.log1p(max / unit);
  return {
    position: value => Math.min(1, Math.log1p(Math.max(0, value) / unit) / span),
    at: position => unit * Math.expm1(position * span)
  };
}

function linearMap(min: number, max: number): Mapping {
  const span = max - min;
  return {
    position: value => (span > 0 ? Math.min(1, Math.max(0, (value - min) / span)) : 0.5),
    at: position => min + position * span
  };
}
