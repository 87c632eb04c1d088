import { describe, expect, it } from "vitest";
import { floatText, grouped, numberIn } from "./numbers";

describe("a double", () => {
  it.each<[number, string]>([
    [1, "1.0"],
    [-0, "-0.0"],
    [0.1, "0.1"],
    [0.00012, "0.00012"],
    [0.00001, "1e-05"],
    [-1.5e-7, "-1.5e-07"],
    [123456789012345680, "1.2345678901234568e+17"],
    [1e15, "1000000000000000.0"],
    [1e16, "1e+16"],
    [1e100, "1e+100"],
    [0.20000000298023224, "0.20000000298023224"],
    [Infinity, "inf"],
    [NaN, "nan"]
  ])("%s is written as Python does", (value, expected) => {
    expect(floatText(value)).toBe(expected);
  });
});

describe("bytes", () => {
  it("are numbers in either order", () => {
    expect(numberIn(Uint8Array.of(1, 2), "u16")).toBe(513);
    expect(numberIn(Uint8Array.of(1, 2), "u16", false)).toBe(258);
    expect(numberIn(new Uint8Array(8).fill(255), "i64")).toBe(-1n);
  });

  it("are grouped by thousands", () => {
    expect([999, 1000, 1234567].map(grouped)).toEqual(["999", "1,000", "1,234,567"]);
  });
});
