import { describe, expect, it } from "vitest";
import { contrast } from "../../shared/stage/color";
import { ColorBook, COLORS, lineColor, runDash, sharingGrey } from "./chart_theme";

const slots = Array.from({ length: COLORS }, (_, slot) => slot);

// Machado, Oliveira and Fernandes 2009, at full strength
const VISIONS: Record<string, number[][]> = {
  "any kind": [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1]
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998]
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881]
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039]
  ]
};

const times = (matrix: number[][], vector: number[]) =>
  matrix.map(row => row.reduce((sum, factor, i) => sum + factor * vector[i], 0));

function linear(color: string): number[] {
  return [1, 3, 5].map(at => {
    const share = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
}

function oklab(rgb: number[]): number[] {
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005]
    ],
    rgb.map(channel => Math.min(1, Math.max(0, channel)))
  ).map(Math.cbrt);
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766]
    ],
    cones
  );
}

describe("lineColor", () => {
  it.each([
    ["light", false, "#ffffff"],
    ["dark", true, "#212121"]
  ] as const)("stands out from %s ground", (_, dark, ground) => {
    expect(Math.min(...slots.map(slot => contrast(lineColor(slot, dark), ground)))).toBeGreaterThanOrEqual(3);
  });

  it.each(Object.keys(VISIONS))("can be told apart with %s of color vision", vision => {
    for (const dark of [false, true]) {
      const places = slots.map(slot => oklab(times(VISIONS[vision], linear(lineColor(slot, dark)))));
      const distances = places.flatMap((a, i) =>
        places.slice(i + 1).map(b => Math.hypot(...a.map((x, k) => x - b[k])))
      );
      expect(Math.min(...distances)).toBeGreaterThan(0.1);
    }
  });
});

describe("runDash", () => {
  it("differs from run to run, and is none for the first", () => {
    expect(runDash(0)).toEqual([]);
    expect(new Set([0, 1, 2, 3, 4, 5].map(run => runDash(run).join(" "))).size).toBe(6);
  });
});

describe("ColorBook", () => {
  it("gives different slots while there are any, then grey", () => {
    const book = new ColorBook();
    const keys = Array.from({ length: COLORS + 2 }, (_, i) => `m${i}`);
    expect(book.slotsOf(keys)).toEqual([...slots, COLORS - 1, COLORS - 1]);
    expect(sharingGrey(keys, book.slotsOf(keys))).toBe(3);
    expect(sharingGrey(keys.slice(0, COLORS), slots)).toBe(0);
    // once there is a color for each, each has one
    expect(new Set(book.slotsOf(keys.slice(2))).size).toBe(COLORS);
    expect(book.slotsOf(keys.slice(2, 9)).slice(0, 5)).toEqual([2, 3, 4, 5, 6]);
  });

  it("keeps the slots of what stays and gives free ones to what comes", () => {
    const book = new ColorBook();
    book.slotsOf(["a", "b", "c"]);
    expect(book.slotsOf(["c", "d", "a"])).toEqual([2, 1, 0]);
    expect(book.slotsOf(["e"])).toEqual([0]);
  });

  it("gives one key one slot", () => {
    expect(new ColorBook().slotsOf(["a", "b", "a"])).toEqual([0, 1, 0]);
  });
});
