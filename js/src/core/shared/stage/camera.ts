// The camera of a stage: first view, what stays in place, what has to come into view, and what the user moves.

import {
  keepCorner,
  MIN_WHOLE_ZOOM,
  boundsOf,
  type Box,
  type Extent,
  fitsLegibly,
  fitBounds,
  isCornerVisible,
  type CameraPose,
  initialPose,
  OVERVIEW_ZOOM,
  type Point,
  refit,
  displacement,
  keepCornerVisible,
  fitNear
} from "./viewport";
import { isMotionReduced } from "../base/settings";

export interface CameraOptions {
  readonly least: number; // zoom
  readonly most: number;
  readonly isOverview: boolean; // the first look shows the whole even where its text is small
}

const NEAR = 8; // pixels that a chevron may move under the pointer

export class Camera {
  private current: CameraPose = { x: 0, y: 0, zoom: 1 };
  private size: Extent = { width: 1, height: 1 };
  private touched = false;

  constructor(
    private readonly options: CameraOptions,
    private readonly moved: () => void
  ) {}

  get pose(): CameraPose {
    return this.current;
  }

  get extent(): Extent {
    return this.size;
  }

  /** The user has moved it since the first look. */
  get isTouched(): boolean {
    return this.touched;
  }

  /** What of the picture is in view. */
  get view(): Box {
    const { x, y, zoom } = this.current;
    return [-x / zoom, -y / zoom, this.size.width / zoom, this.size.height / zoom];
  }

  /** A place on the screen as a place in the picture. */
  at(x: number, y: number): Point {
    return [(x - this.current.x) / this.current.zoom, (y - this.current.y) / this.current.zoom];
  }

  resize(size: Extent): void {
    this.size = size;
  }

  moveTo(look: CameraPose): void {
    const before = this.current;
    this.current = this.reachable(look);
    const { x, y, zoom } = this.current;
    if (x !== before.x || y !== before.y || zoom !== before.zoom) this.moved();
  }

  /** Where somebody had moved it before. */
  restore(look: CameraPose): void {
    this.touched = true;
    this.moveTo(look);
  }

  /** By hand. */
  panBy(dx: number, dy: number): void {
    this.touched = true;
    this.moveTo({ ...this.current, x: this.current.x + dx, y: this.current.y + dy });
  }

  /** By hand; the place on the screen keeps what it shows. */
  zoomBy(factor: number, x: number, y: number): void {
    this.touched = true;
    const zoom = this.clamped(this.current.zoom * factor);
    const share = zoom / this.current.zoom;
    this.moveTo({ zoom, x: x - (x - this.current.x) * share, y: y - (y - this.current.y) * share });
  }

  /** A place in the picture comes to the middle. */
  centre([x, y]: Point, zoom = this.current.zoom): void {
    const { width, height } = this.size;
    this.moveTo({ zoom, x: width / 2 - x * zoom, y: height / 2 - y * zoom });
  }

  fit(boxes: readonly Box[]): void {
    this.moveTo(fitBounds(boundsOf(boxes), this.size.width, this.size.height));
  }

  /** The first look: everything if its names can be read, else the beginning. */
  open(boxes: readonly Box[]): void {
    this.touched = false;
    const legible = this.options.isOverview ? OVERVIEW_ZOOM : MIN_WHOLE_ZOOM;
    this.moveTo(initialPose(boundsOf(boxes), this.size.width, this.size.height, legible));
  }

  /** After a new layout the corner of what was at `from` and is at `to` stays where it was: a card that was clicked stays
   * under the pointer. On a stage that nobody has moved all is in view as long as it can be read: for that the card gives
   * way when it closes; when it opens, whoever opened it looks at it. */
  keep(from: Box | undefined, to: Box | undefined, boxes: readonly Box[]): void {
    const bounds = boundsOf(boxes);
    const corner: Point = to ? [to[0], to[1]] : [bounds[0], bounds[1]];
    const isSeen = from !== undefined && to !== undefined && isCornerVisible(this.current, from, this.size);
    const keep = isSeen ? keepCornerVisible : keepCorner;
    const look = from && to ? keep(this.current, from, to, this.size) : this.current;
    const whole = fitNear(look, bounds, this.size, corner);
    const isOpened = isSeen && to[2] * to[3] > from[2] * from[3];
    const isWhole = !this.touched && fitsLegibly(bounds, this.size);
    if (isWhole && !(isOpened && displacement(look, whole, corner) > NEAR)) this.moveTo(whole);
    else this.moveTo(isSeen ? look : refit(look, bounds, this.size, corner));
  }

  /** Moves as little as brings the box into view. */
  show(box: Box): void {
    this.moveTo(keepCorner(this.current, box, box, this.size));
  }

  /** By hand: where the box fills the view, as far as it stays legible; of a larger one the beginning. */
  lookInto(box: Box): CameraPose {
    this.touched = true;
    return this.reachable(initialPose(box, this.size.width, this.size.height));
  }

  /** By hand: where all of the box is in view. */
  lookAround(box: Box): CameraPose {
    this.touched = true;
    return this.reachable(fitBounds(box, this.size.width, this.size.height));
  }

  /** In a view of another size, what was seen in the one before. */
  see([x, y, width, height]: Box): void {
    const zoom = Math.min(this.size.width / width, this.size.height / height);
    this.centre([x + width / 2, y + height / 2], this.clamped(zoom));
  }

  /** How far the middle of a box is from the middle of the view, in the picture's units. */
  distanceTo([left, top, width, height]: Box): number {
    const [x, y] = this.at(this.size.width / 2, this.size.height / 2);
    return Math.hypot(left + width / 2 - x, top + height / 2 - y);
  }

  /** Within the limits of zoom; what was to be in the middle is there at every zoom. */
  private reachable(look: CameraPose): CameraPose {
    const zoom = this.clamped(look.zoom);
    const [middle, centre] = [this.size.width / 2, this.size.height / 2];
    const share = zoom / look.zoom;
    return { zoom, x: middle - (middle - look.x) * share, y: centre - (centre - look.y) * share };
  }

  private clamped(zoom: number): number {
    return Math.min(this.options.most, Math.max(this.options.least, zoom));
  }
}

// The camera on its way: a short, straight move from one look to another, that gives way to whatever else moves it.

export const ANIMATION_MS = 180; // ms

export class CameraAnimation {
  private frame = 0;
  private reached?: CameraPose; // as the flight has left the camera

  constructor(private readonly camera: Camera) {}

  to(goal: CameraPose): void {
    cancelAnimationFrame(this.frame);
    const from = this.camera.pose;
    if (isMotionReduced()) {
      this.camera.moveTo(goal);
      return;
    }
    const begin = performance.now();
    this.reached = from;
    const step = (): void => {
      if (this.camera.pose !== this.reached) return; // moved by others
      const share = Math.min(1, (performance.now() - begin) / ANIMATION_MS);
      this.camera.moveTo(share < 1 ? interpolate(from, goal, 1 - (1 - share) ** 3) : goal);
      this.reached = this.camera.pose;
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }
}

/** Zoom grows by equal factors, about the one place on the screen that shows the same all the way. */
export function interpolate(from: CameraPose, goal: CameraPose, share: number): CameraPose {
  const zoom = from.zoom * (goal.zoom / from.zoom) ** share;
  const range = goal.zoom - from.zoom;
  const way = Math.abs(range) < 1e-9 * from.zoom ? share : (zoom - from.zoom) / range;
  return { zoom, x: from.x + (goal.x - from.x) * way, y: from.y + (goal.y - from.y) * way };
}
