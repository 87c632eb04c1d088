// What is written on a card, and how large the card is.

import { shortNumber } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";
import type { Scalar } from "../shared/schema";

export interface CardText {
  title: string; // class
  subtitle: string; // slot
  detail: string; // a few hyper-parameters, or what is inside
}

export const FONT = {
  family: 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
  title: 13,
  text: 11
};
export const CARD = { minWidth: 116, maxWidth: 236, padding: 14, short: 46, tall: 62, chevron: 18 };
const LONGEST = 120; // characters that are worth measuring

export type Measure = (text: string, size: number, bold: boolean) => number;

/** Widths from a canvas where there is one, else from an average letter. */
export function measurer(): Measure {
  const context = canvasContext();
  const known = new Map<string, number>();
  return (text, size, bold) => {
    const key = `${size}${bold ? "b" : ""}:${text}`;
    let width = known.get(key);
    if (width === undefined) {
      width = text.length * size * 0.56;
      if (context) {
        context.font = fontOf(size, bold);
        width = context.measureText(text).width;
      }
      known.set(key, width);
    }
    return width;
  };
}

export function canvasContext(): CanvasRenderingContext2D | null {
  // jsdom has no canvas, and says so loudly when it is asked
  return typeof CanvasRenderingContext2D === "undefined" ? null : document.createElement("canvas").getContext("2d");
}

export function fontOf(size: number, bold: boolean): string {
  return `${bold ? 600 : 400} ${size}px ${FONT.family}`;
}

/** One printable line of at most `LONGEST` characters. */
export function oneLine(text: string): string {
  const start = text.slice(0, LONGEST + 1).replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, "␣");
  return start.length > LONGEST ? `${start.slice(0, LONGEST)}…` : start;
}

/** Cut to `width` with an ellipsis. */
export function fitted(text: string, width: number, size: number, bold: boolean, measure: Measure): string {
  if (measure(text, size, bold) <= width) {
    return text;
  }
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (measure(`${text.slice(0, middle)}…`, size, bold) <= width) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return `${text.slice(0, low)}…`;
}

export function cardText(h: Hierarchy, node: number): CardText {
  return {
    title: oneLine(h.className(node)),
    subtitle: node === 0 ? "" : oneLine(h.name(node) || '""'),
    detail: oneLine(h.isContainer(node) ? inside(h, node) : hyperLine(h.hyper(node)))
  };
}

/** "4 modules · 1.2 M" */
function inside(h: Hierarchy, node: number): string {
  const count = h.children(node).length;
  const params = paramsText(h, node);
  return `${count} module${count === 1 ? "" : "s"}${params ? ` · ${params}` : ""}`;
}

/** Parameters as short text; "" without the column or without parameters. */
export function paramsText(h: Hierarchy, node: number): string {
  const params = h.column("params")?.[node] ?? 0;
  return params === 0 ? "" : shortNumber(params);
}

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

/** Width and height of a closed card. */
export function cardSize(text: CardText, badge: string, container: boolean, measure: Measure): [number, number] {
  const extra = (badge ? measure(badge, FONT.text, true) + 14 : 0) + (container ? CARD.chevron : 0);
  const widest = Math.max(
    measure(text.title, FONT.title, true) + extra,
    measure(text.subtitle, FONT.text, false),
    measure(text.detail, FONT.text, false)
  );
  const width = Math.min(CARD.maxWidth, Math.max(CARD.minWidth, Math.ceil(widest) + 2 * CARD.padding));
  return [width, text.detail && text.subtitle ? CARD.tall : CARD.short];
}
