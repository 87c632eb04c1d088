import { describe, expect, it } from "vitest";
import { hierarchyOf, smallNet, storeOf } from "../../../testing/sample";
import {
  colorOf,
  contrast,
  textColorOn,
  luminance,
  MISSING_COLOR,
  NOT_FINITE_COLOR,
  sample,
  scaleOf,
  valueOf
} from "./color";

const steps = Array.from({ length: 257 }, (_, i) => i / 256);

describe("scale", () => {
  it("gets lighter all the way", () => {
    const light = steps.map(step => luminance(sample(step)));
    // channels are whole numbers, so neighbours may differ by their rounding
    light.slice(1).forEach((value, i) => expect(value).toBeGreaterThan(light[i] - 0.002));
    light.slice(8).forEach((value, i) => expect(value).toBeGreaterThan(light[i]));
    expect(light[256] - light[0]).toBeGreaterThan(0.7);
  });

  it("keeps text readable everywhere", () => {
    for (const color of [...steps.map(sample), MISSING_COLOR, NOT_FINITE_COLOR, "#777777", "#fff", "rgb(10, 20, 30)"]) {
      expect(contrast(color, textColorOn(color))).toBeGreaterThanOrEqual(4.5);
    }
  });

  it("is logarithmic over wide ranges, and zero has its place", () => {
    const scale = scaleOf(smallNet(), storeOf({ colorBy: "params" }));
    expect(scale?.logarithmic).toBe(true);
    expect([scale?.min, scale?.max]).toEqual([0, 1_000_000]);
    const places = [0, 100, 128, 400, 1_000_000].map(value => scale?.position(value) ?? -1);
    expect(places[0]).toBe(0);
    expect(places[4]).toBe(1);
    places.slice(1).forEach((place, i) => expect(place).toBeGreaterThan(places[i]));
    for (const place of [0, 0.3, 0.5, 1]) expect(scale?.position(scale.at(place))).toBeCloseTo(place);
  });

  it("is linear over narrow or negative ranges", () => {
    const of = (a: number, b: number) =>
      scaleOf(
        hierarchyOf({
          inside: [
            { name: "a", params: a },
            { name: "b", params: b }
          ]
        }),
        storeOf({ colorBy: "params" })
      );
    expect(of(10, 900)?.logarithmic).toBe(false);
    expect(of(-1, 1e6)?.logarithmic).toBe(false);
    expect(of(10, 900)?.position(455)).toBeCloseTo(0.5);
    expect(of(7, 7)?.position(7)).toBe(0.5);
  });
});

describe("color of nodes", () => {
  it("is null when nothing is colored or the column is unknown", () => {
    for (const colorBy of ["none", "speed", "__proto__", "constructor"]) {
      expect(colorOf(smallNet(), storeOf({ colorBy }))(1)).toBeNull();
    }
  });

  it("follows the store", () => {
    const store = storeOf();
    const color = colorOf(smallNet(), store);
    expect(color(1)).toBeNull();
    store.set("colorBy", "params");
    expect(color(1)).toBe(sample(1));
    store.set("colorBy", "overlay");
    store.set("overlay", { fc: 1, conv1: 2 });
    expect(color(1)).toBe(sample(1));
    store.set("overlay", { fc: 2, conv1: 1 });
    expect(color(1)).toBe(sample(0));
  });

  it("tells missing from not finite, and counts both", () => {
    const h = smallNet();
    const store = storeOf({ colorBy: "overlay", overlay: { conv1: 1, bn1: "NaN", fc: "Infinity", nowhere: 3 } });
    const color = colorOf(h, store);
    expect([color(2), color(16), color(5)]).toEqual([NOT_FINITE_COLOR, NOT_FINITE_COLOR, MISSING_COLOR]);
    const scale = scaleOf(h, store);
    expect([scale?.notFinite, scale?.missing]).toEqual([2, 8]);
  });

  it("gives containers the mean of what lies inside and says so", () => {
    const h = smallNet();
    const store = storeOf({
      colorBy: "overlay",
      overlay: {
        "layer1.0.conv": 1,
        "layer1.0.relu": 3,
        "layer1.1": 8,
        "layer1.1.conv": 100,
        "layer1.2.conv": "NaN",
        "layer1.3.conv": "NaN",
        "layer1.3.relu": 6
      }
    });
    expect(valueOf(h, store, 4)).toEqual({ value: 2, note: "mean of 2 modules" });
    expect(valueOf(h, store, 7)).toEqual({ value: 8, note: "" });
    expect(valueOf(h, store, 10)?.value).toBeNaN();
    expect(valueOf(h, store, 13)).toEqual({ value: 6, note: "mean of 1 module" });
    expect(valueOf(h, store, 3)).toEqual({ value: 4.5, note: "mean of 4 modules" });
    expect(scaleOf(h, store)?.aggregate).toBe("mean");
    store.set("colorBy", "params");
    expect(valueOf(h, store, 3)).toEqual({ value: 400, note: "sum of children" });
  });

  it("has a scale without values too", () => {
    const scale = scaleOf(smallNet(), storeOf({ colorBy: "overlay", overlay: {} }));
    expect(scale?.min).toBeNaN();
    expect(scale?.missing).toBe(11);
  });
});
