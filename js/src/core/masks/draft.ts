// The draft that all views of a model share: what the kernel knows, what it has not confirmed, and the open gesture.

import { bit, BitTable, bytesFor, difference, ones, setBit, trimAxis } from "./bits";

/** New content of some bytes of an axis, and what was there before. */
export interface Patch {
  readonly axis: number;
  readonly start: number; // within the axis
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

/** Bytes of axes that were sent, or came. */
export interface Edit {
  readonly id: string;
  readonly patches: readonly Pick<Patch, "axis" | "start" | "after">[];
}

type Listener = (axes: ReadonlySet<number>) => void;

export class Draft {
  readonly bits: Uint8Array;
  readonly table: BitTable;
  private readonly known: Uint8Array; // to the kernel
  private readonly gone: number[]; // of each axis
  private readonly listeners = new Set<Listener>();
  private waiting: Edit[] = []; // sent, and not confirmed
  private gesture: Map<number, Uint8Array> | null = null; // axis -> its bytes before

  /** `strongest` tells which index of an axis is never the last to go. */
  constructor(
    readonly sizes: readonly number[],
    bits: Uint8Array | null,
    private readonly strongest: (axis: number) => number
  ) {
    this.table = new BitTable(sizes);
    const isWhole = bits?.length === this.table.total;
    this.known = this.table.trim(isWhole && bits ? bits : new Uint8Array(this.table.total));
    this.bits = this.known.slice();
    this.gone = sizes.map((_, axis) => ones(this.table.of(this.bits, axis)));
  }

  goes(axis: number, index: number): boolean {
    return bit(this.table.of(this.bits, axis), index);
  }

  /** The bits of one axis, to be read only. */
  bitsOf(axis: number): Uint8Array {
    return this.table.of(this.bits, axis);
  }

  /** How many indices of an axis go. */
  dropped(axis: number): number {
    return this.gone[axis];
  }

  kept(axis: number): number {
    return this.sizes[axis] - this.gone[axis];
  }

  get isOpen(): boolean {
    return this.gesture !== null;
  }

  get pending(): readonly Edit[] {
    return this.waiting;
  }

  /** Returns the disposer; the listener is told of every change at once. */
  onChange(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  // ------------------------------------------------------------- gestures

  begin(): void {
    this.gesture ??= new Map();
  }

  set(axis: number, indices: Iterable<number>, goes: boolean): void {
    this.change(axis, bytes => {
      for (const index of indices) setBit(bytes, index, goes);
    });
  }

  /** The first `count` of `order` go, the others stay. */
  dropFirst(axis: number, order: Uint32Array, count: number): void {
    this.change(axis, bytes => {
      bytes.fill(0);
      for (let at = 0; at < count; at += 1) setBit(bytes, order[at], true);
    });
  }

  /** Where `mask` has a 1, the bits become those of `values`. */
  write(axis: number, start: number, mask: Uint8Array, values: Uint8Array): void {
    this.change(axis, bytes => {
      mask.forEach((own, at) => {
        bytes[start + at] = (bytes[start + at] & ~own) | (values[at] & own);
      });
    });
  }

  /** What the gesture has changed; the draft goes on with it. */
  commit(): Patch[] {
    const touched = this.gesture ?? new Map<number, Uint8Array>();
    this.gesture = null;
    const patches: Patch[] = [];
    for (const [axis, before] of [...touched].sort(([a], [b]) => a - b)) {
      const after = this.table.of(this.bits, axis);
      const range = difference(before, after);
      if (range) patches.push({ axis, start: range[0], before: before.slice(...range), after: after.slice(...range) });
    }
    return patches;
  }

  /** As it was before the gesture. */
  cancel(): void {
    const touched = this.gesture ?? new Map<number, Uint8Array>();
    this.gesture = null;
    for (const [axis, before] of touched) {
      this.table.of(this.bits, axis).set(before);
      this.gone[axis] = ones(before);
    }
    this.tell(touched.keys());
  }

  private change(axis: number, act: (bytes: Uint8Array) => void): void {
    const bytes = this.table.of(this.bits, axis);
    if (this.gesture && !this.gesture.has(axis)) this.gesture.set(axis, bytes.slice());
    act(bytes);
    this.keepOne(axis);
    this.tell([axis]);
  }

  /** An axis never loses all. */
  private keepOne(axis: number): void {
    const bytes = this.table.of(this.bits, axis);
    const size = this.sizes[axis];
    trimAxis(bytes, size);
    if (ones(bytes) === size) setBit(bytes, this.strongest(axis), false);
    this.gone[axis] = ones(bytes);
  }

  // --------------------------------------------------------------- kernel

  /** An edit is on its way. */
  send(edit: Edit): void {
    this.waiting.push(edit);
  }

  /** The kernel has these bytes now; an edit of ours is confirmed by that. */
  apply({ id, patches }: Edit): void {
    const axes = new Set(this.forget(id)); // they may have come out otherwise than they were sent
    for (const { axis, start, after } of patches) {
      if (start + after.length > this.table.length(axis)) continue;
      this.table.of(this.known, axis).set(after, start);
      axes.add(axis);
    }
    this.rebuild(axes);
  }

  /** The kernel has these bytes; `refused` is an edit of ours that it does not take. */
  replace(bits: Uint8Array, refused: string | null): boolean {
    if (bits.length !== this.table.total) return false;
    this.known.set(this.table.trim(bits));
    if (refused !== null) this.forget(refused);
    this.rebuild(this.sizes.keys());
    return true;
  }

  /** The axes of an edit that is not waited for any more. */
  private forget(id: string): number[] {
    const known = this.waiting.filter(edit => edit.id === id);
    this.waiting = this.waiting.filter(edit => edit.id !== id);
    return known.flatMap(({ patches }) => patches.map(({ axis }) => axis));
  }

  /** These axes as the kernel knows them, with what it has not confirmed and what the open gesture did on top. */
  private rebuild(axes: Iterable<number>): void {
    const wanted = new Set(axes);
    for (const axis of wanted) {
      const bytes = this.table.of(this.bits, axis);
      const fresh = this.table.of(this.known, axis).slice();
      for (const { patches } of this.waiting)
        for (const { axis: own, start, after } of patches) if (own === axis) fresh.set(after, start);
      const before = this.gesture?.get(axis);
      if (before) {
        this.gesture?.set(axis, fresh.slice());
        bytes.forEach((now, at) => {
          const own = now ^ before[at];
          fresh[at] = (fresh[at] & ~own) | (now & own);
        });
      }
      bytes.set(fresh);
      this.keepOne(axis);
    }
    this.tell(wanted);
  }

  private tell(axes: Iterable<number>): void {
    const changed = new Set(axes);
    if (changed.size) for (const listener of [...this.listeners]) listener(changed);
  }
}

/** The edits' bytes one after the other, and where each belongs. */
export function packed({ id, patches }: Edit): { content: Record<string, unknown>; buffer: Uint8Array } {
  const buffer = new Uint8Array(patches.reduce((total, { after }) => total + after.length, 0));
  let at = 0;
  for (const { after } of patches) {
    buffer.set(after, at);
    at += after.length;
  }
  const edits = patches.map(({ axis, start, after }) => [axis, start, after.length]);
  return { content: { type: "edit", id, edits }, buffer };
}

/** What `packed` made; null when it does not fit these axes. */
export function unpacked(id: string, edits: unknown, buffer: Uint8Array | null, sizes: readonly number[]): Edit | null {
  if (!Array.isArray(edits) || !buffer) return null;
  const patches: { axis: number; start: number; after: Uint8Array }[] = [];
  let at = 0;
  for (const edit of edits as unknown[]) {
    if (!Array.isArray(edit) || !edit.every(Number.isInteger)) return null;
    const [axis, start, length] = edit as number[];
    const isInside = axis >= 0 && axis < sizes.length && start >= 0 && length >= 0;
    if (!isInside || start + length > bytesFor(sizes[axis]) || at + length > buffer.length) return null;
    patches.push({ axis, start, after: buffer.slice(at, at + length) });
    at += length;
  }
  return { id, patches };
}
