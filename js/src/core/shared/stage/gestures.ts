// Gestures of mouse, pen, fingers and wheel on a stage: click, double click, hover, pan, zoom.

import { Debounced, Disposers, el, listen, widgetRoot } from "../ui/dom";

// The wheel over a canvas: zooms where the user is at work or asks for it, else scrolls the page as everywhere.

const HINT = "Click the graph, or hold Ctrl, to zoom";
const SHOWN = 1400; // ms
const REST = 250; // ms after which the wheel scrolls the page no more

export class WheelGuard {
  private readonly hint = el("div", "mkg-wheel-hint", HINT);
  private readonly disposers = new Disposers();
  private scrolled = -Infinity; // when the page last was
  private readonly fade = new Debounced(() => this.hint.classList.remove("mkg-is-shown"), SHOWN);

  /** `wrap` is around the canvas, so that it sees the wheel before the stage does. */
  constructor(private readonly wrap: HTMLElement) {
    this.hint.setAttribute("aria-hidden", "true"); // whoever does not see it has no use for it
    wrap.append(this.hint);
    const options = { capture: true, passive: true };
    const handler = (event: WheelEvent) => this.handle(event);
    wrap.addEventListener("wheel", handler, options);
    const scroll = ({ target }: Event) => {
      if (target instanceof Node && target.contains(wrap)) this.scrolled = performance.now();
    };
    window.addEventListener("scroll", scroll, options);
    this.disposers.add(() => {
      wrap.removeEventListener("wheel", handler, options);
      window.removeEventListener("scroll", scroll, options);
    });
  }

  dispose(): void {
    this.fade.cancel();
    this.disposers.dispose();
    this.hint.remove();
  }

  private handle(event: WheelEvent): void {
    const isAsked = event.ctrlKey || event.metaKey;
    const zooms = isAsked || this.isAtWork();
    // a page that is being scrolled goes on where the canvas comes under the pointer
    const isPassing = !isAsked && performance.now() - this.scrolled < REST;
    if (!zooms || isPassing) event.stopPropagation(); // what the stage does not hear of scrolls the page
    if (zooms) this.fade.cancel();
    else this.fade.call();
    this.hint.classList.toggle("mkg-is-shown", !zooms);
  }

  /** The focus is in the widget, or the widget is the whole page. */
  private isAtWork(): boolean {
    return this.wrap.closest(".mkg-standalone") !== null || widgetRoot(this.wrap).contains(document.activeElement);
  }
}

interface GestureTarget {
  press(): void; // a pointer goes down or up
  tap(x: number, y: number): void;
  doubleTap(x: number, y: number): void;
  point(x: number, y: number): void; // nothing is pressed
  leave(): void;
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
}

interface Pressed {
  x: number;
  y: number;
  readonly start: { readonly x: number; readonly y: number };
  readonly slack: number; // pixels that it may move and still click
}

const SLACK = { mouse: 4, touch: 8 };
const PER_DECADE = 250; // pixels of the wheel that zoom ten times
const NOTCH = { least: 40, size: 120, pixels: 3 }; // a wheel that clicks is coarse: each click counts as few pixels

/** Safari's pinch on a touchpad. */
interface GestureEvent extends UIEvent {
  readonly scale: number;
  readonly clientX: number;
  readonly clientY: number;
}

export class Gestures {
  private readonly disposers = new Disposers();
  private readonly pressed = new Map<number, Pressed>();
  private isDragged = false; // since the first pointer went down
  private scale = 1;

  constructor(
    private readonly host: HTMLElement,
    private readonly target: GestureTarget
  ) {
    this.disposers.add(
      listen(host, "pointerdown", event => this.down(event)),
      listen(host, "pointermove", event => this.move(event)),
      listen(host, "pointerup", event => this.up(event)),
      listen(host, "pointercancel", event => this.cancel(event)),
      listen(host, "pointerleave", () => target.leave()),
      listen(host, "dblclick", event => !this.isDragged && target.doubleTap(...this.place(event))) // as fast as the system says
    );
    const wheel = (event: WheelEvent) => this.wheel(event);
    host.addEventListener("wheel", wheel, { passive: false });
    const pinch = (event: Event) => this.pinch(event as GestureEvent);
    host.addEventListener("gesturestart", pinch);
    host.addEventListener("gesturechange", pinch);
    this.disposers.add(() => {
      host.removeEventListener("wheel", wheel);
      host.removeEventListener("gesturestart", pinch);
      host.removeEventListener("gesturechange", pinch);
    });
  }

  dispose(): void {
    this.disposers.dispose();
    this.pressed.clear();
  }

  private down(event: PointerEvent): void {
    if (event.button !== 0) return;
    const [x, y] = this.place(event);
    if (this.pressed.size === 0) this.isDragged = false;
    const slack = event.pointerType === "touch" ? SLACK.touch : SLACK.mouse;
    this.pressed.set(event.pointerId, { x, y, start: { x, y }, slack });
    this.host.setPointerCapture?.(event.pointerId); // it may be let go anywhere
    if (this.pressed.size > 1) this.isDragged = true; // no click comes of a pinch
    this.target.press();
  }

  private move(event: PointerEvent): void {
    const [x, y] = this.place(event);
    if (event.buttons === 0) this.pressed.delete(event.pointerId); // let go where nobody heard of it
    const one = this.pressed.get(event.pointerId);
    if (!one) {
      if (this.pressed.size === 0) this.target.point(x, y);
      return;
    }
    const other = [...this.pressed.values()].find(each => each !== one);
    if (!this.isDragged && Math.hypot(x - one.start.x, y - one.start.y) < one.slack) return;
    this.isDragged = true;
    const [before, now] = [{ ...one }, { x, y }];
    [one.x, one.y] = [x, y];
    if (!other) {
      this.target.pan(now.x - before.x, now.y - before.y);
      return;
    }
    const [from, to] = [before, now].map(at => Math.hypot(at.x - other.x, at.y - other.y) || 1);
    this.target.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
    this.target.zoom(to / from, (now.x + other.x) / 2, (now.y + other.y) / 2);
  }

  private up(event: PointerEvent): void {
    const one = this.pressed.get(event.pointerId);
    if (!one) return;
    this.pressed.delete(event.pointerId);
    this.target.press();
    if (this.isDragged) return;
    const { x, y } = one.start;
    this.target.tap(x, y);
  }

  private cancel(event: PointerEvent): void {
    this.pressed.delete(event.pointerId);
    this.isDragged = true;
  }

  private wheel(event: WheelEvent): void {
    if (event.deltaY === 0) return;
    event.preventDefault();
    if (this.pressed.size > 0) return;
    const [x, y] = this.place(event);
    this.target.zoom(10 ** (-pixelsOf(event) / PER_DECADE), x, y);
  }

  private pinch(event: GestureEvent): void {
    event.preventDefault();
    if (this.pressed.size > 0) return; // fingers on the screen are pointers
    if (event.type === "gesturestart") this.scale = 1;
    const [x, y] = this.place(event);
    this.target.zoom(event.scale / this.scale, x, y);
    this.scale = event.scale;
  }

  private place({ clientX, clientY }: { readonly clientX: number; readonly clientY: number }): [number, number] {
    const { left, top, width } = this.host.getBoundingClientRect();
    const scale = width / this.host.offsetWidth || 1; // of a page that is shown in another size, as slides are
    return [(clientX - left) / scale, (clientY - top) / scale];
  }
}

function pixelsOf({ deltaY, deltaMode }: WheelEvent): number {
  const size = Math.abs(deltaY);
  const isNotch = deltaMode !== 0 || (size >= NOTCH.least && Number.isInteger(deltaY));
  if (!isNotch) return deltaY;
  return Math.sign(deltaY) * NOTCH.pixels * Math.max(1, Math.round(size / NOTCH.size));
}
