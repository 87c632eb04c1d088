import { describe, expect, it } from "vitest";
import { floatText, grouped, isSmallFloat, numberIn, smallFloat } from "./numbers";

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

describe("a float of few bits", () => {
  it.each<[string, number, number]>([
    ["float16", 0x3c00, 1],
    ["float16", 0x8001, -(2 ** -24)],
    ["float16", 0xfc00, -Infinity],
    ["float16", 0x7c01, NaN],
    ["bfloat16", 0x3f80, 1],
    ["bfloat16", 0xff80, -Infinity],
    ["bfloat16", 1, 2 ** -133],
    ["float8_e4m3fn", 0x7e, 448],
    ["float8_e4m3fn", 0xff, NaN],
    ["float8_e4m3fnuz", 0x80, NaN],
    ["float8_e4m3fnuz", 0x40, 1],
    ["float8_e5m2", 0x7c, Infinity],
    ["float8_e5m2", 0x3c, 1],
    ["float8_e5m2fnuz", 0x40, 1],
    ["float8_e8m0fnu", 127, 1],
    ["float8_e8m0fnu", 255, NaN]
  ])("of %s %i is %d", (dtype, bits, value) => {
    expect(isSmallFloat(dtype)).toBe(true);
    expect(smallFloat(bits, dtype)).toBe(value);
  });

  it("is the lowest of the bits that are given", () => {
    expect(smallFloat(0x3f80 - 2 ** 16, "bfloat16")).toBe(1);
    expect(smallFloat(-(2n ** 63n) + 0x3cn, "float8_e5m2")).toBe(1);
    expect(isSmallFloat("int4")).toBe(false);
  });
});
