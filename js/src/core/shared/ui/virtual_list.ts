// Rows of one height in an element that scrolls: only those near the view are in the page, and the focus is never lost.

import { Disposers, el, listen, onResize } from "./dom";

interface RowSource<Key> {
  count(): number;
  /** What keeps its element while rows come and go around it. */
  key(index: number): Key;
  make(index: number): HTMLElement;
  /** Every time that the row is in view; `index` may be another than before. */
  draw(row: HTMLElement, index: number): void;
  /** The row that Tab reaches: it always is in the page. */
  active(): number;
}

interface ListOptions {
  readonly rowHeight: number; // pixels
  readonly overscan: number; // rows above and below those in view
  readonly assumed: number; // rows in view of a list that has no size
  readonly all?: number; // up to so many, every row is in the page
  readonly below?: number; // room after the last row, in rows
}

export class VirtualList<Key> {
  readonly space = el("div"); // as high as all rows
  private readonly rows = new Map<Key, HTMLElement>();
  private readonly keys = new WeakMap<Element, Key>();
  private readonly disposers = new Disposers();
  private unseen: (() => void) | null = null; // what could not be shown without a size
  private isScheduled = false;
  private isDisposed = false;

  constructor(
    private readonly scroller: HTMLElement,
    private readonly options: ListOptions,
    private readonly source: RowSource<Key>
  ) {
    scroller.append(this.space);
    this.disposers.add(listen(scroller, "scroll", () => this.render()));
    this.disposers.add(onResize(scroller, () => this.resized()));
  }

  dispose(): void {
    this.isDisposed = true;
    this.disposers.dispose();
  }

  /** How many rows the keys for pages move. */
  get page(): number {
    return Math.max(1, Math.floor(this.scroller.clientHeight / this.options.rowHeight) - 1);
  }

  /** The row of a key, as far as it is in the page. */
  element(key: Key): HTMLElement | undefined {
    return this.rows.get(key);
  }

  /** The key of the row that an event comes from. */
  keyAt(target: EventTarget | null): Key | undefined {
    for (let at = target instanceof Element ? target : null; at && at !== this.space; at = at.parentElement) {
      if (this.keys.has(at)) return this.keys.get(at);
    }
    return undefined;
  }

  focus(key: Key): void {
    this.rows.get(key)?.focus({ preventScroll: true });
  }

  /** All rows are made anew. */
  forget(): void {
    this.rows.forEach(row => row.remove());
    this.rows.clear();
  }

  /** Several changes in one task are drawn once. */
  schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    queueMicrotask(() => {
      this.isScheduled = false;
      if (!this.isDisposed) this.render();
    });
  }

  /**
   * A row that is nearer to an edge than `least` rows comes to `margin` rows from it; without a size, once there is one.
   * Returns whether the list has been scrolled for it.
   */
  show(index: number, margin = 0, least = margin): boolean {
    const { scroller } = this;
    const { rowHeight } = this.options;
    const height = scroller.clientHeight;
    this.unseen = height > 0 ? null : () => this.show(index, margin, least);
    if (height === 0) return false;
    const top = index * rowHeight;
    const fits = height > (2 * margin + 2) * rowHeight;
    const [around, enough] = fits ? [margin * rowHeight, least * rowHeight] : [0, 0];
    const { scrollTop } = scroller;
    if (top - enough < scrollTop) scroller.scrollTop = Math.max(0, top - around);
    else if (top + rowHeight + enough > scrollTop + height) scroller.scrollTop = top + rowHeight + around - height;
    else return false;
    return true;
  }

  render(): void {
    const { rowHeight, below = 0 } = this.options;
    const hadFocus = this.scroller.contains(document.activeElement);
    this.space.style.height = `${(this.source.count() + below) * rowHeight}px`;
    const wanted = this.window();
    this.removeOthers(new Set(wanted.map(index => this.source.key(index))));
    let next = this.space.firstElementChild;
    for (const index of wanted) {
      const row = this.row(index);
      row.style.top = `${index * rowHeight}px`;
      this.source.draw(row, index);
      if (row === next) next = next.nextElementSibling;
      else this.space.insertBefore(row, next);
    }
    const active = this.source.active();
    const row = active < this.source.count() ? this.rows.get(this.source.key(active)) : undefined;
    if (hadFocus && row && document.activeElement !== row) row.focus({ preventScroll: true });
  }

  private resized(): void {
    this.unseen?.();
    this.render();
  }

  private row(index: number): HTMLElement {
    const key = this.source.key(index);
    let row = this.rows.get(key);
    if (!row) {
      row = this.source.make(index);
      this.rows.set(key, row);
      this.keys.set(row, key);
    }
    return row;
  }

  private removeOthers(keep: ReadonlySet<Key>): void {
    for (const [key, row] of this.rows) {
      if (keep.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
  }

  /** Indices of the rows that have to be in the page. */
  private window(): number[] {
    const { rowHeight, overscan, assumed, all = 0 } = this.options;
    const count = this.source.count();
    if (count <= all) return Array.from({ length: count }, (_, index) => index);
    const { scrollTop, clientHeight } = this.scroller;
    const height = clientHeight || rowHeight * assumed;
    const first = Math.max(0, Math.floor(scrollTop / rowHeight) - overscan);
    const end = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + overscan);
    const indices = Array.from({ length: Math.max(0, end - first) }, (_, offset) => first + offset);
    const active = this.source.active();
    if (active >= 0 && active < first) indices.unshift(active);
    else if (active >= end && active < count) indices.push(active);
    return indices;
  }
}
