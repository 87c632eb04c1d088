import { describe, expect, it } from "vitest";
import {
  readMeasured,
  NO_CAPABILITIES,
  NO_TRIAL,
  readCapabilities,
  readSensitivity,
  readTrial
} from "./kernel_answers";

describe("what the kernel says of the user's data", () => {
  it("is read", () => {
    const offers = { sensitivity: true, recalibrate: true, evaluate: false, batches: 4 };
    expect(readCapabilities(offers)).toMatchObject(offers);
    const more = { statistics: false, on_batches: ["taylor", 1], inputs: ["8×3"] };
    expect(readCapabilities(more)).toMatchObject({ hasStatistics: false, onBatches: ["taylor"], inputs: ["8×3"] });
    const measured = { base: 1, revision: 2, loss: 3, key: "k", points: [[0.5, 2], [0.8, "NaN"], 1] };
    expect(readMeasured(measured)).toEqual({ ...measured, points: [[0.5, 2]] });
    expect(readMeasured({ base: 1, loss: "NaN", revision: 2 })).toMatchObject({ revision: -1, points: [] });
    expect([readMeasured({}), readMeasured({ base: "NaN" }), readMeasured(7)]).toEqual([null, null, null]);
    expect(readSensitivity({ done: 3, total: 12 })).toEqual({ done: 3, total: 12 });
    expect(readSensitivity({ done: 3, total: null })).toEqual({ done: 3, total: null });
    const values = [
      ["a", 0.5],
      ["b", "NaN"],
      ["c", "-Infinity"]
    ];
    const { recalibrated, evaluations } = readTrial({
      recalibrated: true,
      evaluations: [{ state: "cut", values, error: "" }]
    });
    expect(recalibrated).toBe(true);
    expect([...evaluations[0].values]).toEqual([
      ["a", 0.5],
      ["b", NaN],
      ["c", -Infinity]
    ]);
  });

  it.each([undefined, null, 3, "text", [], {}, { done: "1", evaluations: {}, sensitivity: 1, batches: -1 }])(
    "is none where it is %j, as of an older notebook",
    raw => {
      expect([readCapabilities(raw), readSensitivity(raw), readTrial(raw)]).toEqual([NO_CAPABILITIES, null, NO_TRIAL]);
    }
  );

  it("has only entries that can be shown", () => {
    const raw = { evaluations: [3, { values: [] }, { state: "cut", values: [["a"], [1, 2], 7, ["b", {}]], error: 9 }] };
    expect(readTrial(raw).evaluations).toEqual([{ state: "cut", values: new Map(), error: "" }]);
  });
});
