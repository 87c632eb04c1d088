import { describe, expect, it } from "vitest";
import { golden, longPayload } from "../../testing/forward";
import { Forward, itemCount, shapesText, toNum } from "./payload";

describe("Forward", () => {
  it("reads what Python wrote", () => {
    const forward = new Forward(golden("residual").payload);
    expect([forward.size, forward.run, forward.title]).toEqual([4, 1, "Residual"]);
    expect([0, 1, 2, 3].map(index => forward.step(index).path)).toEqual(["", "conv", "relu", "relu"]);
    expect(forward.step(1)).toMatchObject({
      className: "Conv2d",
      depth: 1,
      inputs: [["[0]", [2, 1, 2, 2], "float32"]],
      outputs: [["", [2, 2, 2, 2], "float32"]],
      figures: [-8, 4, -0.64286, 3.4766, 0.125, 2, 16],
      top: [
        "channel",
        [
          [[0, 1, 1], 4, null],
          [[1, 0, 1], 4, null]
        ]
      ],
      error: null
    });
    expect([forward.first("relu"), forward.first("conv"), forward.first("nowhere")]).toEqual([2, 1, undefined]);
    expect(shapesText(forward.step(0).outputs)).toBe("2×2×2×2 and 1 more");
    expect(itemCount(forward.step(1))).toBe(2);
  });

  it("knows where a pass has stopped", () => {
    const forward = new Forward(golden("stops").payload);
    expect(forward.failed).toBe(2);
    expect(forward.step(2).error).toContain("<img");
    expect(forward.step(1).error).toBeNull();
    expect(shapesText(forward.step(2).outputs)).toBe("no tensor");
  });

  it("names a module by its path below the step around it", () => {
    const raw = longPayload(3);
    Object.assign(raw, {
      modules: [
        ["", "Long"],
        ["layers", "Block"],
        ["layers.0", "Linear"]
      ]
    });
    (raw.steps as Record<string, unknown>).depth = [0, 1, 2];
    const forward = new Forward(raw);
    expect([0, 1, 2].map(index => forward.name(index))).toEqual(["whole model", "layers", "0"]);
  });

  it("tells values of modules from those of the code between them", () => {
    const forward = new Forward(golden("residual").payload);
    expect([1, 2, 3, 4, 5].map(value => forward.isGiven(value))).toEqual([false, true, true, false, true]);
    expect([1, 4, 9].map(value => forward.givenBefore(value))).toEqual([undefined, 3, 5]);
  });

  it.each([
    ["another version", { schema_version: 2 }],
    ["another kind", { kind: "model" }],
    ["a lost column", { steps: { module: [0] } }],
    ["an unknown module", { modules: [] }],
    ["a step beyond the end", { failed: 9 }],
    ["a wrong run", { run: "1" }]
  ])("refuses %s", (_, change) => {
    expect(() => new Forward({ ...golden("residual").payload, ...change })).toThrow(
      expect.objectContaining({ name: "PayloadError" })
    );
  });

  it("takes text for the numbers that JSON lacks", () => {
    expect([toNum("NaN"), toNum("-Infinity"), toNum(3)]).toEqual([NaN, -Infinity, 3]);
  });
});
