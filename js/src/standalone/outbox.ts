// Messages to a kernel that is reached over a host: in order, one lot at a time, and no more than it takes.

// Binary values apart from the rest of a message, and back in their places.

type Path = readonly (string | number)[];

interface Split {
  readonly state: Record<string, unknown>; // without the binary values
  readonly buffer_paths: readonly Path[];
  readonly buffers: readonly DataView[];
}

function viewOf(value: unknown): DataView | null {
  if (value instanceof ArrayBuffer) return new DataView(value);
  return ArrayBuffer.isView(value) ? new DataView(value.buffer, value.byteOffset, value.byteLength) : null;
}

export const viewsOf = (values: unknown): DataView[] =>
  Array.isArray(values) ? values.map(viewOf).filter(view => view !== null) : [];

function withoutBuffers(state: Record<string, unknown>): Split {
  const [paths, buffers]: [Path[], DataView[]] = [[], []];
  const taken = (value: unknown, path: Path): unknown => {
    const view = viewOf(value);
    if (view) {
      paths.push(path);
      buffers.push(view);
      return null;
    }
    if (Array.isArray(value)) return value.map((item, at) => taken(item, [...path, at]));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, taken(item, [...path, key])]));
  };
  return { state: taken(state, []) as Record<string, unknown>, buffer_paths: paths, buffers };
}

/** Puts each buffer at its path in `state`, which is changed. */
export function putBuffers(state: object, paths: readonly Path[], buffers: readonly DataView[]): void {
  for (const [at, path] of paths.entries()) {
    let place = state as Record<string | number, unknown>;
    for (const step of path.slice(0, -1)) place = place[step] as typeof place;
    place[path[path.length - 1]] = buffers[at];
  }
}

/** A message as it travels: the change of a state, or a content of its own; `buffers` counts those that are its. */
interface Sent {
  readonly id: string;
  readonly method: "update" | "custom";
  readonly state?: Record<string, unknown>;
  readonly buffer_paths?: readonly (readonly (string | number)[])[];
  readonly content?: unknown;
  readonly buffers: number;
}

export interface Batch {
  readonly kind: "messages";
  readonly page: string;
  readonly number: number;
  readonly messages: readonly Sent[];
}

interface Waiting {
  readonly id: string;
  state?: Record<string, unknown>;
  readonly content?: unknown;
  readonly buffers?: readonly DataView[];
  readonly taken?: () => void;
}

export class Outbox {
  private waiting: Waiting[] = [];
  private underWay: Waiting[] = [];
  private number = 0;
  /** By widget and trait: the lot whose echo is the first that counts again. */
  private readonly expected = new Map<string, number>();

  constructor(
    private readonly page: string,
    private readonly send: (lot: Batch, buffers: readonly DataView[]) => void
  ) {}

  /** What waits anyway goes as one change. */
  update(id: string, state: Record<string, unknown>): void {
    const last = this.waiting[this.waiting.length - 1];
    if (last?.id === id && last.state) last.state = { ...last.state, ...state };
    else this.waiting.push({ id, state });
    this.flush();
  }

  custom(id: string, content: unknown, buffers: readonly DataView[], taken?: () => void): void {
    this.waiting.push({ id, content, buffers, taken });
    this.flush();
  }

  /** The kernel is done with a lot; whether anything in it changed a state. */
  done(number: unknown): boolean {
    if (number !== this.number || this.underWay.length === 0) return false;
    const lot = this.underWay;
    this.underWay = [];
    this.flush();
    for (const { taken } of lot) taken?.();
    return lot.some(({ state }) => state !== undefined);
  }

  /** Of what the kernel has heard from a page, what counts here: an older value is no news to whoever has set a newer one. */
  news(id: string, echo: Record<string, unknown>, page: unknown, number: unknown): Record<string, unknown> {
    const counts = ([name]: [string, unknown]): boolean => {
      const key = keyOf(id, name);
      const expected = this.expected.get(key);
      if (expected === undefined) return true;
      if (page !== this.page || number !== expected) return false;
      this.expected.delete(key);
      return !this.waiting.some(one => one.id === id && one.state && name in one.state);
    };
    return Object.fromEntries(Object.entries(echo).filter(counts));
  }

  private flush(): void {
    if (this.underWay.length || !this.waiting.length) return;
    this.number += 1;
    this.underWay = this.waiting;
    this.waiting = [];
    const buffers: DataView[] = [];
    const messages = this.underWay.map(one => this.packed(one, buffers));
    this.send({ kind: "messages", page: this.page, number: this.number, messages }, buffers);
  }

  private packed({ id, state, content, buffers = [] }: Waiting, all: DataView[]): Sent {
    if (!state) {
      all.push(...buffers);
      return { id, method: "custom", content, buffers: buffers.length };
    }
    for (const name of Object.keys(state)) this.expected.set(keyOf(id, name), this.number);
    const split = withoutBuffers(state);
    all.push(...split.buffers);
    const { buffer_paths } = split;
    return { id, method: "update", state: split.state, buffer_paths, buffers: split.buffers.length };
  }
}

const keyOf = (id: string, name: string): string => `${id} ${name}`;
