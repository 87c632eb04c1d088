import { describe, expect, it } from "vitest";
import { isSmallFloat, smallFloat } from "./small_floats";

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
