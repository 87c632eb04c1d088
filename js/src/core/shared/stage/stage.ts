// A canvas with a camera: follows its size and the screen's pixels, draws when something has changed, and passes on
// what the user does. The views say what is painted and what lies under the pointer.

import { Camera, type CameraOptions, CameraAnimation } from "./camera";
import { contextOf, pixelRatio } from "../base/canvas";
import { Disposers, el, Debounced, listen, widgetRoot, onResize } from "../ui/dom";
import { isFullScreen } from "../ui/window_buttons";
import { Minimap } from "./minimap";
import type { Box, Extent, CameraPose, Point, Viewport } from "./viewport";
import * as words from "../../words/shared";

/** A piece of text, or a sign, where it is painted. */
export interface StageText {
  readonly text: string;
  readonly box: readonly number[]; // in the picture, as of items
  readonly size: number; // of its letters, in the picture
  readonly isTitle: boolean;
}

interface StageItem {
  readonly id: string;
  readonly title: string;
  readonly parent: string | null;
  readonly box: readonly number[]; // x, y, width and height in the picture
  readonly fill: string;
  readonly isOpen: boolean; // others lie in it
  readonly isSelected: boolean;
  readonly onAxis: boolean;
  readonly mark?: string | null; // what a comparison says of it
  readonly badge?: string; // ×n where it stands for several
  readonly texts?: readonly StageText[]; // where the view tells, as below
}

interface StageLine {
  readonly source: string;
  readonly target: string;
  readonly label: string;
  readonly points?: readonly Point[];
  readonly labels?: readonly StageText[]; // what is written on it, and the signs
}

/** What is on a stage, as data. */
export interface StagePicture {
  readonly items: readonly StageItem[];
  readonly lines: readonly StageLine[];
  readonly lit?: readonly (readonly [string, string])[]; // lines that stand out, by the ids of their ends
  readonly over?: string | null; // the card under the pointer, which stands out
}

interface StageScene {
  paint(context: CanvasRenderingContext2D, view: Viewport): void;
  /** What lies at a place in the picture. */
  hit(at: Point): string | null;
  /** A pointer goes down or up anywhere. */
  press(): void;
  tap(id: string, at: Point): void;
  doubleTap(id: string, at: Point): void;
  /** Where nothing lies. */
  doubleTapGround?(): void;
  /** What the pointer is on now. */
  hover?(id: string | null): void;
  /** Where the pointer is now, in the picture and on the stage; null when it has left, or the picture has moved. */
  point?(at: Point | null, x: number, y: number): void;
  /** The camera has moved. */
  moved?(): void;
  /** `seen`: what was in view before the whole screen came or went. */
  resized(before: Extent | null, seen: Box | null): void;
  picture(): StagePicture;
}

/** The element of a stage; tests and scripts in a page find what it shows there. */
export interface StageElement extends HTMLElement {
  mkgStage?: Stage;
}

/** Where the camera of a stage is, if somebody has moved it. */
export const userPose = ({ camera }: Stage): CameraPose | undefined => (camera.isTouched ? camera.pose : undefined);

export class Stage {
  readonly host: StageElement = el("div", "mkg-graph-canvas"); // has the keyboard
  readonly camera: Camera;
  readonly flight: CameraAnimation;
  readonly minimap: Minimap;
  private readonly disposers = new Disposers();
  private readonly canvas = el("canvas", "mkg-graph-picture");
  private readonly context: CanvasRenderingContext2D | null;
  private readonly gestures: Gestures;
  private readonly wheel: WheelGuard;
  private size: Extent | null = null; // while it has one
  private isFull = false;
  private frame = 0;
  private hovered: string | null = null;
  private afterwards: (() => void)[] = [];

  /** `dock`: the place of the minimap, outside of the canvas. */
  constructor(
    private readonly wrap: HTMLElement,
    label: string,
    options: CameraOptions,
    private readonly scene: StageScene,
    dock: HTMLElement = el("div")
  ) {
    wrap.classList.add("mkg-canvas-wrap");
    this.host.tabIndex = 0;
    this.host.setAttribute("role", "application");
    this.host.setAttribute("aria-label", label);
    this.host.append(this.canvas);
    this.host.mkgStage = this;
    wrap.append(this.host);
    this.context = contextOf(this.canvas);
    this.camera = new Camera(options, () => this.moved());
    this.flight = new CameraAnimation(this.camera);
    this.minimap = new Minimap(dock, this.camera);
    this.wheel = new WheelGuard(wrap);
    this.gestures = new Gestures(this.host, {
      press: () => scene.press(),
      tap: (x, y) => this.hit(x, y, (id, at) => scene.tap(id, at)),
      doubleTap: (x, y) =>
        this.hit(
          x,
          y,
          (id, at) => scene.doubleTap(id, at),
          () => scene.doubleTapGround?.()
        ),
      point: (x, y) => this.point(x, y),
      leave: () => this.unpoint(),
      pan: (dx, dy) => this.camera.panBy(dx, dy),
      zoom: (factor, x, y) => this.camera.zoomBy(factor, x, y)
    });
    this.disposers.add(onResize(wrap, () => this.measure()));
  }

  get picture(): StagePicture {
    return this.scene.picture();
  }

  /** Follows the size of the element around it; without one, as while it is hidden, all stays as it is. */
  measure(): void {
    const { clientWidth: width, clientHeight: height } = this.wrap;
    const before = this.size;
    if (width === 0 || height === 0 || (before?.width === width && before.height === height)) return;
    const [seen, isFull] = [this.camera.view, isFullScreen(this.wrap)];
    this.size = { width, height };
    this.camera.resize(this.size);
    const turned = isFull !== this.isFull && before !== null;
    if (turned && this.camera.isTouched) this.camera.see(seen);
    this.isFull = isFull;
    this.scene.resized(before, turned ? seen : null);
    if (before) this.draw();
    else this.schedule(); // there is nothing to be seen yet
  }

  /** With the next frame. */
  schedule(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.draw());
  }

  /** Now. */
  draw(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { context, canvas, size } = this;
    if (context && size) {
      const ratio = pixelRatio();
      const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
      if (canvas.width !== width) canvas.width = width;
      if (canvas.height !== height) canvas.height = height;
      this.scene.paint(context, { ...this.camera.pose, ...size, ratio });
    }
    this.afterwards.splice(0).forEach(act => requestAnimationFrame(act));
  }

  /** Once, when the next picture has been drawn and shown; at once where there is nothing to draw on. */
  afterDrawing(act: () => void): void {
    if (!this.context) return act();
    this.afterwards.push(act);
    this.schedule();
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
    this.afterwards = [];
    this.disposers.dispose();
    this.gestures.dispose();
    this.flight.dispose();
    this.minimap.dispose();
    this.wheel.dispose();
    delete this.host.mkgStage;
    this.wrap.replaceChildren();
  }

  private moved(): void {
    this.minimap.schedule();
    this.unpoint();
    this.scene.moved?.();
    this.schedule();
  }

  private hit(x: number, y: number, act: (id: string, at: Point) => void, ground?: () => void): void {
    const at = this.camera.at(x, y);
    const id = this.scene.hit(at);
    if (id !== null) act(id, at);
    else ground?.();
  }

  private point(x: number, y: number): void {
    const at = this.camera.at(x, y);
    if (this.scene.hover) this.hover(this.scene.hit(at));
    this.scene.point?.(at, x, y);
  }

  private unpoint(): void {
    this.hover(null);
    this.scene.point?.(null, 0, 0);
  }

  private hover(id: string | null): void {
    if (this.hovered === id) return;
    this.hovered = id;
    this.scene.hover?.(id);
  }
}

// Gestures of mouse, pen, fingers and wheel on a stage: click, double click, hover, pan, zoom.

// The wheel over a canvas: zooms where the user is at work or asks for it, else scrolls the page as everywhere.

const SHOWN = 1400; // ms
const REST = 250; // ms after which the wheel scrolls the page no more

export class WheelGuard {
  private readonly hint = el("div", "mkg-wheel-hint", words.WHEEL_HINT);
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
