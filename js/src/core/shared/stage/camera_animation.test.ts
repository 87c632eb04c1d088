import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { between, Camera, Flight, LONGEST_FLIGHT } from "./camera";
import { setPreferences } from "../base/preferences";

function made() {
  const camera = new Camera({ least: 0.04, most: 4, isOverview: false }, () => {});
  camera.resize({ width: 800, height: 500 });
  return { camera, flight: new Flight(camera) };
}

const goal = { x: 100, y: -40, zoom: 2 };

beforeEach(() => void vi.useFakeTimers({ toFake: ["requestAnimationFrame", "cancelAnimationFrame", "performance"] }));
afterEach(() => {
  vi.useRealTimers();
  setPreferences({ calm: false });
});

describe("Flight", () => {
  it("is there in no more than 200 ms, by way of looks in between", () => {
    const { camera, flight } = made();
    flight.to(goal);
    vi.advanceTimersByTime(60);
    expect(camera.look.zoom).toBeGreaterThan(1);
    expect(camera.look.zoom).toBeLessThan(2);
    vi.advanceTimersByTime(200 - 60);
    expect(LONGEST_FLIGHT).toBeLessThanOrEqual(200);
    expect(camera.look).toEqual(goal);
  });

  it("gives way to whoever else moves the camera", () => {
    const { camera, flight } = made();
    flight.to(goal);
    vi.advanceTimersByTime(60);
    camera.panBy(5, 0);
    const { look } = camera;
    vi.advanceTimersByTime(400);
    expect(camera.look).toBe(look);
  });

  it("is a jump for who wants no motion", () => {
    const { camera, flight } = made();
    setPreferences({ calm: true });
    flight.to(goal);
    expect(camera.look).toEqual(goal);
  });
});

it("a flight zooms about one place of the screen, which shows the same all the way", () => {
  const from = { x: 30, y: 20, zoom: 0.5 };
  // what is at (px, py) on the screen at both ends
  const fixed = (a: number, b: number) => (a * goal.zoom - b * from.zoom) / (goal.zoom - from.zoom);
  const [px, py] = [fixed(from.x, goal.x), fixed(from.y, goal.y)];
  for (const share of [0, 0.3, 0.8, 1]) {
    const { x, y, zoom } = between(from, goal, share);
    expect((px - x) / zoom).toBeCloseTo((px - from.x) / from.zoom);
    expect((py - y) / zoom).toBeCloseTo((py - from.y) / from.zoom);
  }
  expect(between(from, { ...from, x: 90 }, 0.5)).toEqual({ ...from, x: 60 });
});
