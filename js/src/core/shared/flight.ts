// The camera on its way: a short, straight move from one look to another, that gives way to whatever else moves it.

import type { Camera } from "./camera";
import { isCalm } from "./preferences";
import type { Look } from "./viewport";

export const LONGEST_FLIGHT = 180; // ms

export class Flight {
  private frame = 0;
  private reached?: Look; // as the flight has left the camera

  constructor(private readonly camera: Camera) {}

  to(goal: Look): void {
    cancelAnimationFrame(this.frame);
    const from = this.camera.look;
    if (isCalm()) {
      this.camera.moveTo(goal);
      return;
    }
    const begin = performance.now();
    this.reached = from;
    const step = (): void => {
      if (this.camera.look !== this.reached) return; // moved by others
      const share = Math.min(1, (performance.now() - begin) / LONGEST_FLIGHT);
      this.camera.moveTo(share < 1 ? between(from, goal, 1 - (1 - share) ** 3) : goal);
      this.reached = this.camera.look;
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  dispose(): void {
    cancelAnimationFrame(this.frame);
  }
}

/** Zoom grows by equal factors, about the one place on the screen that shows the same all the way. */
export function between(from: Look, goal: Look, share: number): Look {
  const zoom = from.zoom * (goal.zoom / from.zoom) ** share;
  const range = goal.zoom - from.zoom;
  const way = Math.abs(range) < 1e-9 * from.zoom ? share : (zoom - from.zoom) / range;
  return { zoom, x: from.x + (goal.x - from.x) * way, y: from.y + (goal.y - from.y) * way };
}
