import type { Core } from "cytoscape";
import { describe, expect, it } from "vitest";
import { GraphCamera } from "./camera";
import type { Box } from "./layout";
import type { Placed } from "./routes";

const [WIDTH, HEIGHT] = [800, 500];

/** The part of cytoscape that a camera uses. */
function stage(overview = false) {
  let now = { zoom: 1, pan: { x: 0, y: 0 } };
  let touch = () => {};
  const cy = {
    on: (_: string, handler: () => void) => (touch = handler),
    width: () => WIDTH,
    height: () => HEIGHT,
    zoom: () => now.zoom,
    pan: () => now.pan,
    viewport: (next: typeof now) => (now = next)
  };
  const camera = new GraphCamera(cy as unknown as Core, overview);
  const onScreen = ([x, y, w, h]: Box): Box => [
    x * now.zoom + now.pan.x,
    y * now.zoom + now.pan.y,
    w * now.zoom,
    h * now.zoom
  ];
  return { camera, onScreen, touch: () => touch(), look: (next: typeof now) => (now = next), now: () => now };
}

const placed = (boxes: Record<string, Box>) =>
  ({ scene: { nodes: Object.keys(boxes).map(id => ({ id })) }, boxes: Object.values(boxes) }) as unknown as Placed;

const isSeen = ([x, y, w, h]: Box) => x >= 0 && y >= 0 && x + w <= WIDTH && y + h <= HEIGHT;

const open = placed({ a: [0, 0, 100, 50], stage: [0, 100, 700, 2000] });
const closed = placed({ a: [0, 0, 100, 50], stage: [0, 100, 120, 50] });

describe("GraphCamera", () => {
  it("shows everything after a collapse that makes room for it", () => {
    const { camera, onScreen, touch, look } = stage();
    camera.open(open.boxes);
    camera.keep("stage", open, closed);
    expect(closed.boxes.map(onScreen).every(isSeen)).toBe(true);
    touch();
    look({ zoom: 1, pan: { x: -20, y: -1500 } });
    camera.keep("stage", open, closed);
    expect(closed.boxes.map(onScreen).every(isSeen)).toBe(true);
  });

  it("leaves whoever looks closer where they are, with the toggled card in view", () => {
    const { camera, onScreen, touch, look, now } = stage();
    touch();
    look({ zoom: 3, pan: { x: 10, y: -900 } });
    camera.keep("stage", open, closed);
    expect(now().zoom).toBe(3);
    expect(isSeen(onScreen(closed.boxes[1]))).toBe(true);
  });

  it("keeps an opened group in view where not all fits", () => {
    const { camera, onScreen, touch, now } = stage();
    touch();
    camera.keep("stage", closed, open);
    expect(now().zoom).toBe(1);
    expect(onScreen(open.boxes[1])[1]).toBeGreaterThanOrEqual(0);
  });

  it("opens an overview as a whole", () => {
    const boxes: Box[] = [
      [0, 0, 100, 50],
      [1800, 0, 100, 50]
    ];
    const [overview, plain] = [stage(true), stage()];
    overview.camera.open(boxes);
    plain.camera.open(boxes);
    expect(boxes.map(overview.onScreen).every(isSeen)).toBe(true);
    expect(boxes.map(plain.onScreen).every(isSeen)).toBe(false);
  });
});
