// Settings of all views of a page: how many nodes are drawn at once, whether things may move, and what the browser remembers.

import { StateStore } from "./state_store";

interface NodeLimits {
  readonly notice: number; // above it, a notice
  readonly refusal: number; // above it, a refusal with an offer to fold
}

interface Settings {
  limits: NodeLimits;
  reducedMotion: boolean; // whatever the system says
}

export const DEFAULT_LIMITS: NodeLimits = { notice: 150, refusal: 500 };

const settings = new StateStore<Settings>({ limits: DEFAULT_LIMITS, reducedMotion: false });

export const nodeLimits = (): NodeLimits => settings.get("limits");

/** Open views follow at once. A limit of refusal below that of the notice is raised to it. */
export function applySettings({ limits, reducedMotion }: Partial<Settings>): void {
  if (limits) settings.set("limits", { ...limits, refusal: Math.max(limits.notice, limits.refusal) });
  if (reducedMotion !== undefined) settings.set("reducedMotion", reducedMotion);
}

/** Returns the disposer. */
export const onSettings = (listener: () => void): (() => void) => settings.on(["limits", "reducedMotion"], listener);

/** Whether the system or the settings ask for less motion. */
export function isMotionReduced(): boolean {
  const isAsked = settings.get("reducedMotion");
  return isAsked || (typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches);
}

// What the user has arranged, which the browser keeps where it may: a page that may not has it as long as it is open.

const STORE = "modulekg-widgets:";
const known = new Map<string, unknown>();

export function remember(key: string, value: number | boolean): void {
  known.set(key, value);
  try {
    localStorage.setItem(STORE + key, JSON.stringify(value));
  } catch {
    // a page without storage
  }
}

/** Undefined where nothing is known. */
export function remembered(key: string): unknown {
  if (!known.has(key)) {
    try {
      known.set(key, JSON.parse(localStorage.getItem(STORE + key) ?? "null") ?? undefined);
    } catch {
      known.set(key, undefined);
    }
  }
  return known.get(key);
}

/** For tests. */
export function forgetAll(): void {
  known.clear();
}
