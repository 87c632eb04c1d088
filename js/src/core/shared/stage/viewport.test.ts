import { describe, expect, it } from "vitest";
import {
  keepCorner,
  type Box,
  fitBounds,
  type CameraPose,
  MARGIN,
  initialPose,
  type Point,
  refit,
  fitNear
} from "./viewport";

const [WIDTH, HEIGHT] = [800, 500];
const onScreen = ([x, y, w, h]: Box, camera: { x: number; y: number; zoom: number }): Box => {
  return [x * camera.zoom + camera.x, y * camera.zoom + camera.y, w * camera.zoom, h * camera.zoom];
};

describe("camera", () => {
  it("fits everything, centred, without blowing it up", () => {
    for (const bounds of [
      [0, 0, 100, 50],
      [-500, 20, 4000, 300],
      [0, 0, 50, 9000]
    ] as Box[]) {
      const [x, y, w, h] = onScreen(bounds, fitBounds(bounds, WIDTH, HEIGHT));
      expect(x).toBeGreaterThanOrEqual(0);
      expect(y).toBeGreaterThanOrEqual(0);
      expect(x + w).toBeLessThanOrEqual(WIDTH);
      expect(y + h).toBeLessThanOrEqual(HEIGHT);
      expect(x + w / 2).toBeCloseTo(WIDTH / 2);
    }
    expect(fitBounds([0, 0, 100, 50], WIDTH, HEIGHT).zoom).toBeLessThanOrEqual(1.2);
  });

  it("opens legibly at the beginning where all would be too small", () => {
    const camera = initialPose([0, 0, 900, 9000], WIDTH, HEIGHT);
    const [x, y, w] = onScreen([0, 0, 900, 9000], camera);
    expect(camera.zoom).toBeGreaterThan(0.6);
    expect(y).toBeGreaterThan(0);
    expect(x).toBeGreaterThanOrEqual(0);
    expect(x + w).toBeLessThanOrEqual(WIDTH);
  });

  it("keeps the corner of what was opened in place", () => {
    const camera = { x: 10, y: 20, zoom: 0.8 };
    const after = keepCorner(camera, [100, 100, 120, 60], [180, 140, 300, 200], { width: WIDTH, height: HEIGHT });
    expect(onScreen([180, 140, 300, 200], after).slice(0, 2)).toEqual(
      onScreen([100, 100, 120, 60], camera).slice(0, 2)
    );
  });

  it("moves what hangs out of view into it", () => {
    const camera = { x: 0, y: 0, zoom: 1 };
    const [x, y] = onScreen(
      [700, -90, 200, 100],
      keepCorner(camera, [700, -90, 200, 100], [700, -90, 200, 100], { width: WIDTH, height: HEIGHT })
    );
    expect(x + 200).toBeLessThanOrEqual(WIDTH);
    expect(y).toBeGreaterThanOrEqual(0);
  });

  it("shows a wide overview whole where that is asked for", () => {
    const bounds: Box = [0, 0, 2000, 600];
    const [, , w] = onScreen(bounds, initialPose(bounds, WIDTH, HEIGHT, 0.3));
    expect(w).toBeLessThanOrEqual(WIDTH);
    expect(onScreen(bounds, initialPose(bounds, WIDTH, HEIGHT))[2]).toBeGreaterThan(WIDTH);
  });

  it("settles on the whole only where that shows more and stays legible", () => {
    const extent = { width: WIDTH, height: HEIGHT };
    const bounds: Box = [0, 0, 900, 500];
    const halfOut = { x: -300, y: 10, zoom: 0.9 };
    const settle = (look: typeof halfOut, all = bounds) => refit(look, all, extent, [0, 0]);
    expect(settle(halfOut).zoom).toBe(fitBounds(bounds, WIDTH, HEIGHT).zoom);
    expect(settle(halfOut).x).toBeCloseTo(MARGIN);
    expect(settle({ ...halfOut, zoom: 2 })).toMatchObject({ zoom: 2, x: -300 });
    expect(settle(halfOut, [0, 0, 9000, 500])).toBe(halfOut);
    const seen = { x: 5, y: 5, zoom: 0.5 };
    expect(settle(seen)).toBe(seen);
  });

  it("shows the whole without a leap: no closer than before, and the point stays where there is room", () => {
    const extent = { width: WIDTH, height: HEIGHT };
    const at = ([x, y]: Point, look: CameraPose) => [x * look.zoom + look.x, y * look.zoom + look.y];
    const point: Point = [300, 200];
    const small: Box = [0, 0, 400, 300];
    const look = { x: 100, y: 60, zoom: 0.9 };
    expect(fitNear(look, small, extent, point)).toEqual(look);
    const large: Box = [0, 0, 800, 400]; // less zoom is needed: about the point, no less than for it
    const next = fitNear(look, large, extent, point);
    expect(next.zoom).toBeLessThan(0.9);
    expect(next.zoom).toBeGreaterThan(0.8 * 0.9);
    expect(next.x + 800 * next.zoom).toBeCloseTo(WIDTH - 6);
    at(point, next).forEach((place, k) => expect(place).toBeCloseTo(at(point, look)[k]));
    const long: Box = [0, 0, 1000, 300]; // it would be too small: the point gives way
    const moved = fitNear(look, long, extent, point);
    expect(moved.zoom).toBe(fitBounds(long, WIDTH, HEIGHT).zoom);
    expect(moved.x).toBeCloseTo(MARGIN);
    expect(at(point, moved)[1]).toBeCloseTo(at(point, look)[1]);
    // what could not be read is shown larger
    expect(fitNear({ ...look, zoom: 0.3 }, small, extent, point).zoom).toBe(fitBounds(small, WIDTH, HEIGHT).zoom);
  });
});
