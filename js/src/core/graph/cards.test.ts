import { describe, expect, it } from "vitest";
import { fitted, measurer, oneLine } from "../shared/canvas";
import { hyperLine } from "../shared/hyper";

const measure = measurer();

describe("cards", () => {
  it.each([
    [
      [
        ["in_channels", 64],
        ["out_channels", 128],
        ["kernel_size", "(3, 3)"],
        ["stride", "(2, 2)"]
      ],
      "64 → 128 · k 3×3 · s 2×2"
    ],
    [
      [
        ["in_channels", 64],
        ["out_channels", 64],
        ["kernel_size", "(1, 1)"],
        ["stride", "(1, 1)"],
        ["groups", 1]
      ],
      "64 → 64 · k 1"
    ],
    [
      [
        ["in_features", 512],
        ["out_features", 1000],
        ["bias", true]
      ],
      "512 → 1000"
    ],
    [
      [
        ["num_features", 64],
        ["eps", 1e-5]
      ],
      "64"
    ],
    [
      [
        ["p", 0.1],
        ["inplace", false]
      ],
      "p 0.1"
    ],
    [[], ""]
  ] as [[string, string | number | boolean][], string][])("writes %j as %j", (pairs, text) => {
    expect(hyperLine(pairs)).toBe(text);
  });

  it("cuts text to its room", () => {
    const text = fitted("a rather long name", 60, 11, false, measure);
    expect(text.endsWith("…")).toBe(true);
    expect(measure(text, 11, false)).toBeLessThanOrEqual(60);
    expect(fitted("short", 600, 11, false, measure)).toBe("short");
  });

  it("makes one printable line of anything", () => {
    expect(oneLine("a\nb\u0000c\u2028d")).toBe("a␣b␣c␣d");
    expect(oneLine("x".repeat(10000)).length).toBeLessThan(130);
  });
});
