import { describe, expect, it, vi } from "vitest";
import { Camera } from "./camera";
import type { Box, CameraPose } from "./viewport";

const [WIDTH, HEIGHT] = [800, 500];

function stage(isOverview = false) {
  const camera = new Camera({ least: 0.04, most: 4, isOverview }, () => {});
  camera.resize({ width: WIDTH, height: HEIGHT });
  const now = () => camera.pose;
  const onScreen = ([x, y, w, h]: Box): Box => {
    const { x: left, y: top, zoom } = now();
    return [x * zoom + left, y * zoom + top, w * zoom, h * zoom];
  };
  const keep = (id: string, before: Record<string, Box>, after: Record<string, Box>) =>
    camera.keep(before[id], after[id], Object.values(after));
  return {
    camera,
    keep,
    onScreen,
    touch: () => camera.panBy(0, 0),
    look: (next: CameraPose) => camera.moveTo(next),
    now
  };
}

const isSeen = ([x, y, w, h]: Box) => x >= 0 && y >= 0 && x + w <= WIDTH && y + h <= HEIGHT;

const open: Record<string, Box> = { a: [0, 0, 100, 50], stage: [0, 100, 700, 2000] };
const closed: Record<string, Box> = { a: [0, 0, 100, 50], stage: [0, 100, 120, 50] };

describe("Camera", () => {
  it("tells of its moves, and of nothing else", () => {
    const moved = vi.fn();
    const camera = new Camera({ least: 0.04, most: 4, isOverview: false }, moved);
    camera.resize({ width: WIDTH, height: HEIGHT });
    camera.open([[0, 0, 100, 50]]);
    expect(moved).toHaveBeenCalledTimes(1);
    camera.show([10, 10, 20, 20]); // in view already
    camera.panBy(0, 0);
    expect(moved).toHaveBeenCalledTimes(1);
    camera.panBy(0, 1);
    expect(moved).toHaveBeenCalledTimes(2);
  });

  it("shows everything after a collapse that makes room for it", () => {
    const { camera, keep, onScreen, touch, look } = stage();
    camera.open(Object.values(open));
    keep("stage", open, closed);
    expect(Object.values(closed).map(onScreen).every(isSeen)).toBe(true);
    touch();
    look({ zoom: 1, x: -20, y: -1500 });
    keep("stage", open, closed);
    expect(Object.values(closed).map(onScreen).every(isSeen)).toBe(true);
  });

  it("leaves a card where it was clicked where all can be seen with it there", () => {
    const { camera, keep, onScreen } = stage();
    const [row, frame]: Box[] = [
      [200, 100, 120, 50],
      [200, 100, 300, 120]
    ];
    const before = { a: [0, 0, 500, 50] as Box, stage: row };
    const after = { a: [0, 0, 500, 50] as Box, stage: frame };
    camera.open(Object.values(before));
    const place = onScreen(row).slice(0, 2);
    keep("stage", before, after);
    expect(onScreen(frame).slice(0, 2)).toEqual(place);
    keep("stage", after, before);
    expect(onScreen(row).slice(0, 2)).toEqual(place);
  });

  it("leaves whoever looks closer where they are, with the toggled card in view", () => {
    const { keep, onScreen, touch, look, now } = stage();
    touch();
    look({ zoom: 3, x: 10, y: -900 });
    keep("stage", open, closed);
    expect(now().zoom).toBe(3);
    expect(isSeen(onScreen(closed.stage))).toBe(true);
  });

  it("leaves the corner of what was clicked where it is, in whatever else there is no room for", () => {
    const { keep, onScreen, touch, look, now } = stage();
    touch();
    look({ zoom: 1, x: 300, y: 200 });
    keep("stage", closed, open); // 700 × 2000 at 300, 300
    expect(onScreen(open.stage).slice(0, 2)).toEqual([300, 300]);
    keep("stage", open, closed);
    expect(onScreen(closed.stage).slice(0, 2)).toEqual([300, 300]);
    expect(now().zoom).toBe(1);
  });

  it("moves what opens at the rim only as far as shows its name", () => {
    const { keep, onScreen, touch, look } = stage();
    touch();
    look({ zoom: 1, x: 780, y: 390 });
    keep("stage", closed, open);
    const [x, y] = onScreen(open.stage);
    expect(x).toBe(WIDTH - 22 - 100);
    expect(y).toBe(HEIGHT - 22 - 44);
  });

  it("shows all a little smaller rather than from another place", () => {
    const { camera, keep, onScreen, now } = stage();
    const before: Record<string, Box> = { a: [0, 0, 700, 50], stage: [500, 100, 100, 50] };
    const after: Record<string, Box> = { a: [0, 0, 700, 50], stage: [500, 100, 250, 120] };
    camera.open(Object.values(before));
    const [zoom, place] = [now().zoom, onScreen(before.stage)];
    keep("stage", before, after);
    onScreen(after.stage)
      .slice(0, 2)
      .forEach((at, k) => expect(at).toBeCloseTo(place[k]));
    expect(Object.values(after).map(onScreen).every(isSeen)).toBe(true);
    expect(now().zoom).toBeLessThan(zoom);
    expect(now().zoom).toBeGreaterThanOrEqual(0.8 * zoom);
  });

  it("keeps an opened group in view where not all fits", () => {
    const { keep, onScreen, touch, now } = stage();
    touch();
    keep("stage", closed, open);
    expect(now().zoom).toBe(1);
    expect(onScreen(open.stage)[1]).toBeGreaterThanOrEqual(0);
  });

  it("opens what is a little too large as a whole, rather than with its ends out of sight", () => {
    const boxes: Box[] = [
      [0, 0, 100, 50],
      [0, 850, 100, 50]
    ];
    const { camera, onScreen, now } = stage();
    camera.open(boxes);
    expect(boxes.map(onScreen).every(isSeen)).toBe(true);
    expect(now().zoom).toBeLessThan(0.7);
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
