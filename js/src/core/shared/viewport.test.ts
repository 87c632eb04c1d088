import { describe, expect, it } from "vitest";
import { anchored, type Box, fitted, opening, settled } from "./viewport";

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
      const [x, y, w, h] = onScreen(bounds, fitted(bounds, WIDTH, HEIGHT));
      expect(x).toBeGreaterThanOrEqual(0);
      expect(y).toBeGreaterThanOrEqual(0);
      expect(x + w).toBeLessThanOrEqual(WIDTH);
      expect(y + h).toBeLessThanOrEqual(HEIGHT);
      expect(x + w / 2).toBeCloseTo(WIDTH / 2);
    }
    expect(fitted([0, 0, 100, 50], WIDTH, HEIGHT).zoom).toBeLessThanOrEqual(1.2);
  });

  it("opens legibly at the beginning where all would be too small", () => {
    const camera = opening([0, 0, 900, 9000], WIDTH, HEIGHT);
    const [x, y, w] = onScreen([0, 0, 900, 9000], camera);
    expect(camera.zoom).toBeGreaterThan(0.6);
    expect(y).toBeGreaterThan(0);
    expect(x).toBeGreaterThanOrEqual(0);
    expect(x + w).toBeLessThanOrEqual(WIDTH);
  });

  it("keeps the corner of what was opened in place", () => {
    const camera = { x: 10, y: 20, zoom: 0.8 };
    const after = anchored(camera, [100, 100, 120, 60], [180, 140, 300, 200], { width: WIDTH, height: HEIGHT });
    expect(onScreen([180, 140, 300, 200], after).slice(0, 2)).toEqual(
      onScreen([100, 100, 120, 60], camera).slice(0, 2)
    );
  });

  it("moves what hangs out of view into it", () => {
    const camera = { x: 0, y: 0, zoom: 1 };
    const [x, y] = onScreen(
      [700, -90, 200, 100],
      anchored(camera, [700, -90, 200, 100], [700, -90, 200, 100], { width: WIDTH, height: HEIGHT })
    );
    expect(x + 200).toBeLessThanOrEqual(WIDTH);
    expect(y).toBeGreaterThanOrEqual(0);
  });

  it("shows a wide overview whole where that is asked for", () => {
    const bounds: Box = [0, 0, 2000, 600];
    const [, , w] = onScreen(bounds, opening(bounds, WIDTH, HEIGHT, 0.3));
    expect(w).toBeLessThanOrEqual(WIDTH);
    expect(onScreen(bounds, opening(bounds, WIDTH, HEIGHT))[2]).toBeGreaterThan(WIDTH);
  });

  it("settles on the whole only where that shows more and stays legible", () => {
    const extent = { width: WIDTH, height: HEIGHT };
    const bounds: Box = [0, 0, 900, 500];
    const halfOut = { x: -300, y: 10, zoom: 0.9 };
    expect(settled(halfOut, bounds, extent)).toEqual(fitted(bounds, WIDTH, HEIGHT));
    expect(settled({ ...halfOut, zoom: 2 }, bounds, extent)).toMatchObject({ zoom: 2, x: -300 });
    expect(settled(halfOut, [0, 0, 9000, 500], extent)).toBe(halfOut);
    const seen = { x: 5, y: 5, zoom: 0.5 };
    expect(settled(seen, bounds, extent)).toBe(seen);
  });
});
