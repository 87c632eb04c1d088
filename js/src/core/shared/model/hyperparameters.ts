// The hyper-parameters of a module in one short line.

import type { Scalar } from "../base/schema";

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
