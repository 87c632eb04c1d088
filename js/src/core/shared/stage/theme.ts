// Colors of the theme, and the hue of each family of modules.

import { PALETTE } from "../../../generated/palette";
import { contextOf } from "../base/canvas";
import { contrast } from "./color";
import type { Status } from "../payload/payload";

export interface Theme {
  canvas: string;
  ground: string; // behind the picture, as graph.css paints it
  surface: string; // cards
  text: string;
  muted: string; // on a surface; elsewhere see quiet()
  border: string;
  accent: string;
  edge: string;
  axis: string; // members of the chosen axis
  dark: boolean;
  frame(depth: number): string;
  quiet(ground: string): string; // muted text that can be read on that ground
}

const READABLE = 4.5;
const VISIBLE = 3; // contrast of lines to what they run over
const MAX_DEPTH = 4; // frames within each other that have grounds of their own
type Token = "surface" | "text" | "muted" | "border" | "accent";

/** What the CSS variables of `element` say now; graph.css maps JupyterLab's onto them. */
export function readTheme(element: HTMLElement): Theme {
  const style = getComputedStyle(element);
  const read = (token: Token) => normalised(style.getPropertyValue(`--mkg-${token}`), PALETTE.page[token]);
  const surface = opaque(read("surface"), "#ffffff");
  const text = opaque(read("text"), surface);
  const dark = brightness(surface) < brightness(text);
  const muted = opaque(read("muted"), surface);
  const inks = new Map<string, string>();
  const canvas = dark ? mix(surface, "#000000", 0.28) : mix(surface, text, 0.035);
  const ground = mix(surface, text, 0.035);
  const frame = (depth: number) => mix(canvas, text, 0.025 + 0.02 * Math.min(depth, MAX_DEPTH));
  return {
    canvas,
    ground,
    surface,
    text,
    muted,
    border: stronger(mix(surface, text, 0.26), opaque(read("border"), surface), surface),
    accent: opaque(read("accent"), surface),
    edge: [ground, frame(MAX_DEPTH)].reduce(
      (ink, under) => readable(ink, text, under, VISIBLE),
      mix(canvas, text, 0.48)
    ),
    axis: dark ? mix(AXIS, "#ffffff", 0.15) : mix(AXIS, "#000000", 0.1),
    dark,
    frame,
    quiet: ground => {
      const ink = inks.get(ground) ?? readable(muted, text, ground);
      inks.set(ground, ink);
      return ink;
    }
  };
}

export const AXIS = PALETTE.axis;

type Rgba = [number, number, number, number];

/** A CSS color as the browser writes it, "#rrggbb" or "rgba(…)". */
function normalised(value: string, fallback: string): string {
  const context = contextOf(document.createElement("canvas"));
  const trimmed = value.trim();
  if (!context || trimmed === "") {
    return trimmed.startsWith("#") ? trimmed : fallback;
  }
  context.fillStyle = fallback;
  context.fillStyle = trimmed; // ignored when it is no color
  return String(context.fillStyle);
}

function channels(color: string): Rgba {
  const hex = /^#([\da-f]{6})/i.exec(color)?.[1];
  if (hex) {
    const value = Number.parseInt(hex, 16);
    return [value >> 16, (value >> 8) & 255, value & 255, 1];
  }
  const [red = 0, green = 0, blue = 0, alpha = 1] = color.match(/[\d.]+/g)?.map(Number) ?? [];
  return [red, green, blue, alpha];
}

/** `share` of `top` over `base`. */
export function mix(base: string, top: string, share: number): string {
  const [a, b] = [channels(base), channels(top)];
  const mixed = [0, 1, 2].map(i => Math.round(a[i] + (b[i] - a[i]) * share));
  return `#${mixed.map(channel => channel.toString(16).padStart(2, "0")).join("")}`;
}

/** The color, moved towards `end` until it can be read. */
export function readable(color: string, end: string, ground: string, least = READABLE): string {
  for (let share = 0; share < 1; share += 0.1) {
    const moved = mix(color, end, share);
    if (contrast(moved, ground) >= least) return moved;
  }
  return end;
}

function opaque(color: string, base: string): string {
  return mix(base, color, channels(color)[3]);
}

/** The one that stands out more; themes of high contrast have lines that do. */
function stronger(one: string, other: string, ground: string): string {
  const distance = (color: string) => Math.abs(brightness(color) - brightness(ground));
  return distance(other) > distance(one) ? other : one;
}

function brightness(color: string): number {
  const [red, green, blue] = channels(color);
  return 0.3 * red + 0.59 * green + 0.11 * blue;
}

const FAMILIES = PALETTE.families.map(([pattern, color]) => [new RegExp(pattern, "i"), color] as const);

/** The hue of a card's edge: what sort of module it is. The name always says it too. */
export function familyColor(className: string, container: boolean): string {
  if (container && !/attention/i.test(className)) {
    return PALETTE.container; // "ConvBlock" is no convolution; attention is what its name says, whatever it holds
  }
  return FAMILIES.find(([pattern]) => pattern.test(className))?.[1] ?? PALETTE.other_family;
}

export const STATUS_STYLE: Readonly<Record<Status, { color: string; glyph: string; label: string }>> = {
  same: { color: PALETTE.status.same, glyph: "=", label: "same" },
  renamed: { color: PALETTE.status.renamed, glyph: "Aa", label: "renamed" },
  moved: { color: PALETTE.status.moved, glyph: "⇄", label: "moved" },
  changed: { color: PALETTE.status.changed, glyph: "≠", label: "changed" },
  added: { color: PALETTE.status.added, glyph: "+", label: "added" },
  removed: { color: PALETTE.status.removed, glyph: "−", label: "removed" }
};

/** Of a container that differs by what is inside it alone: no place of its own, so it has no color of one. */
export const INSIDE_GLYPH = "⋯";

/** Calls back after every change of JupyterLab's theme or of the system's colors. Returns the disposer. */
export function watchTheme(changed: () => void): () => void {
  let frame = 0;
  const later = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(changed); // style sheets apply with the next frame
  };
  const observer = new MutationObserver(later);
  const attributeFilter = ["data-jp-theme-name", "data-jp-theme-light", "class", "style"];
  observer.observe(document.body, { attributes: true, attributeFilter });
  observer.observe(document.documentElement, { attributes: true, attributeFilter });
  const queries = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "(prefers-contrast: more)"]
    .filter(() => typeof matchMedia === "function")
    .map(query => matchMedia(query));
  queries.forEach(query => query.addEventListener("change", later));
  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
    queries.forEach(query => query.removeEventListener("change", later));
  };
}
