// Context shared by all parts of an editor: the session, the view's state, colors and the frame queue.

import { type CellColors, readCellColors, ScoreScale, type CellTooltip } from "../cell_drawing";
import { type Session, SessionEvents } from "./session";
import type { PlanData } from "../draft/plan_data";
import { StateStore } from "../../shared/base/state_store";
import type { Scope } from "../draft/scores";

// What one view of the editor shows.

type Stage = "" | "masked" | "cut";

export interface EditorState {
  importance: string;
  scope: Scope;
  locked: readonly string[]; // names of axes
  axis: string | null; // the current row
  selected: string | null; // dotted path of a module
  stage: Stage;
  operations: number; // that can be taken back in the kernel
  recalibrating: boolean; // a cut renews running statistics
  path: string; // file that a plan is saved to
  // The rest stays in the browser.
  query: string;
  connected: boolean;
}

function initialEditorState(): EditorState {
  return {
    importance: "",
    scope: "local",
    locked: [],
    axis: null,
    selected: null,
    stage: "",
    operations: 0,
    recalibrating: false,
    path: "plan.modulekg.json",
    query: "",
    connected: true
  };
}

export class EditorStore extends StateStore<EditorState> {
  constructor(initial: Partial<EditorState> = {}) {
    super({ ...initialEditorState(), ...initial });
  }
}

// Work for the next animation frame: each piece once, however often it is asked for.

export class FrameQueue {
  private readonly waiting = new Set<() => void>();
  private frame = 0;

  add(act: () => void): void {
    this.waiting.add(act);
    this.frame ||= requestAnimationFrame(() => this.flush());
  }

  flush(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const due = [...this.waiting];
    this.waiting.clear();
    for (const act of due) act();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.waiting.clear();
  }
}

/** What the keyboard shows among the cells: nothing, where it is, or a range that ends there. */
type Cursor = "" | "cursor" | "range";

export class EditorContext {
  cursor: Cursor = "";
  readonly events = new SessionEvents<"cursor">();
  isPointing = false; // while the current row is chosen in this view
  private readColors: CellColors | null = null;
  private made: ScoreScale | null = null;

  constructor(
    readonly host: HTMLElement,
    readonly session: Session,
    readonly data: PlanData,
    readonly store: EditorStore,
    readonly frames: FrameQueue,
    readonly tip: CellTooltip
  ) {}

  get colors(): CellColors {
    this.readColors ??= readCellColors(this.host);
    return this.readColors;
  }

  get scale(): ScoreScale {
    this.made ??= this.makeScale();
    return this.made;
  }

  private makeScale(): ScoreScale {
    const { scores, axes } = this.data;
    const free = [...axes.size.keys()].filter(axis => this.data.isFree(axis));
    return new ScoreScale(scores, axes.size, free, this.store.get("scope"));
  }

  /** Other scores, another scale or another theme. */
  forget(): void {
    this.readColors = null;
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
