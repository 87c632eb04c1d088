import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { bytes, message, type Parts } from "../../../testing/metrics";
import { decodeUpdate } from "./payload";

const ENTRY: Parts["entries"] = [[0, "conv1", "WeightNorm", 0, "train", "number"]];
let warn: ReturnType<typeof vi.spyOn>;

beforeEach(() => {
  warn = vi.spyOn(console, "warn").mockImplementation(() => {});
});

afterEach(() => warn.mockRestore());

const read = (parts: Parts) => {
  const { content, buffers } = message(3, parts);
  return decodeUpdate(content, buffers);
};

describe("decodeUpdate", () => {
  it("reads every section", () => {
    const update = read({
      reset: true,
      entries: ENTRY,
      points: [
        [
          0,
          [
            [1, 0.5],
            [2, 0.25]
          ]
        ],
        [4, [[7, -1]]]
      ],
      histograms: [[5, 12, [-1, 1, 100, 50], [3, 4]]],
      alerts: [[0, "conv1", "WeightNorm", 2, "above 3"]],
      alertsFrom: 6,
      ended: [0]
    });
    expect(update).toMatchObject({ seq: 3, reset: true, ended: [0] });
    expect(update?.catalog).toEqual({ from: 0, entries: ENTRY });
    expect(update?.points.series).toEqual([0, 4]);
    expect([...(update?.points.numbers ?? [])]).toEqual([1, 2, 0.5, 0.25, 7, -1]);
    expect([...(update?.histograms.numbers ?? [])]).toEqual([-1, 1, 100, 50, 3, 4]);
    expect(update?.alerts).toEqual({ from: 6, entries: [[0, "conv1", "WeightNorm", 2, "above 3"]] });
    expect(warn).not.toHaveBeenCalled();
  });

  it("takes missing sections for empty ones", () => {
    const update = decodeUpdate({ kind: "update", seq: 1 }, undefined);
    expect(update).toMatchObject({ seq: 1, reset: false, catalog: { from: 0, entries: [] }, ended: [] });
    expect(update?.points.numbers.length).toBe(0);
  });

  it("keeps NaN and the infinities", () => {
    const update = read({
      points: [
        [
          0,
          [
            [0, NaN],
            [1, Infinity],
            [2, -Infinity]
          ]
        ]
      ]
    });
    expect([...(update?.points.numbers.subarray(3) ?? [])]).toEqual([NaN, Infinity, -Infinity]);
  });

  it.each([0, 1, 4, 8, 12, 13])("reads buffers that begin %i bytes into their memory", offset => {
    const content = { kind: "update", seq: 1, points: { series: [0], counts: [2] } };
    const update = decodeUpdate(content, [bytes([5, 6, 0.5, 0.25], offset)]);
    expect([...(update?.points.numbers ?? [])]).toEqual([5, 6, 0.5, 0.25]);
  });

  it("takes plain buffers too", () => {
    const content = { kind: "update", seq: 1, points: { series: [0], counts: [1] } };
    expect([...(decodeUpdate(content, [new Float64Array([1, 2]).buffer])?.points.numbers ?? [])]).toEqual([1, 2]);
  });

  const good = { kind: "update", seq: 1 };
  const one = [bytes([1, 2])];
  it.each<[string, unknown, unknown]>([
    ["no object", "update", []],
    ["nothing", undefined, undefined],
    ["another kind", { ...good, kind: "<img src=x>" }, []],
    ["no sequence number", { kind: "update" }, []],
    ["a negative sequence number", { kind: "update", seq: -1 }, []],
    ["entries of the wrong length", { ...good, catalog: { from: 0, entries: [[0, "a"]] } }, []],
    [
      "an entry of an unknown form",
      { ...good, catalog: { from: 0, entries: [[0, "a", "m", 0, "train", "image"]] } },
      []
    ],
    ["a catalog that begins nowhere", { ...good, catalog: { from: -1, entries: [] } }, []],
    ["fewer numbers than counted", { ...good, points: { series: [0], counts: [2] } }, one],
    ["more numbers than counted", { ...good, points: { series: [], counts: [] } }, one],
    ["counts for other series", { ...good, points: { series: [0, 1], counts: [1] } }, one],
    ["a count that is no number", { ...good, points: { series: [0], counts: ["1"] } }, one],
    ["half a number", { ...good, points: { series: [0], counts: [1] } }, [new DataView(new ArrayBuffer(12))]],
    ["a buffer that is none", { ...good, points: { series: [0], counts: [1] } }, ["12345678"]],
    ["histograms without steps", { ...good, histograms: { series: [0], bins: [1] } }, [null, bytes([0, 1, 2, 2, 2])]],
    ["an alert without a text", { ...good, alerts: { from: 0, entries: [[0, "a", "m", 1]] } }, []],
    ["an alert at no step", { ...good, alerts: { from: 0, entries: [[0, "a", "m", NaN, "x"]] } }, []],
    ["runs that are no numbers", { ...good, ended: ["a"] }, []],
    ["a section of the wrong kind", { ...good, points: [1] }, []]
  ])("leaves a message out that has %s", (_, content, buffers) => {
    expect(decodeUpdate(content, buffers)).toBeNull();
    expect(warn).toHaveBeenCalledOnce();
    expect(JSON.stringify(warn.mock.calls)).not.toContain("<img");
  });
});
