// Camera poses and viewports: fit, zoom and pan as pure arithmetic.

export type Box = [x: number, y: number, width: number, height: number];
export type Point = readonly [x: number, y: number];

/** Where the origin of the picture is on the screen, in CSS pixels, and how long one of its units is there. */
export interface CameraPose {
  x: number;
  y: number;
  zoom: number;
}

export interface Extent {
  width: number; // CSS pixels
  height: number;
}

/** All that a painter has to know. */
export interface Viewport extends CameraPose, Extent {
  ratio: number; // device pixels to one
}

export const MARGIN = 22; // around what is shown as a whole
const EDGE = 6; // of the view: what stays in place may come as close as this
const STEP = 0.8; // how much smaller all may become for it
const INSIDE: Extent = { width: 100, height: 44 }; // of a frame that is left in sight: its name
const MAX_FIT_ZOOM = 1.15; // small models are not blown up
export const LEGIBLE_ZOOM = 0.7; // cards and the room for their text are laid out for it
export const MIN_WHOLE_ZOOM = 0.5; // of what cannot be drawn with less: small names are better than an end out of sight
export const OVERVIEW_ZOOM = 0.3; // enough to see the shape of the whole

export const LEAST_TEXT = 10; // CSS pixels on the screen of all that is written

/** The size of letters of which it is this at least, and large enough to be read at a zoom. */
export function sizeAt(size: number, zoom: number): number {
  return Math.max(size, Math.ceil(LEAST_TEXT / zoom));
}

/** Everything in view. */
export function fitBounds(bounds: Box, width: number, height: number): CameraPose {
  return centred(bounds, width, height, Math.min(MAX_FIT_ZOOM, scaleFor(bounds, width, height)));
}

export function fitsLegibly(bounds: Box, { width, height }: Extent, zoom = LEGIBLE_ZOOM): boolean {
  return scaleFor(bounds, width, height) >= zoom;
}

/** Everything if it stays legible, else the full width from the top, else the beginning. */
export function initialPose(bounds: Box, width: number, height: number, legible = LEGIBLE_ZOOM): CameraPose {
  const whole = scaleFor(bounds, width, height);
  if (whole >= legible) {
    return fitBounds(bounds, width, height);
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
export function keepCorner(look: CameraPose, from: Box, to: Box, { width, height }: Extent): CameraPose {
  const { zoom } = look;
  const x = look.x + (from[0] - to[0]) * zoom;
  const y = look.y + (from[1] - to[1]) * zoom;
  return {
    zoom,
    x: x + intoView(to[0] * zoom + x, to[2] * zoom, width),
    y: y + intoView(to[1] * zoom + y, to[3] * zoom, height)
  };
}

/** `from`, whose corner is in view, has become `to`: the corner stays where it is, or as near as shows its name. */
export function keepCornerVisible(look: CameraPose, from: Box, to: Box, { width, height }: Extent): CameraPose {
  const { zoom } = look;
  const place = (start: number, before: number, length: number, least: number, room: number) => {
    const seen = Math.min(length, least, room - 2 * MARGIN);
    return Math.min(before, Math.max(MARGIN, room - MARGIN - seen)) - start * zoom;
  };
  return {
    zoom,
    x: place(to[0], look.x + from[0] * zoom, to[2] * zoom, INSIDE.width, width),
    y: place(to[1], look.y + from[1] * zoom, to[3] * zoom, INSIDE.height, height)
  };
}

export function isCornerVisible({ x, y, zoom }: CameraPose, [left, top]: Box, { width, height }: Extent): boolean {
  return isWithin(left * zoom + x, 0, width) && isWithin(top * zoom + y, 0, height);
}

/** Everything, where that is legible, not all is in view, and nobody looks closer; else `look`. */
export function refit(look: CameraPose, bounds: Box, extent: Extent, fixed: Point): CameraPose {
  const { width, height } = extent;
  const [left, top, across, down] = bounds.map(length => length * look.zoom);
  const isSeen = isWithin(left + look.x, across, width) && isWithin(top + look.y, down, height);
  const isBetter = !isSeen && look.zoom <= MAX_FIT_ZOOM && fitsLegibly(bounds, extent);
  return isBetter ? fitNear(look, bounds, extent, fixed) : look;
}

/** Everything in view, no closer than it was if that is legible, with `fixed` as near to its place as there is room:
 * a little smaller where it can stay there then. */
export function fitNear(look: CameraPose, bounds: Box, { width, height }: Extent, [x, y]: Point): CameraPose {
  const whole = fitBounds(bounds, width, height);
  const [left, top, across, down] = bounds;
  const spans = [
    { start: left, end: left + across, room: width, point: x, origin: look.x },
    { start: top, end: top + down, room: height, point: y, origin: look.y }
  ];
  const most = look.zoom < LEGIBLE_ZOOM ? whole.zoom : Math.min(look.zoom, whole.zoom);
  const fixed = Math.min(most, ...spans.map(span => zoomAbout(span, look.zoom)));
  const zoom = fixed >= Math.max(LEGIBLE_ZOOM, STEP * look.zoom) ? fixed : most;
  const near = ({ start, end, room, origin, point }: Span) => {
    const free = origin + point * (look.zoom - zoom); // the point does not move
    if (Math.min(free + start * zoom, room - free - end * zoom) > EDGE - 1) return free;
    const [first, last] = [MARGIN - start * zoom, room - MARGIN - end * zoom];
    return first < last ? Math.min(last, Math.max(first, free)) : (first + last) / 2;
  };
  return { zoom, x: near(spans[0]), y: near(spans[1]) };
}

/** How far the point of the picture is from one look to another, on the screen. */
export function displacement(from: CameraPose, to: CameraPose, [x, y]: Point): number {
  const zoom = to.zoom - from.zoom;
  return Math.hypot(to.x - from.x + x * zoom, to.y - from.y + y * zoom);
}

interface Span {
  start: number; // in the picture
  end: number;
  point: number; // in it
  room: number; // on the screen
  origin: number; // of the picture, there
}

/** The zoom at which all of it is in view while the point stays where it is on the screen. */
function zoomAbout({ start, end, point, room, origin }: Span, before: number): number {
  const place = origin + point * before;
  const share = (free: number, length: number) => (length > 0 ? Math.max(0, free) / length : Infinity);
  return Math.min(share(place - EDGE, point - start), share(room - EDGE - place, end - point));
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

function centred([x, y, w, h]: Box, width: number, height: number, zoom: number): CameraPose {
  return { zoom, x: width / 2 - (x + w / 2) * zoom, y: height / 2 - (y + h / 2) * zoom };
}

/** The smallest box around everything. */
export function boundsOf(boxes: readonly Box[]): Box {
  let [left, top, right, bottom] = boxes.length > 0 ? [Infinity, Infinity, -Infinity, -Infinity] : [0, 0, 1, 1];
  for (const [x, y, width, height] of boxes) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x + width);
    bottom = Math.max(bottom, y + height);
  }
  return [left, top, right - left, bottom - top];
}
