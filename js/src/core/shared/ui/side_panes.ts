// The panes at the sides of a canvas: as wide as the user has made them, and folded where there is little room.

import "../../../../style/side_panes.css";
import * as words from "../../words/shared";
import { remembered, remember } from "../base/settings";
import { box, button, icon, listen, onResize, Part, setAttribute } from "./dom";
import { paneHandle } from "./pane_handle";
import { keepHeight } from "./widget_frame";

type Side = "left" | "right";
export type Shares = Readonly<Record<Side | "both", number>>; // of the width; "both": of the column where they are one

const BOUNDS = [0.1, 0.6] as const; // of one pane, and the most of both: the rest is the canvas
const ONE_COLUMN = 1000; // px; in less width both stand above each other, so that the canvas has two thirds
const NARROW = 700; // px; in less width both are folded until somebody asks for them
const SHORT = 580; // px; in less height of the widget the tree is, in one column both, and the path is left away

export class SidePanes extends Part {
  private readonly panes: Readonly<Record<Side, HTMLElement>>;
  private readonly gutters: Readonly<Record<Side, HTMLElement>>;
  private readonly updates: (() => void)[] = [];
  private isOneColumn = false;
  private isTight: Readonly<Record<Side, boolean>> = { left: false, right: false };
  private readonly away = new Set<Side>();
  private readonly moved = new Map<Side | "both", number>(); // while a handle is dragged

  /** `key`: under which the browser remembers the arrangement; `usual`: before anybody has changed it. */
  constructor(
    main: HTMLElement,
    left: HTMLElement,
    centre: HTMLElement,
    right: HTMLElement,
    private readonly key: string,
    private readonly usual: Shares
  ) {
    super(main);
    this.panes = { left, right };
    this.gutters = { left: this.gutter("left"), right: this.gutter("right") };
    main.classList.add("mkg-side-panes");
    main.append(left, this.gutters.left, centre, this.gutters.right, right);
    this.disposers.add(
      onResize(main, () => this.measure()),
      keepHeight(main, key)
    );
    this.show();
  }

  /** To be called once the panes have their place on the page, before anything asks for the size of the canvas. */
  measure(): void {
    const { clientWidth, parentElement } = this.host;
    if (clientWidth === 0) return; // not on the page
    const [isOneColumn, isNarrow] = [clientWidth <= ONE_COLUMN, clientWidth < NARROW];
    const isShort = (parentElement?.clientHeight ?? SHORT) < SHORT;
    parentElement?.classList.toggle("mkg-is-short", isShort);
    const isTight = { left: isNarrow || isShort, right: isNarrow || (isShort && isOneColumn) };
    const { left, right } = this.isTight;
    if (isOneColumn === this.isOneColumn && left === isTight.left && right === isTight.right) return;
    [this.isOneColumn, this.isTight] = [isOneColumn, isTight];
    this.show();
  }

  /** A view that has nothing for one of them leaves it away. */
  leaveAway(side: Side, isAway: boolean): void {
    if (this.away.has(side) === isAway) return;
    if (isAway) this.away.add(side);
    else this.away.delete(side);
    this.show();
  }

  /** Where both would leave too little to the canvas, the right one gives way. */
  private share(side: Side | "both"): number {
    const known = this.moved.get(side) ?? remembered(`${this.key}:${side}`);
    const wanted = typeof known === "number" ? Math.min(BOUNDS[1], Math.max(BOUNDS[0], known)) : this.usual[side];
    if (side === "both" || !this.isShown(side === "left" ? "right" : "left")) return wanted;
    return Math.min(wanted, BOUNDS[1] - (side === "left" ? BOUNDS[0] : this.share("left")));
  }

  /** The most that a handle reaches. */
  private most(side: Side): number {
    const other = side === "left" ? "right" : "left";
    return this.isOneColumn || !this.isShown(other) ? BOUNDS[1] : BOUNDS[1] - this.share(other);
  }

  private isShown(side: Side): boolean {
    return !this.isFolded(side) && !this.away.has(side);
  }

  private foldKey(side: Side): string {
    return `${this.key}:${side}-folded${this.isTight[side] ? "-tight" : ""}`;
  }

  private isFolded(side: Side): boolean {
    const known = remembered(this.foldKey(side));
    return typeof known === "boolean" ? known : this.isTight[side];
  }

  /** The sides that one handle folds: where both stand in one column, both. */
  private sidesOf(side: Side): Side[] {
    return this.isOneColumn ? (["left", "right"] as const).filter(each => !this.away.has(each)) : [side];
  }

  private toggle(side: Side): void {
    const isFolded = this.sidesOf(side).every(each => this.isFolded(each));
    for (const each of this.sidesOf(side)) remember(this.foldKey(each), !isFolded);
    this.show();
  }

  private gutter(side: Side): HTMLElement {
    const shareOf = () => (this.isOneColumn ? "both" : side);
    const handle = paneHandle("mkg-pane-handle", words.widthOf(side), false, BOUNDS, {
      box: () => this.host.getBoundingClientRect(),
      isFromEnd: side === "right",
      share: () => this.share(shareOf()),
      move: share => {
        this.moved.set(shareOf(), Math.max(BOUNDS[0], Math.min(this.most(side), share)));
        this.show();
      },
      enter: () => {
        this.toggle(side);
        fold.focus(); // the handle is gone
      },
      end: () => {
        this.moved.forEach((share, moved) => remember(`${this.key}:${moved}`, share));
        this.moved.clear();
      }
    });
    const fold = button("mkg-pane-fold", "");
    this.disposers.add(
      handle.dispose,
      listen(fold, "click", () => this.toggle(side))
    );
    const gutter = box("mkg-pane-gutter", handle.element, fold);
    this.updates.push(() => {
      const isFolded = this.sidesOf(side).every(each => this.isFolded(each));
      gutter.hidden = this.isOneColumn ? side === "right" : this.away.has(side);
      handle.element.hidden = isFolded;
      handle.show(this.share(shareOf()), this.most(side));
      setAttribute(handle.element, "aria-label", words.widthOf(shareOf()));
      const name = (isFolded ? words.showPane : words.hidePane)(this.isOneColumn ? "both" : side);
      fold.title = name;
      setAttribute(fold, "aria-label", name);
      setAttribute(fold, "aria-expanded", String(!isFolded));
      fold.replaceChildren(icon((side === "left") === isFolded ? "chevron-right" : "chevron-left"));
    });
    return gutter;
  }

  private show(): void {
    const { host, isOneColumn } = this;
    const shown = (["left", "right"] as const).filter(side => this.isShown(side));
    host.classList.toggle("mkg-is-one-column", isOneColumn);
    for (const side of ["left", "right"] as const) this.panes[side].hidden = !shown.includes(side);
    const width = (side: Side | "both") => `${(100 * this.share(side)).toFixed(2)}%`;
    const column = (side: Side) => (shown.includes(side) ? width(side) : "0px");
    const [first, last] = isOneColumn
      ? [shown.length > 0 ? width("both") : "0px", ""]
      : [column("left"), column("right")];
    host.style.setProperty("--mkg-first-column", first);
    host.style.setProperty("--mkg-last-column", last || "0px");
    host.classList.toggle("mkg-is-shared", isOneColumn && shown.length === 2);
    this.updates.forEach(update => update());
  }
}
