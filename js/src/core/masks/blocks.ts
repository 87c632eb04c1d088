// The residual blocks that can go as a whole, and which of them go by the draft: those that are removed, and those that
// lie in one of these.

import type { Draft } from "./draft";
import type { MaskPayload } from "./payload";

export class Blocks {
  /** The removed ones, without those that lie in another one of them. */
  removed: readonly number[] = [];
  gone: ReadonlySet<number> = new Set();
  private readonly byPath: ReadonlyMap<string, number>;

  constructor(private readonly payload: MaskPayload) {
    this.byPath = new Map(payload.blocks.path.map((path, block) => [path, block]));
  }

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

  at(path: string): number | undefined {
    return this.byPath.get(path);
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
      draft.goes(this.entry, block)
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
