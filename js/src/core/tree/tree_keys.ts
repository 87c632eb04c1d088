// The keyboard of the tree: the WAI-ARIA tree pattern, where selection follows focus.

import type { Hierarchy } from "../shared/hierarchy";
import type { TreeRow } from "./rows";

/** What the keyboard needs of the tree. */
export interface KeyTarget {
  readonly rows: readonly TreeRow[];
  readonly activeIndex: number;
  readonly page: number;
  choose(index: number): void;
  toggle(row: TreeRow): void;
}

const PAUSE = 500; // ms after which type-ahead starts over

export class TreeKeys {
  private typed = "";
  private typedAt = 0;
  private readonly actions: ReadonlyMap<string, (index: number, row: TreeRow) => void>;

  constructor(
    private readonly target: KeyTarget,
    private readonly h: Hierarchy
  ) {
    this.actions = new Map([
      ["ArrowDown", (index: number) => target.choose(index + 1)],
      ["ArrowUp", (index: number) => target.choose(index - 1)],
      ["PageDown", (index: number) => target.choose(index + target.page)],
      ["PageUp", (index: number) => target.choose(index - target.page)],
      ["Home", () => target.choose(0)],
      ["End", () => target.choose(target.rows.length - 1)],
      ["ArrowRight", (index: number, row: TreeRow) => this.inwards(index, row)],
      ["ArrowLeft", (index: number, row: TreeRow) => this.outwards(index, row)],
      ["Enter", (_index: number, row: TreeRow) => target.toggle(row)],
      [" ", (index: number) => target.choose(index)]
    ]);
  }

  handle(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = this.target.activeIndex;
    const action = this.actions.get(event.key);
    const typing = event.key === " " && this.isTyping(event.timeStamp);
    if (action && !typing) action(index, this.target.rows[index]);
    else if (event.key.length !== 1 || event.key === "/")
      return; // "/" goes on to the search box
    else this.typeAhead(event.key, event.timeStamp, index);
    event.preventDefault();
    event.stopPropagation();
  }

  private inwards(index: number, row: TreeRow): void {
    if (row.open === false) this.target.toggle(row);
    else if (row.open) this.target.choose(index + 1);
  }

  private outwards(index: number, row: TreeRow): void {
    if (row.open && row.level > 1) this.target.toggle(row);
    else this.toParent(index, row);
  }

  private toParent(index: number, row: TreeRow): void {
    let above = index - 1;
    while (above >= 0 && this.target.rows[above].level >= row.level) above -= 1;
    if (above >= 0) this.target.choose(above);
  }

  private isTyping(now: number): boolean {
    return this.typed !== "" && now - this.typedAt < PAUSE;
  }

  /** The next row whose name begins with what was typed; one letter again and again walks through its rows. */
  private typeAhead(key: string, now: number, index: number): void {
    this.typed = (this.isTyping(now) ? this.typed : "") + key.toLowerCase();
    this.typedAt = now;
    const repeated = [...this.typed].every(letter => letter === this.typed[0]);
    const wanted = repeated ? this.typed[0] : this.typed;
    const { rows } = this.target;
    const start = repeated ? index + 1 : index;
    for (let step = 0; step < rows.length; step += 1) {
      const at = (start + step) % rows.length;
      if (this.h.name(rows[at].node).toLowerCase().startsWith(wanted)) {
        this.target.choose(at);
        return;
      }
    }
  }
}
