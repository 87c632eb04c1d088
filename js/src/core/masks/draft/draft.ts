// The draft that all views of a model share: what is removed, with blocks as one more axis behind the last, and the open gesture.

import { bit, BitTable, difference, ones, setBit, trimAxis } from "./bit_table";
import type { MaskPayload } from "./payload";

/** New content of some bytes of an axis, and what was there before. */
interface Patch {
  readonly axis: number;
  readonly start: number; // within the axis
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

type Listener = (axes: ReadonlySet<number>) => void;

export class Draft {
  readonly bits: Uint8Array;
  readonly table: BitTable;
  readonly known: Uint8Array; // to the kernel
  private readonly gone: number[]; // of each axis
  private readonly listeners = new Set<Listener>();
  private gesture: Map<number, Uint8Array> | null = null; // axis -> its bytes before

  /** `strongest` tells which index of an axis is never the last to go; -1: all of them may. */
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

  isRemoved(axis: number, index: number): boolean {
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

  remaining(axis: number): number {
    return this.sizes[axis] - this.gone[axis];
  }

  get isOpen(): boolean {
    return this.gesture !== null;
  }

  /** Whether the kernel has all that is drawn here. */
  get isKnown(): boolean {
    return difference(this.bits, this.known) === null;
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

  /** Where `which` has a 1, the bits become those of `values`. */
  write(axis: number, start: number, which: Uint8Array, values: Uint8Array): void {
    this.change(axis, bytes => {
      which.forEach((own, at) => {
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
    const strongest = ones(bytes) === size ? this.strongest(axis) : -1;
    if (strongest >= 0) setBit(bytes, strongest, false);
    this.gone[axis] = ones(bytes);
  }

  // --------------------------------------------------------------- kernel

  /** The kernel has these bits, which were drawn here; what has been drawn since stays. */
  confirm(bits: Uint8Array): void {
    this.known.set(bits);
  }

  /** The kernel has these bits, which others have drawn: what is only ours goes on top, bit by bit. */
  merge(bits: Uint8Array): void {
    for (const axis of this.sizes.keys()) {
      const [fresh, known] = [this.table.of(bits, axis), this.table.of(this.known, axis)];
      for (const bytes of [this.table.of(this.bits, axis), this.gesture?.get(axis)])
        bytes?.forEach((now, at) => {
          const own = now ^ known[at];
          bytes[at] = (fresh[at] & ~own) | (now & own);
        });
      this.keepOne(axis);
    }
    this.known.set(bits);
    this.tell(this.sizes.keys());
  }

  /** What the kernel does not have is given up; an open gesture goes on from there. */
  revert(): void {
    this.bits.set(this.known);
    for (const axis of this.gesture?.keys() ?? []) this.gesture?.set(axis, this.table.of(this.known, axis).slice());
    this.sizes.forEach((_, axis) => (this.gone[axis] = ones(this.table.of(this.bits, axis))));
    this.tell(this.sizes.keys());
  }

  private tell(axes: Iterable<number>): void {
    const changed = new Set(axes);
    if (changed.size) for (const listener of [...this.listeners]) listener(changed);
  }
}

// Steps that can be taken back and made again: of each the bits that it changed, so that what others draw stays.

export interface Step {
  readonly parts: readonly Part[];
}

interface Part {
  readonly axis: number;
  readonly start: number;
  readonly changed: Uint8Array; // the bits that did
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const MAX_STEPS = 500;

export function stepOf(patches: readonly Patch[]): Step {
  const parts = patches.map(({ axis, start, before, after }) => ({
    axis,
    start,
    changed: before.map((old, at) => old ^ after[at]),
    before,
    after
  }));
  return { parts };
}

export class History {
  private done: Step[] = [];
  private undone: Step[] = [];

  get canUndo(): boolean {
    return this.done.length > 0;
  }

  get canRedo(): boolean {
    return this.undone.length > 0;
  }

  /** A new step: what was taken back before it cannot be made again. */
  add(step: Step): void {
    this.done.push(step);
    if (this.done.length > MAX_STEPS) this.done.shift();
    this.undone = [];
  }

  /** The step that is next to be taken back, or made again. */
  peek(way: "undo" | "redo"): Step | undefined {
    const steps = way === "undo" ? this.done : this.undone;
    return steps[steps.length - 1];
  }

  /** The next step was taken back, or made again. */
  move(way: "undo" | "redo"): void {
    const [from, to] = way === "undo" ? [this.done, this.undone] : [this.undone, this.done];
    const step = from.pop();
    if (step) to.push(step);
  }

  /** The latest steps are not in the draft any more, as `has` tells: nothing is left of them to take back. */
  drop(has: (step: Step) => boolean): void {
    while (this.done.length && !has(this.done[this.done.length - 1])) this.done.pop();
    this.undone = [];
  }
}

// The residual blocks that can go as a whole, and which of them go by the draft: those that are removed, and those that
// lie in one of these.

export class Blocks {
  /** The removed ones, without those that lie in another one of them. */
  removed: readonly number[] = [];
  gone: ReadonlySet<number> = new Set();

  constructor(private readonly payload: MaskPayload) {}

  get table(): MaskPayload["blocks"] {
    return this.payload.blocks;
  }

  get count(): number {
    return this.table.path.length;
  }

  /** Where a draft has their bits: behind those of the axes. */
  get entry(): number {
    return this.payload.axes.size.length;
  }

  /** The blocks that one lies in, inner ones first. */
  *around(block: number): Generator<number> {
    const { within } = this.table;
    for (let outer = within[block]; outer >= 0; outer = within[outer]) yield outer;
  }

  /** The removed block that one lies in, with which it goes; -1 where there is none. */
  goesWith(block: number): number {
    return [...this.around(block)].find(outer => this.removed.includes(outer)) ?? -1;
  }

  /** The block with which an axis goes; -1 while it stays. */
  takes(axis: number): number {
    const block = this.table.of_axes[axis] ?? -1;
    if (!this.gone.has(block)) return -1;
    return this.removed.includes(block) ? block : this.goesWith(block);
  }

  follow(draft: Draft): void {
    const marked = Array.from({ length: this.count }, (_, block) => block).filter(block =>
      draft.isRemoved(this.entry, block)
    );
    const own = new Set(marked);
    const isInner = (block: number) => [...this.around(block)].some(outer => own.has(outer));
    this.removed = marked.filter(block => !isInner(block));
    this.gone = new Set([...this.table.path.keys()].filter(block => own.has(block) || isInner(block)));
  }
}

/** How many bits each entry of a draft has: the axes and, where there are some, the blocks. */
export function entrySizes({ axes, blocks }: MaskPayload): number[] {
  return blocks.path.length ? [...axes.size, blocks.path.length] : [...axes.size];
}
