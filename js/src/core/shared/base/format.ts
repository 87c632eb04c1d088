// Formatting of numbers, short with the exact value for a tooltip, and of hyperparameters.

import { minus, notFinite } from "../../words/numbers";
import type { Scalar } from "./schema";

export { counted, exactNumber } from "../../words/numbers";

const DECIMAL = ["", " k", " M", " G", " T", " P"];
const BINARY = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];

/** 25557032 → "25.6 M"; NaN and the infinities by their names. */
export function shortNumber(value: number): string {
  if (!Number.isFinite(value)) return notFinite(value);
  const size = Math.abs(value);
  if (size >= 1000) return scaled(value, 1000, DECIMAL);
  if (Number.isInteger(value) || size === 0) return minus(String(value));
  if (size < 1e-3) return minus(value.toExponential(2));
  return minus(trimmed(value.toPrecision(3)));
}

/** "8.2–64.1 k", with one unit where it is the same; of two equal numbers one. */
export function rangeText(least: number, most: number): string {
  const [from, to] = [shortNumber(least), shortNumber(most)];
  if (from === to) return to;
  const [amount, unit] = from.split(" ");
  return unit !== undefined && to.endsWith(` ${unit}`) ? `${amount}–${to}` : `${from} – ${to}`;
}

/** 102228128 → "97.5 MiB". */
export function shortBytes(value: number): string {
  if (!Number.isFinite(value)) return shortNumber(value);
  return scaled(value, 1024, BINARY);
}

/** Milliseconds as they are read: 0.0123 → "12.3 µs", 1234 → "1.23 s". */
function shortTime(ms: number): string {
  if (!Number.isFinite(ms) || ms === 0) return ms === 0 ? "0 ms" : shortNumber(ms);
  const [factor, unit] = ms >= 1000 ? [1e-3, "s"] : ms < 1 ? [1e3, "µs"] : [1, "ms"];
  return `${shortNumber(Number((ms * factor).toPrecision(3)))} ${unit}`;
}

/** The number a column holds for a node, as short text with its unit. */
export function shortColumn(column: string, value: number): string {
  if (column === "pruned") return `${shortNumber(100 * value)} %`; // a share
  if (isTime(column)) return shortTime(value);
  return isBytes(column) ? shortBytes(value) : shortNumber(value);
}

/** Whether a column has measured milliseconds. */
export function isTime(column: string): boolean {
  return column === "time" || column.startsWith("time_");
}

/** Whether a column counts bytes. */
export function isBytes(column: string): boolean {
  return column === "bytes" || column.endsWith("_bytes");
}

const END = 4; // letters
const SHORT = 6; // letters of a name that is cut at its end

/** What stays of a name that is cut: siblings differ there, as denseblock1 and denseblock2. "" of a short one. */
export function nameEnd(name: string): string {
  const letters = Array.from(name);
  return letters.length > SHORT ? letters.slice(-END).join("") : "";
}

function scaled(value: number, base: number, units: readonly string[]): string {
  let step = 0;
  let rest = value;
  if (Math.abs(value) >= base ** units.length) return minus(value.toExponential(2) + units[0]);
  // what would be shown decides: 999.96 k is shown as 1.00 M
  while (Math.abs(Number(threeDigits(rest))) >= base && step < units.length - 1) {
    rest /= base;
    step += 1;
  }
  return minus((step === 0 ? trimmed(rest.toPrecision(6)) : threeDigits(rest)) + units[step]);
}

function threeDigits(value: number): string {
  return Math.abs(value) < 99.95 ? value.toPrecision(3) : String(Math.round(value));
}

function trimmed(text: string): string {
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

// The hyper-parameters of a module in one short line.

const PAIRS = [
  ["in_channels", "out_channels"],
  ["in_features", "out_features"],
  ["num_embeddings", "embedding_dim"],
  ["input_size", "hidden_size"]
];
const SYMBOLS = new Map([
  ["kernel_size", "k"],
  ["stride", "s"],
  ["groups", "g"],
  ["dilation", "d"]
]);
// The ones that tell two layers of a class apart; the rest is in the side panel.
const NAMED = new Map([
  ["num_features", ""],
  ["normalized_shape", ""],
  ["num_channels", ""],
  ["num_groups", "groups "],
  ["embed_dim", ""],
  ["num_heads", "heads "],
  ["output_size", "→ "],
  ["p", "p "],
  ["dropout", "dropout "],
  ["num_layers", "layers "],
  ["negative_slope", "slope "],
  ["scale_factor", "× "],
  ["start_dim", "from "],
  ["dim", "dim "]
]);

/** "64 → 128 · k 3×3 · s 2" */
export function hyperLine(pairs: readonly (readonly [string, Scalar])[]): string {
  const values = new Map(pairs);
  const parts: string[] = [];
  for (const [from, to] of PAIRS) {
    if (values.has(from) && values.has(to)) {
      parts.push(`${plain(values.get(from))} → ${plain(values.get(to))}`);
    }
  }
  for (const [name, symbol] of SYMBOLS) {
    const text = plain(values.get(name));
    if (text !== "" && (text !== "1" || name === "kernel_size")) {
      parts.push(`${symbol} ${text}`);
    }
  }
  for (const [name, label] of NAMED) {
    const text = plain(values.get(name));
    if (text !== "" && parts.length < 3) {
      parts.push(label + text);
    }
  }
  return parts.slice(0, 4).join(" · ");
}

/** "(3, 3)" → "3×3", "(1, 1)" → "1" for a repeated one, other text as it is. */
function plain(value: Scalar | undefined): string {
  if (value === undefined || value === false) {
    return "";
  }
  const text = String(value);
  const items = /^[([]([\d,\s]*)[)\]]$/
    .exec(text)?.[1]
    .split(",")
    .map(item => item.trim());
  if (!items) {
    return text === "None" ? "" : text;
  }
  const sizes = items.filter(item => item !== "");
  return sizes.every(size => size === "1") ? "1" : sizes.join("×");
}
