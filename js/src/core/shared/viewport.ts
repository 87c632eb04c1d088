// Where the camera goes. Pure arithmetic.

import type { Box } from "../graph/layout";

export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

interface Extent {
  width: number;
  height: number;
}

const MARGIN = 22;
const LARGEST = 1.15; // small models are not blown up
const LEGIBLE = 0.62; // below it card text is hard to read
export const OVERVIEW = 0.3; // enough to see the shape of the whole

/** Everything in view. */
export function fitted(bounds: Box, width: number, height: number): Camera {
  return centred(bounds, width, height, Math.min(LARGEST, scaleFor(bounds, width, height)));
}

export function fitsLegibly(bounds: Box, { width, height }: Extent): boolean {
  return scaleFor(bounds, width, height) >= LEGIBLE;
}

/** Everything if it stays legible, else the full width from the top, else the beginning. */
export function opening(bounds: Box, width: number, height: number, legible = LEGIBLE): Camera {
  const whole = scaleFor(bounds, width, height);
  if (whole >= legible) {
    return fitted(bounds, width, height);
  }
  const across = (width - 2 * MARGIN) / bounds[2];
  const zoom = Math.min(0.9, Math.max(legible, across));
  const { x, y } = centred(bounds, width, height, zoom);
  return {
    zoom,
    x: bounds[2] * zoom > width - 2 * MARGIN ? MARGIN - bounds[0] * zoom : x,
    y: bounds[3] * zoom > height - 2 * MARGIN ? MARGIN - bounds[1] * zoom : y
  };
}

/** `from` has become `to`: its corner stays where it was, unless it then hangs out of view. */
export function anchored(camera: Camera, from: Box, to: Box, { width, height }: Extent): Camera {
  const { zoom } = camera;
  const x = camera.x + (from[0] - to[0]) * zoom;
  const y = camera.y + (from[1] - to[1]) * zoom;
  return {
    zoom,
    x: x + intoView(to[0] * zoom + x, to[2] * zoom, width),
    y: y + intoView(to[1] * zoom + y, to[3] * zoom, height)
  };
}

/** The box moved up where it would lie under what covers the corner at the bottom right. */
export function clearOf(camera: Camera, box: Box, { width, height }: Extent, corner: Extent): Camera {
  const right = (box[0] + box[2]) * camera.zoom + camera.x;
  const bottom = (box[1] + box[3]) * camera.zoom + camera.y;
  const top = bottom - box[3] * camera.zoom;
  const below = bottom - (height - corner.height);
  const isCovered = right > width - corner.width && below > 0;
  return isCovered ? { ...camera, y: camera.y - Math.max(0, Math.min(below, top - MARGIN)) } : camera;
}

/** Everything, where that is legible, not all is in view, and nobody looks closer; else `camera`. */
export function settled(camera: Camera, bounds: Box, { width, height }: Extent): Camera {
  const [left, top, across, down] = bounds.map(length => length * camera.zoom);
  const isSeen = isWithin(left + camera.x, across, width) && isWithin(top + camera.y, down, height);
  const isBetter = !isSeen && camera.zoom <= LARGEST && fitsLegibly(bounds, { width, height });
  return isBetter ? fitted(bounds, width, height) : camera;
}

/** How far a span has to move to be visible; one that is too long shows its start. */
function intoView(start: number, length: number, room: number): number {
  const end = start + length;
  if (start < MARGIN || length > room - 2 * MARGIN) {
    return start < MARGIN || end > room - MARGIN ? MARGIN - start : 0;
  }
  return Math.min(0, room - MARGIN - end);
}

function isWithin(start: number, length: number, room: number): boolean {
  return start >= 0 && start + length <= room;
}

function scaleFor(bounds: Box, width: number, height: number): number {
  return Math.max(0.02, Math.min((width - 2 * MARGIN) / bounds[2], (height - 2 * MARGIN) / bounds[3]));
}

function centred([x, y, w, h]: Box, width: number, height: number, zoom: number): Camera {
  return { zoom, x: width / 2 - (x + w / 2) * zoom, y: height / 2 - (y + h / 2) * zoom };
}
