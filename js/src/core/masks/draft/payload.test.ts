import { describe, expect, it } from "vitest";
import { maskPayload, withBlocks } from "../../../testing/masks";
import { OTHER_VERSION, PayloadError } from "../../shared/base/schema";
import { readMasks } from "./payload";
import { readReport } from "../session/kernel_answers";

type Raw = Record<string, unknown>;

const damaged = (change: (raw: Raw, axes: Raw) => void): Raw => {
  const raw = structuredClone(maskPayload()) as unknown as Raw;
  change(raw, raw.axes as Raw);
  return raw;
};

describe("readMasks", () => {
  it("takes what the kernel writes", () => {
    expect(readMasks(maskPayload()).axes.size).toEqual([4, 10, 3]);
  });

  it("reads large numbers that travel as text", () => {
    const { flops } = readMasks(maskPayload(undefined, { flops: [["90071992547409930", [0]]] }));
    expect(flops).toEqual([[Number("90071992547409930"), [0]]]);
  });

  it("says what to do about another version", () => {
    expect(() => readMasks(maskPayload(undefined, { schema_version: 3 }))).toThrow(OTHER_VERSION);
  });

  it.each<[string, (raw: Raw, axes: Raw) => void]>([
    ["a kind of its own", raw => (raw.kind = "model")],
    ["sizes of no index", (_, axes) => (axes.size = [4, 0, 3])],
    ["columns of one length", (_, axes) => (axes.role = [null])],
    ["reasons that exist", (_, axes) => (axes.frozen = [-1, -1, 1])],
    ["members of a name and a dimension", (_, axes) => (axes.members = [[["a"]], [], []])],
    ["expressions of known axes", raw => (raw.terms = [3])],
    ["expressions with parts", raw => (raw.terms = [["*"]])],
    ["known operators", raw => (raw.terms = [["-", 0, 1]])],
    ["tensors of known terms", raw => (raw.tensors = [[0, 1, 4, 9, [4]]])],
    ["tensors of known modules", raw => (raw.tensors = [[3, 1, 4, 9, [0]]])],
    ["operators of known terms", raw => (raw.flops = [[2, [-1]]])],
    ["numbers", raw => (raw.flops = [["1e5", [0]]])],
    ["names of importances", raw => (raw.importances = [1])]
  ])("asks for %s", (_, change) => {
    expect(() => readMasks(damaged(change))).toThrow(PayloadError);
  });

  it("refuses expressions that are nested without end", () => {
    let deep: unknown = 0;
    for (let i = 0; i < 5000; i += 1) deep = ["+", deep];
    expect(() => readMasks(maskPayload(undefined, { terms: [deep, 0, 0, 0] }))).toThrow(PayloadError);
  });
});

describe("blocks in a payload", () => {
  const read = (more: Raw) => readMasks(maskPayload(undefined, withBlocks(more)));

  it("are read, and numbers with them", () => {
    const { blocks } = read({});
    expect(blocks.flops).toEqual([600, 480, Number("90071992547409930")]);
    expect(blocks.score).toEqual([0.5, NaN, 2]);
  });

  it("are none in a notebook that was saved before there were any", () => {
    expect(readMasks(maskPayload()).blocks.path).toEqual([]);
  });

  it.each<[string, Raw]>([
    ["that lie in blocks that there are", { within: [-1, 3, -1] }],
    ["that do not lie in one another for ever", { within: [1, 0, -1] }],
    ["that do not lie in themselves", { within: [0, -1, -1] }],
    ["for every axis", { of_axes: [-1, 1] }],
    ["for every tensor", { of_tensors: [] }],
    ["that there are", { of_flops: [-1, 3] }],
    ["with paths as text", { path: ["a", "b", 3] }],
    ["in columns of one length", { params: [1] }]
  ])("are blocks %s", (_, more) => {
    expect(() => read(more)).toThrow(PayloadError);
  });
});

describe("readReport", () => {
  it("reads sizes, changes and indices, and leaves out what is none", () => {
    const report = readReport({
      revision: 3,
      error: null,
      params: [10, 5],
      flops: ["90071992547409930", 2],
      bytes: [1],
      changes: [{ kind: "tie", text: "why", axes: [0] }, { text: 1 }, null],
      kept: [[0, [1, 2]]],
      taken: [[0, "x"]]
    });
    expect(report).toMatchObject({ revision: 3, error: null, params: [10, 5], bytes: null });
    expect(report?.flops).toEqual([Number("90071992547409930"), 2]);
    expect(report?.changes).toEqual([{ kind: "tie", text: "why", axes: [0] }]);
    expect([report?.kept.get(0), report?.taken.size]).toEqual([[1, 2], 0]);
  });

  it("is none without a revision", () => {
    expect([readReport({}), readReport(null), readReport({ revision: "1" })]).toEqual([null, null, null]);
  });
});
