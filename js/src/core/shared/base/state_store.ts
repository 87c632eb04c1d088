// State that the parts of one view share, with a list of listeners for each key.

type Listener = () => void;

export class StateStore<State extends object> {
  private readonly listeners = new Map<keyof State, Set<Listener>>();

  constructor(private readonly state: State) {}

  get<K extends keyof State>(key: K): State[K] {
    return this.state[key];
  }

  snapshot(): State {
    return { ...this.state };
  }

  /** Nobody is told when the value is equal to the one before. */
  set<K extends keyof State>(key: K, value: State[K]): void {
    if (isEqual(this.state[key], value)) return;
    this.state[key] = value;
    for (const listener of [...(this.listeners.get(key) ?? [])]) listener();
  }

  /** Returns the disposer. */
  on(keys: keyof State | readonly (keyof State)[], listener: Listener): () => void {
    const entry = () => listener(); // a wrapper, so that one function may listen twice
    const watched = Array.isArray(keys) ? (keys as readonly (keyof State)[]) : [keys as keyof State];
    for (const key of watched) {
      const listeners = this.listeners.get(key) ?? new Set<Listener>();
      this.listeners.set(key, listeners);
      listeners.add(entry);
    }
    return () => watched.forEach(key => this.listeners.get(key)?.delete(entry));
  }
}

/** Equality of values, one level deep for arrays, maps, sets and records. */
export function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) {
    return true;
  }
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) {
    return false;
  }
  const left = entries(a);
  const right = entries(b);
  return (
    left.length === right.length &&
    left.every(([key, value], i) => Object.is(key, right[i][0]) && Object.is(value, right[i][1]))
  );
}

function entries(value: object): [unknown, unknown][] {
  return value instanceof Map || value instanceof Set ? [...value.entries()] : Object.entries(value);
}
