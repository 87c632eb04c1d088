// A canvas with a camera: follows its size and the screen's pixels, draws when something has changed, and passes on
// what the user does. The views say what is painted and what lies under the pointer.

import { Camera, type CameraOptions, CameraAnimation } from "./camera";
import { contextOf, pixelRatio } from "../base/canvas";
import { Disposers, el } from "../ui/dom";
import { isFullScreen } from "../ui/window_buttons";
import { Gestures, WheelGuard } from "./gestures";
import { Minimap } from "./minimap";
import type { Box, Extent, CameraPose, Point, Viewport } from "./viewport";

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
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => this.measure());
      observer.observe(wrap);
      this.disposers.add(() => observer.disconnect());
    }
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
    this.draw();
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
