// The cells of one axis: a canvas with a cursor, for the mouse and for the keyboard.

import { Disposers, el, listen, setAttribute } from "../../shared/ui/dom";
import { shortNumber } from "../../shared/base/format";
import { bit } from "../draft/bit_table";
import {
  type CellLayout,
  cellLayout,
  corner,
  indexAt,
  indicesBetween,
  type RowMove,
  moveCursor,
  CellPainter,
  CELL_FLAGS
} from "../cell_drawing";
import type { EditorContext } from "../session/editor_context";
import { increaseText } from "../draft/number_texts";
import * as words from "../../words/masks";

// Pointer gestures on the cells of one axis: click, brush along, shift-click a range.

interface BrushTarget {
  readonly layout: CellLayout | null;
  readonly anchor: number; // where the last gesture ended; -1 for nowhere
  isRemoved(index: number): boolean;
  /** False when the axis cannot be changed now. */
  begin(): boolean;
  paint(indices: Iterable<number>, goes: boolean): void;
  commit(): void;
  cancel(): void;
  press(index: number): void;
  hover(index: number, event: PointerEvent): void;
}

type Place = readonly [x: number, y: number];

class Brush {
  private readonly disposers = new Disposers();
  private pointer: number | null = null; // while brushing
  private last: Place = [0, 0];
  private goes = false; // the state that the first cell got

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly target: BrushTarget
  ) {
    this.disposers.add(
      listen(canvas, "pointerdown", event => this.down(event)),
      listen(canvas, "pointermove", event => this.move(event)),
      listen(canvas, "pointerup", event => this.up(event)),
      listen(canvas, "pointercancel", () => this.cancel()),
      listen(canvas, "lostpointercapture", () => this.cancel()),
      listen(canvas, "pointerleave", event => this.target.hover(-1, event))
    );
  }

  get isDown(): boolean {
    return this.pointer !== null;
  }

  dispose(): void {
    this.cancel();
    this.disposers.dispose();
  }

  cancel(): void {
    if (this.pointer === null) return;
    this.pointer = null;
    this.target.cancel();
  }

  private down(event: PointerEvent): void {
    const { target } = this;
    const place = this.placeOf(event);
    const index = target.layout && event.button === 0 && !this.isDown ? indexAt(target.layout, ...place) : -1;
    if (index < 0) return;
    const { anchor } = target;
    target.press(index);
    if (!target.begin()) return;
    this.pointer = event.pointerId;
    this.last = place;
    this.canvas.setPointerCapture?.(event.pointerId);
    if (event.shiftKey && anchor >= 0) {
      this.goes = target.isRemoved(anchor);
      target.paint(range(anchor, index), this.goes);
    } else {
      this.goes = !target.isRemoved(index);
      target.paint([index], this.goes);
    }
  }

  private move(event: PointerEvent): void {
    const { target } = this;
    if (!target.layout) return;
    if (this.pointer === event.pointerId) {
      const passed = new Set<number>();
      for (const sample of samplesOf(event)) {
        const place = this.placeOf(sample);
        for (const index of indicesBetween(target.layout, this.last, place)) passed.add(index);
        this.last = place;
      }
      if (passed.size) target.paint(passed, this.goes);
    }
    target.hover(indexAt(target.layout, ...this.placeOf(event)), event);
  }

  private up(event: PointerEvent): void {
    if (this.pointer !== event.pointerId) return;
    this.pointer = null;
    this.target.commit();
  }

  /** In pixels of the layout, however the page is scaled. */
  private placeOf(event: PointerEvent): Place {
    const { left, top, width } = this.canvas.getBoundingClientRect();
    const scale = width > 0 && this.target.layout ? this.target.layout.width / width : 1;
    return [(event.clientX - left) * scale, (event.clientY - top) * scale];
  }
}

function samplesOf(event: PointerEvent): PointerEvent[] {
  const found = event.getCoalescedEvents?.() ?? [];
  return found.length ? found : [event];
}

/** From one index to another, both included. */
function range(from: number, to: number): number[] {
  const [low, high] = from < to ? [from, to] : [to, from];
  return Array.from({ length: high - low + 1 }, (_, at) => low + at);
}

export interface IndexStripOwner {
  /** The cursor leaves for the next row, at this column. */
  leap(axis: number, way: RowMove, column: number): void;
  describedBy: string; // id of the text that tells the keys
}

let options = 0;

export class IndexStrip implements BrushTarget {
  readonly element = el("div", "mkg-mask-strip");
  layout: CellLayout | null = null;
  private readonly disposers = new Disposers();
  private readonly canvas = el("canvas", "mkg-mask-canvas");
  private readonly frame = el("div", "mkg-mask-cursor");
  private readonly painter = new CellPainter(this.canvas);
  private readonly brush: Brush;
  private readonly looks: Uint16Array;
  private cursor = 0;
  private start: number | null = null; // of the range that ends at the cursor
  private pressed = -1;
  private said = "";
  private hasPointer = false; // the cursor is for the keyboard: under a pointer it would be one outline more

  constructor(
    readonly axis: number,
    private readonly scene: EditorContext,
    private readonly owner: IndexStripOwner
  ) {
    this.looks = new Uint16Array(scene.data.axes.size[axis]);
    this.brush = new Brush(this.canvas, this);
    this.canvas.setAttribute("aria-hidden", "true");
    this.frame.setAttribute("aria-hidden", "true");
    const { element } = this;
    element.tabIndex = 0;
    element.setAttribute("role", "listbox");
    element.setAttribute("aria-multiselectable", "true");
    element.setAttribute("aria-orientation", "horizontal");
    element.setAttribute("aria-label", words.squares(scene.data.axes.name[axis]));
    element.setAttribute("aria-describedby", owner.describedBy);
    element.append(this.canvas, this.frame);
    this.disposers.add(
      () => this.brush.dispose(),
      listen(element, "keydown", event => this.key(event)),
      listen(element, "focus", () => {
        scene.point(axis);
        this.showCursor();
      }),
      listen(element, "blur", () => {
        this.hasPointer = false;
        this.selectNone();
        this.showCursor();
      })
    );
    this.tell();
  }

  dispose(): void {
    this.disposers.dispose();
    this.element.remove();
  }

  get columns(): number {
    return this.layout?.columns ?? 1;
  }

  get hasFocus(): boolean {
    return this.element === this.element.ownerDocument.activeElement;
  }

  get anchor(): number {
    return this.pressed;
  }

  /** Into so many pixels; again with `anew` when the colors have changed. */
  fit(room: number, anew = false): void {
    const layout = cellLayout(this.looks.length, room);
    if (!anew && layout.columns === this.layout?.columns) return;
    this.layout = layout;
    this.painter.reset(layout);
    this.placeCursor();
    this.draw();
  }

  draw = (): void => {
    if (!this.layout) return;
    this.update();
    this.painter.paint(this.looks, this.scene.colors);
    setAttribute(this.element, "aria-readonly", this.obstacle ? "true" : null);
    this.tell();
  };

  /** To the keyboard's place in a column of the first or last line. */
  enter(way: RowMove, column: number): void {
    const { size, lines } = this.layout ?? { size: this.looks.length, lines: 1 };
    const line = way === "below" ? 0 : lines - 1;
    this.move(Math.min(size - 1, line * this.columns + Math.min(column, this.columns - 1)));
    this.element.focus();
  }

  // ----------------------------------------------------------------- brushing

  isRemoved(index: number): boolean {
    return this.scene.data.draft.isRemoved(this.axis, index);
  }

  begin(): boolean {
    const { session } = this.scene;
    if (this.obstacle) {
      session.say(this.obstacle);
      return false;
    }
    session.begin();
    return true;
  }

  paint(indices: Iterable<number>, goes: boolean): void {
    this.scene.session.paint(this.axis, indices, goes);
  }

  commit(): void {
    this.scene.session.commit();
  }

  cancel(): void {
    this.scene.session.cancel();
  }

  press(index: number): void {
    this.hasPointer = true;
    this.element.focus({ preventScroll: true });
    this.selectNone();
    this.showCursor();
    this.move(index);
    this.pressed = index;
    this.scene.point(this.axis);
  }

  hover(index: number, event: PointerEvent): void {
    if (index < 0) this.scene.tip.hide();
    else this.scene.tip.show(event.clientX, event.clientY, this.sentence(index));
  }

  // ----------------------------------------------------------------- keyboard

  private key(event: KeyboardEvent): void {
    const { layout } = this;
    if (!layout || event.ctrlKey || event.metaKey || event.altKey) return;
    const goal = moveCursor(event.key, this.cursor, layout);
    if (goal !== null || event.key === " ") this.hasPointer = false;
    if (event.key === " ") this.toggle();
    else if (event.key === "Escape" && (this.brush.isDown || this.start !== null)) {
      this.brush.cancel();
      this.selectNone();
    } else if (typeof goal === "number") {
      if (event.shiftKey) this.start ??= this.cursor;
      else this.start = null;
      this.move(goal);
      this.scene.frames.add(this.draw);
    } else if (goal !== null) {
      if (!event.shiftKey) this.owner.leap(this.axis, goal, this.cursor % layout.columns);
    } else return;
    this.showCursor();
    event.preventDefault();
    event.stopPropagation();
  }

  private showCursor(): void {
    const isShown = this.hasFocus && !this.hasPointer;
    this.element.classList.toggle("mkg-has-cursor", isShown);
    this.scene.setCursor(!isShown ? "" : this.start === null ? "cursor" : "range");
  }

  /** The cursor's index, or the range that it ends, as the first of it is not yet. */
  private toggle(): void {
    if (!this.begin()) return;
    const from = this.start ?? this.cursor;
    this.paint(range(from, this.cursor), !this.isRemoved(from));
    this.pressed = this.cursor;
    this.commit();
  }

  private move(index: number): void {
    this.cursor = index;
    this.placeCursor();
    this.tell();
  }

  private selectNone(): void {
    if (this.start === null) return;
    this.start = null;
    this.scene.frames.add(this.draw);
  }

  private placeCursor(): void {
    if (!this.layout) return;
    const [x, y] = corner(this.layout, this.cursor);
    const { cell } = this.layout;
    this.frame.style.transform = `translate(${x}px, ${y}px)`;
    this.frame.style.width = this.frame.style.height = `${cell}px`;
    if (this.hasFocus && this.start !== null) this.frame.scrollIntoView?.({ block: "nearest" });
  }

  // -------------------------------------------------------------------- looks

  /** Why nothing may be drawn; "" where it may. */
  private get obstacle(): string {
    const { session, data } = this.scene;
    const block = data.blocks.takes(this.axis);
    const name = data.axes.name[this.axis];
    if (block >= 0) return words.removedFirst(name, data.blocks.table.path[block]);
    return session.isLocked(this.axis) ? words.isLocked(name) : "";
  }

  private update(): void {
    const { looks, axis } = this;
    const bytes = this.scene.data.draft.bitsOf(axis);
    const { report, isReportCurrent } = this.scene.session;
    looks.set(this.scene.scale.of(axis));
    for (let index = 0; index < looks.length; index += 1) if (bit(bytes, index)) looks[index] |= CELL_FLAGS.goes;
    const stale = isReportCurrent ? 0 : CELL_FLAGS.stale;
    const mark = (indices: readonly number[] | undefined, kind: number) => {
      for (const index of indices ?? []) if (index < looks.length) looks[index] |= kind | stale;
    };
    mark(report?.kept.get(axis), CELL_FLAGS.kept);
    mark(report?.taken.get(axis), CELL_FLAGS.taken);
    if (this.start !== null) for (const index of range(this.start, this.cursor)) looks[index] |= CELL_FLAGS.range;
  }

  /** "channel 12 of 64, importance 0.83, removed" */
  private sentence(index: number): string {
    const { scores, increases, axes } = this.scene.data;
    const score = scores?.at(this.axis, index);
    const increase = increases?.at(this.axis, index);
    const look = this.looks[index];
    return [
      words.channelOf(index, axes.size[this.axis]),
      score === undefined ? "" : words.importance(shortNumber(score)),
      increase === undefined || Number.isNaN(increase) ? "" : words.lossWithout(increaseText(increase)),
      this.isRemoved(index) ? words.REMOVED : words.KEPT,
      look & CELL_FLAGS.kept ? words.KEPT_BY_DRY_RUN : look & CELL_FLAGS.taken ? words.REMOVED_BY_DRY_RUN : ""
    ]
      .filter(Boolean)
      .join(", ");
  }

  /** The option under the cursor; another element each time, so that it is read out. */
  private tell(): void {
    const text = this.sentence(this.cursor);
    const isSelected = this.start !== null;
    const key = `${text} ${isSelected}`;
    if (key === this.said) return;
    this.said = key;
    options += 1;
    const option = el("div", "mkg-mask-option mkg-offscreen", text);
    option.id = `mkg-mask-option-${options}`;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", String(isSelected));
    option.setAttribute("aria-posinset", String(this.cursor + 1));
    option.setAttribute("aria-setsize", String(this.looks.length));
    this.element.querySelector("[role=option]")?.remove();
    this.element.append(option);
    this.element.setAttribute("aria-activedescendant", option.id);
  }
}
