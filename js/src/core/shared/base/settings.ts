// Settings of all views of a page: how many nodes are drawn at once, and whether things may move.

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
