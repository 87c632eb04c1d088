// Pointer gestures on the cells of one axis: click, brush along, shift-click a range.

import { Disposers, listen } from "../shared/dom";
import { type CellLayout, indexAt, indicesBetween } from "./cell_layout";

export interface BrushTarget {
  readonly layout: CellLayout | null;
  readonly anchor: number; // where the last gesture ended; -1 for nowhere
  goes(index: number): boolean;
  /** False when the axis cannot be changed now. */
  begin(): boolean;
  paint(indices: Iterable<number>, goes: boolean): void;
  commit(): void;
  cancel(): void;
  press(index: number): void;
  hover(index: number, event: PointerEvent): void;
}

type Place = readonly [x: number, y: number];

export class Brush {
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
      this.goes = target.goes(anchor);
      target.paint(range(anchor, index), this.goes);
    } else {
      this.goes = !target.goes(index);
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
export function range(from: number, to: number): number[] {
  const [low, high] = from < to ? [from, to] : [to, from];
  return Array.from({ length: high - low + 1 }, (_, at) => low + at);
}
