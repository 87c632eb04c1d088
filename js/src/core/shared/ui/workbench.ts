// Panes with handles between them: one above, the others beside each other below, and one more beneath if asked for.

import { el, Part } from "./dom";
import { captureKeys } from "./keys";
import { paneHandle } from "./pane_handle";
import { keepHeight } from "./widget_frame";
import { lendWindowButtons } from "./window_buttons";
import * as words from "../../words/shared";

export interface Split {
  readonly rows: number; // share of the height that the pane above has
  readonly columns: number; // share of the width that the first pane below has
}

export const EVEN: Split = { rows: 0.5, columns: 0.6 };
const BOUNDS = [0.1, 0.9] as const;
const NAMES = { rows: words.GRAPH_HEIGHT, columns: words.EDITOR_WIDTH };

/** Shares within bounds; anything else is the usual one. */
export function readSplit(raw: unknown): Split {
  const given = (typeof raw === "object" && raw !== null ? raw : {}) as Partial<Record<keyof Split, unknown>>;
  const share = (key: keyof Split) => {
    const value = given[key];
    return typeof value === "number" && Number.isFinite(value) ? clamped(value) : EVEN[key];
  };
  return { rows: share("rows"), columns: share("columns") };
}

function clamped(share: number): number {
  return Math.min(BOUNDS[1], Math.max(BOUNDS[0], share));
}

type Handle = ReturnType<typeof paneHandle>;

export class WorkbenchPanes extends Part {
  private readonly below = el("div", "mkg-workbench-row");
  private readonly handles = { rows: this.handle("rows"), columns: this.handle("columns") };
  readonly panes: readonly HTMLElement[];

  constructor(
    host: HTMLElement,
    count: number,
    private split: Split,
    private readonly changed: (split: Split) => void,
    beneath = false
  ) {
    super(host);
    host.classList.add("mkg-widget", "mkg-workbench");
    captureKeys(host);
    this.panes = Array.from({ length: count }, () => el("div", "mkg-workbench-pane"));
    const last = beneath ? this.panes[count - 1] : undefined;
    const [above, first, ...others] = this.panes.filter(pane => pane !== last);
    if (above) host.append(above);
    if (first) {
      host.append(this.handles.rows.element, this.below);
      this.below.append(first);
    }
    if (others.length > 0) this.below.append(this.handles.columns.element, ...others);
    if (last) {
      last.classList.add("mkg-workbench-beneath");
      host.append(last);
    }
    host.classList.toggle("mkg-workbench-tall", beneath);
    this.disposers.add(keepHeight(host, beneath ? "tall-workbench" : "workbench"));
    this.show();
  }

  setSplit(split: Split): void {
    this.split = split;
    this.show();
  }

  /** The buttons of the whole, once it has its place on the page, in the toolbar of its first part. */
  addButtons(): void {
    if (this.panes.length > 0) this.disposers.add(lendWindowButtons(this.host, this.panes[0]));
  }

  private show(): void {
    for (const key of ["rows", "columns"] as const) {
      this.host.style.setProperty(`--mkg-${key}`, String(this.split[key]));
      this.handles[key].show(this.split[key]);
    }
  }

  private move(key: keyof Split, share: number): void {
    this.split = { ...this.split, [key]: clamped(share) };
    this.show();
  }

  private handle(key: keyof Split): Handle {
    const isRow = key === "rows";
    const handle = paneHandle(`mkg-workbench-handle mkg-workbench-${key}`, NAMES[key], isRow, BOUNDS, {
      box: () => (isRow ? this.upper() : this.below.getBoundingClientRect()),
      share: () => this.split[key],
      move: share => this.move(key, share),
      enter: () => this.move(key, EVEN[key]),
      end: () => this.changed(this.split)
    });
    this.disposers.add(handle.dispose);
    return handle;
  }

  /** The place that the upper and the lower row share. */
  private upper(): DOMRect {
    const from = this.panes[0].getBoundingClientRect();
    return new DOMRect(from.x, from.y, from.width, this.below.getBoundingClientRect().bottom - from.y);
  }
}
