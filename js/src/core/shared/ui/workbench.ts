// Panes with handles between them: one above, the others beside each other below, and one more beneath if asked for.

import { el, listen, setAttribute, Part } from "./dom";
import { captureKeys } from "./keys";
import { lendWindowButtons } from "./window_buttons";
import * as words from "../../words/shared";

export interface Split {
  readonly rows: number; // share of the height that the pane above has
  readonly columns: number; // share of the width that the first pane below has
}

export const EVEN: Split = { rows: 0.5, columns: 0.6 };
const MIN_SHARE = 0.1;
const STEP = 0.05;
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
  return Math.min(1 - MIN_SHARE, Math.max(MIN_SHARE, share));
}

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
      host.append(this.handles.rows, this.below);
      this.below.append(first);
    }
    if (others.length > 0) this.below.append(this.handles.columns, ...others);
    if (last) {
      last.classList.add("mkg-workbench-beneath");
      host.append(last);
    }
    host.classList.toggle("mkg-workbench-tall", beneath);
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
      setAttribute(this.handles[key], "aria-valuenow", Math.round(this.split[key] * 100));
    }
  }

  private move(key: keyof Split, share: number): void {
    this.split = { ...this.split, [key]: clamped(share) };
    this.show();
  }

  private handle(key: keyof Split): HTMLElement {
    const element = el("div", `mkg-workbench-handle mkg-workbench-${key}`);
    element.tabIndex = 0;
    const attributes = {
      role: "separator",
      "aria-orientation": key === "rows" ? "horizontal" : "vertical",
      "aria-label": NAMES[key],
      "aria-valuemin": MIN_SHARE * 100,
      "aria-valuemax": 100 - MIN_SHARE * 100
    };
    for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
    this.disposers.add(
      listen(element, "pointerdown", event => this.drag(key, element, event)),
      listen(element, "keydown", event => this.press(key, event))
    );
    return element;
  }

  /** The place that the upper and the lower row share. */
  private upper(): DOMRect {
    const from = this.panes[0].getBoundingClientRect();
    return new DOMRect(from.x, from.y, from.width, this.below.getBoundingClientRect().bottom - from.y);
  }

  private press(key: keyof Split, event: KeyboardEvent): void {
    const [less, more] = key === "rows" ? ["ArrowUp", "ArrowDown"] : ["ArrowLeft", "ArrowRight"];
    const wanted: Record<string, number> = {
      [less]: this.split[key] - STEP,
      [more]: this.split[key] + STEP,
      Home: MIN_SHARE,
      End: 1 - MIN_SHARE,
      Enter: EVEN[key]
    };
    if (!(event.key in wanted)) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(key, wanted[event.key]);
    this.changed(this.split);
  }

  private drag(key: keyof Split, element: HTMLElement, event: PointerEvent): void {
    event.preventDefault();
    element.focus();
    element.setPointerCapture(event.pointerId);
    const box = key === "rows" ? this.upper() : this.below.getBoundingClientRect();
    const stop = [
      listen(element, "pointermove", ({ clientX, clientY }) =>
        this.move(key, key === "rows" ? (clientY - box.top) / box.height : (clientX - box.left) / box.width)
      ),
      listen(element, "pointerup", () => end()),
      listen(element, "pointercancel", () => end())
    ];
    const end = () => {
      stop.forEach(dispose => dispose());
      this.changed(this.split);
    };
  }
}
