// Preferences of people for all views of a page: how much is drawn at once, and whether things may move.

interface Limits {
  readonly soft: number; // nodes; above it, a notice
  readonly hard: number; // nodes; above it, a refusal with an offer to fold
}

export const DEFAULT_LIMITS: Limits = { soft: 150, hard: 500 };

interface Preferences {
  readonly limits: Limits;
  readonly calm: boolean; // less motion, whatever the system says
}

type Listener = () => void;

let current: Preferences = { limits: DEFAULT_LIMITS, calm: false };
const listeners = new Set<Listener>();

export const preferences = (): Preferences => current;

/** Open views follow at once. A hard limit below the soft one is raised to it. */
export function setPreferences(changed: Partial<Preferences>): void {
  const { limits, calm } = { ...current, ...changed };
  current = { limits: { soft: limits.soft, hard: Math.max(limits.soft, limits.hard) }, calm };
  for (const listener of [...listeners]) {
    listener();
  }
}

/** Returns the disposer. */
export function onPreferences(listener: Listener): () => void {
  const entry = () => listener();
  listeners.add(entry);
  return () => void listeners.delete(entry);
}

/** Whether things shall not move: the system says so, or the settings. */
export function isCalm(): boolean {
  return current.calm || (typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches);
}
