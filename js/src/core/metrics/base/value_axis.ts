// Value axes of charts: linear and log scales, ticks and tick labels.

import { ticks as niceTicks } from "d3-array";
import { exactNumber, shortNumber } from "../../shared/base/format";

/** A value axis: `plot` numbers are what the chart library sees, whatever the size of the values. */
export interface ValueAxis {
  readonly log: boolean;
  readonly low: number; // plot numbers
  readonly high: number;
  /** NaN where there is no place for the value. */
  plot(value: number): number;
  value(plot: number): number;
  ticks(low: number, high: number, most: number): number[];
  texts(ticks: readonly number[]): string[];
}

const PADDING = 0.06;
const MIN_SPAN = 1e-9; // of the larger end; finer differences are beyond what an axis can name

export function valueAxis(least: number, greatest: number, log: boolean): ValueAxis {
  return log ? logAxis(least, greatest) : linearAxis(least, greatest);
}

function linearAxis(least: number, greatest: number): ValueAxis {
  if (!(least <= greatest)) [least, greatest] = [0, 1];
  const unit = unitOf(Math.max(Math.abs(least), Math.abs(greatest)));
  const [low, high] = padded(least / unit, greatest / unit);
  return {
    log: false,
    low: least >= 0 ? Math.max(0, low) : low,
    high: greatest <= 0 && least < 0 ? Math.min(0, high) : high,
    plot: value => value / unit,
    value: plot => plot * unit,
    ticks: (from, to, most) => roundTicks(from, to, most),
    texts: ticks => tickTexts(ticks.map(tick => tick * unit))
  };
}

/** A power of ten that brings very large and very small numbers to a size between 1 and 10; else 1. */
function unitOf(size: number): number {
  if (size === 0 || (size > 1e-6 && size < 1e9)) return 1;
  // the smallest number of all would make 1e-324, which is 0
  return 10 ** Math.max(-323, Math.floor(Math.log10(size)));
}

function padded(low: number, high: number): [number, number] {
  const size = Math.max(Math.abs(low), Math.abs(high));
  const span = high - low;
  if (span <= size * MIN_SPAN) {
    const pad = size > 0 ? size * 0.1 : 1;
    return [low - pad, high + pad];
  }
  return [low - PADDING * span, high + PADDING * span];
}

function logAxis(least: number, greatest: number): ValueAxis {
  if (!(least > 0) || !(least <= greatest)) [least, greatest] = [0.1, 10];
  const [low, high] = [Math.log10(least), Math.log10(greatest)];
  const pad = Math.max(PADDING * (high - low), high - low < 1e-6 ? 0.5 : 0.01);
  return {
    log: true,
    low: low - pad,
    high: high + pad,
    plot: value => (value > 0 ? Math.log10(value) : Number.NaN),
    value: plot => 10 ** plot,
    ticks: logTicks,
    texts: logTexts
  };
}

const MAX_TICKS = 500; // whatever is asked for
const TIMES = [1, 2, 5];
const CLOSE = 1e-9; // of two places that are one but for rounding

/** Powers of ten; between them 2 and 5 times as much, or evenly spaced values where even these are too far apart. */
export function logTicks(low: number, high: number, most: number): number[] {
  const span = high - low;
  if (span >= 1 && span * TIMES.length > most) {
    const stride = Math.max(1, Math.ceil(span / most));
    const ticks = [];
    for (let tick = Math.ceil(low / stride) * stride; tick <= high; tick += stride) ticks.push(tick + 0);
    return ticks;
  }
  const ticks = timesPowers(low, high, TIMES);
  return ticks.length >= 3
    ? ticks
    : roundTicks(10 ** low, 10 ** high, most)
        .filter(tick => tick > 0)
        .map(Math.log10);
}

/** So many times each power of ten, between two places of a logarithmic axis. */
export function timesPowers(low: number, high: number, times: readonly number[]): number[] {
  const ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power += 1)
    for (const each of times) ticks.push(power + Math.log10(each));
  return ticks.filter(tick => tick >= low - CLOSE && tick <= high + CLOSE);
}

/** Multiples of 1, 2 or 5 times a power of ten, no closer than `most` of them would be. */
export function roundTicks(low: number, high: number, most: number): number[] {
  const count = Math.min(MAX_TICKS, most);
  const ticks = niceTicks(low, high, count);
  // it takes the nearest stride, which may be finer than was asked for; half as many have the next one
  const isFine = ticks[1] - ticks[0] < ((high - low) / count) * (1 - 1e-9);
  return (isFine ? niceTicks(low, high, count / 2) : ticks).map(tick => tick + 0); // no tick is −0
}

/** About so many ticks, but two at least: one alone tells no scale. */
export function severalTicks(ticksFor: (most: number) => number[], most: number): number[] {
  let ticks: number[] = [];
  for (let wanted = Math.max(2, most); ticks.length < 2 && wanted < 12; wanted += 1) ticks = ticksFor(wanted);
  return ticks.length ? ticks : ticksFor(most);
}

/** The ticks as text, all with the same digits, so that they can be compared at a glance. */
export function tickTexts(values: readonly number[]): string[] {
  const size = Math.max(0, ...values.map(Math.abs));
  const stride = Math.min(...values.slice(1).map((value, i) => Math.abs(value - values[i])), size || 1);
  const finest = Math.floor(Math.log10(stride) + 1e-9);
  if (size >= 1e6 || (size < 1e-3 && size > 0)) {
    const digits = Math.min(12, Math.max(0, Math.floor(Math.log10(size) + 1e-9) - finest));
    return values.map(value => (value === 0 ? "0" : minus(value.toExponential(digits).replace("e+", "e"))));
  }
  const decimals = Math.min(12, Math.max(0, -finest));
  return values.map(value => grouped(value.toFixed(decimals)));
}

/** Of 1, 2 and 5 times powers of ten each as short as it can be; other ticks like those of a plain axis. */
function logTexts(ticks: readonly number[]): string[] {
  const parts = ticks.map(tick => {
    const power = Math.floor(tick + 1e-9);
    return { power, times: Math.round(10 ** (tick - power)), isRound: isRoundTick(tick - power) };
  });
  if (!parts.every(({ isRound }) => isRound)) return tickTexts(ticks.map(tick => 10 ** tick));
  return parts.map(({ power, times }) => {
    if (power < -3 || power > 4) return minus(`${times}e${power}`);
    return grouped((times * 10 ** power).toFixed(Math.max(0, -power)));
  });
}

const isRoundTick = (rest: number) => TIMES.some(times => Math.abs(rest - Math.log10(times)) < CLOSE);

function grouped(text: string): string {
  const [whole, decimals] = text.split(".");
  const parts = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return minus(decimals === undefined ? parts : `${parts}.${decimals}`);
}

/** With the typographic minus also in the exponent. */
function minus(text: string): string {
  return text.replace(/-/g, "−");
}

/** Ticks at whole steps. */
export function stepTicks(low: number, high: number, most: number): number[] {
  return roundTicks(low, high, Math.min(most, high - low)).filter(Number.isInteger);
}

/** A value as people read it, with more digits than an axis has. */
export function valueText(value: number): string {
  if (!Number.isFinite(value) || value === 0) return shortNumber(value);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return minus(value.toExponential(3).replace("e+", "e"));
  const text = value.toPrecision(5);
  return grouped(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

export function stepText(step: number): string {
  return Number.isNaN(step) ? "–" : exactNumber(step);
}
