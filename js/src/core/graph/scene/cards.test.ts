import { describe, expect, it } from "vitest";
import { payloadOf, leaf, sequence } from "../../../testing/payloads";
import { truncated, measurer, oneLine } from "../../shared/base/canvas";
import { Hierarchy } from "../../shared/model/hierarchy";
import { hyperLine } from "../../shared/base/format";
import { cardText, foldParams } from "./scene";

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

  it.each([
    [[312, 1200, 4704, 295680], "312 – 296 k parameters"],
    [[64000, 8000, 16000], "8.00–64.0 k parameters"],
    [[500, 500], "500 parameters"],
    [[0, 4], "0 – 4 parameters"],
    [[0, 0], ""]
  ])("say of similar modules with %j parameters %j", (params, text) => {
    const net = sequence("Net", params.map(count => leaf("Linear", count, { in_features: count, out_features: 1 }))); // prettier-ignore
    const h = new Hierarchy({ ...payloadOf(net), folds: [[1, params.length, "family", ""]] });
    const fold = h.fold(2);
    expect(fold && foldParams(h, fold)).toBe(text);
    expect(cardText(h, 1, fold).detail).toBe(text);
    expect(cardText(h, 1).detail).toBe(`${params[0]} → 1`); // of one of them its own
  });

  it("say of identical modules what each has", () => {
    const h = new Hierarchy({ ...payloadOf(sequence("Net", [leaf("Linear", 20), leaf("Linear", 20)])), folds: [[1, 2, "exact", ""]] }); // prettier-ignore
    const fold = h.fold(1);
    expect(fold && foldParams(h, fold)).toBe("each 20");
  });

  it("cuts text to its room", () => {
    const text = truncated("a rather long name", 60, 11, false, measure);
    expect(text.endsWith("…")).toBe(true);
    expect(measure(text, 11, false)).toBeLessThanOrEqual(60);
    expect(truncated("short", 600, 11, false, measure)).toBe("short");
  });

  it("makes one printable line of anything", () => {
    expect(oneLine("a\nb\u0000c\u2028d")).toBe("a␣b␣c␣d");
    expect(oneLine("x".repeat(10000)).length).toBeLessThan(130);
  });
});
