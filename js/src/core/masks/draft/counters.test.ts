import { describe, expect, it } from "vitest";
import { maskPayload } from "../../../testing/masks";
import { axesOf, Counters, evaluate } from "./counters";
import { readMasks } from "./payload";

const payload = readMasks(maskPayload());

describe("expressions", () => {
  it("are counts, constants, products and sums", () => {
    expect(evaluate(1, [4, 10])).toBe(10);
    expect(evaluate(-7, [4, 10])).toBe(7);
    expect(evaluate(["*", 0, ["+", 1, -2], 0], [4, 10])).toBe(4 * 12 * 4);
    expect(axesOf(["*", 0, ["+", 1, -2], 0])).toEqual([0, 1, 0]);
  });
});

describe("Counters", () => {
  it("has nothing changed at first", () => {
    const before = { params: 9 * 4 * 3 + 40, flops: 2 * 4 * 4 * 10 + 5 * 4 * 12, bytes: 4 * 148 + 8 * 10 };
    const totals = new Counters(payload).totals();
    for (const key of ["params", "flops", "bytes"] as const)
      expect(totals[key]).toEqual({ before: before[key], after: before[key] });
  });

  it("is what a full count comes to after any changes", () => {
    const counters = new Counters(payload);
    counters.update([[0, 1]]);
    counters.update([
      [0, 2],
      [1, 6]
    ]);
    const { params, flops, bytes } = counters.totals();
    expect(params.after).toBe(9 * 2 * 3 + 12);
    expect(flops.after).toBe(2 * 2 * 2 * 6 + 5 * 2 * 8);
    expect(bytes.after).toBe(4 * 66 + 8 * 6);
    counters.update([
      [0, 4],
      [1, 10]
    ]);
    expect(counters.totals()).toEqual(new Counters(payload).totals());
  });

  it("tells of each module the share of parameters in it and below that goes", () => {
    const counters = new Counters(payload);
    counters.update([[0, 1]]);
    expect(counters.shares()).toEqual({
      conv1: 0.75,
      "block.conv2": 0.75,
      block: 0.75,
      "": 0.75
    });
    counters.update([[1, 5]]);
    const shares = counters.shares();
    expect([shares.conv1, shares.block]).toEqual([0.75, 0.875]);
    expect(shares[""]).toBeCloseTo(1 - (27 + 5) / 148, 12);
  });

  it("takes any name of a module", () => {
    const odd = readMasks(maskPayload(undefined, { modules: ["__proto__", "constructor", "x"] }));
    expect(Object.entries(new Counters(odd).shares())).toEqual([
      ["__proto__", 0],
      ["", 0],
      ["constructor", 0]
    ]);
  });
});
