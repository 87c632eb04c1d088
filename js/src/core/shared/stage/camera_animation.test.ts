import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { interpolate, Camera, CameraAnimation, ANIMATION_MS } from "./camera";
import { applySettings } from "../base/settings";

function made() {
  const camera = new Camera({ least: 0.04, most: 4, isOverview: false }, () => {});
  camera.resize({ width: 800, height: 500 });
  return { camera, flight: new CameraAnimation(camera) };
}

const goal = { x: 100, y: -40, zoom: 2 };

beforeEach(() => void vi.useFakeTimers({ toFake: ["requestAnimationFrame", "cancelAnimationFrame", "performance"] }));
afterEach(() => {
  vi.useRealTimers();
  applySettings({ reducedMotion: false });
});

describe("Flight", () => {
  it("is there in no more than 200 ms, by way of looks in between", () => {
    const { camera, flight } = made();
    flight.to(goal);
    vi.advanceTimersByTime(60);
    expect(camera.pose.zoom).toBeGreaterThan(1);
    expect(camera.pose.zoom).toBeLessThan(2);
    vi.advanceTimersByTime(200 - 60);
    expect(ANIMATION_MS).toBeLessThanOrEqual(200);
    expect(camera.pose).toEqual(goal);
  });

  it("gives way to whoever else moves the camera", () => {
    const { camera, flight } = made();
    flight.to(goal);
    vi.advanceTimersByTime(60);
    camera.panBy(5, 0);
    const { pose } = camera;
    vi.advanceTimersByTime(400);
    expect(camera.pose).toBe(pose);
  });

  it("is a jump for who wants no motion", () => {
    const { camera, flight } = made();
    applySettings({ reducedMotion: true });
    flight.to(goal);
    expect(camera.pose).toEqual(goal);
  });
});

it("a flight zooms about one place of the screen, which shows the same all the way", () => {
  const from = { x: 30, y: 20, zoom: 0.5 };
  // what is at (px, py) on the screen at both ends
  const fixed = (a: number, b: number) => (a * goal.zoom - b * from.zoom) / (goal.zoom - from.zoom);
  const [px, py] = [fixed(from.x, goal.x), fixed(from.y, goal.y)];
  for (const share of [0, 0.3, 0.8, 1]) {
    const { x, y, zoom } = interpolate(from, goal, share);
    expect((px - x) / zoom).toBeCloseTo((px - from.x) / from.zoom);
    expect((py - y) / zoom).toBeCloseTo((py - from.y) / from.zoom);
  }
  expect(interpolate(from, { ...from, x: 90 }, 0.5)).toEqual({ ...from, x: 60 });
});
