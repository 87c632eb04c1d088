// What all parts of one view share: the model's session, the view's state, colors and the next frame.

import { type CellInk, readCellInk } from "./cell_ink";
import type { CellTip } from "./cell_tip";
import { SessionEvents } from "./events";
import type { Frames } from "./frames";
import type { PlanData } from "./plan_data";
import type { Session } from "./session";
import { Shades } from "./shades";
import type { EditorStore } from "./state";

/** What the keyboard shows among the cells: nothing, where it is, or a range that ends there. */
export type Cursor = "" | "cursor" | "range";

export class Scene {
  cursor: Cursor = "";
  readonly events = new SessionEvents<"cursor">();
  isPointing = false; // while the current row is chosen in this view
  private readInk: CellInk | null = null;
  private made: Shades | null = null;

  constructor(
    readonly host: HTMLElement,
    readonly session: Session,
    readonly data: PlanData,
    readonly store: EditorStore,
    readonly frames: Frames,
    readonly tip: CellTip
  ) {}

  get ink(): CellInk {
    this.readInk ??= readCellInk(this.host);
    return this.readInk;
  }

  get shades(): Shades {
    this.made ??= this.makeShades();
    return this.made;
  }

  private makeShades(): Shades {
    const { scores, axes } = this.data;
    const free = [...axes.size.keys()].filter(axis => this.data.isFree(axis));
    return new Shades(scores, axes.size, free, this.store.get("scope"));
  }

  /** Other scores, another scale or another theme. */
  forget(): void {
    this.readInk = null;
    this.made = null;
  }

  setCursor(cursor: Cursor): void {
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    this.events.tell("cursor");
  }

  /** An axis is the current one from now on. */
  point(axis: number): void {
    this.isPointing = true;
    this.store.set("axis", this.data.axes.name[axis]);
    this.isPointing = false;
  }
}
