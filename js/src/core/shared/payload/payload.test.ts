import { describe, expect, it } from "vitest";
import { compared, container, leaf, lineOf, payloadOf, resnet, sequence } from "../../../testing/payloads";
import { readPayload, toNumber } from "./payload";
import { OTHER_VERSION, PayloadError } from "../base/schema";

const small = () =>
  payloadOf(
    container("Net", [
      ["a", leaf("Linear", 6)],
      ["b", sequence("Sequential", [leaf("ReLU"), leaf("ReLU")])]
    ])
  );

const axes = {
  name: ["a"],
  label: ["a"],
  size: [3],
  role: [null],
  frozen: [0],
  reasons: ["why"],
  dims: [],
  written: ["{0}"]
};

type Loose = Record<string, unknown>;
type Change = (payload: Loose) => void;

function damaged(change: Change): unknown {
  const payload = JSON.parse(JSON.stringify(small())) as Loose;
  change(payload);
  return payload;
}

const set =
  (path: string, value: unknown): Change =>
  payload => {
    const steps = path.split(".");
    const last = steps.pop() ?? "";
    let at: Record<string, unknown> = payload;
    for (const step of steps) {
      at = at[step] as Record<string, unknown>;
    }
    at[last] = value;
  };

describe("readPayload", () => {
  it("accepts what is right and gives it back", () => {
    const payload = small();
    expect(readPayload(payload)).toEqual(payload);
    expect(readPayload(resnet()).nodes.name).toHaveLength(423);
    expect(readPayload(compared(resnet([1, 1, 1, 1]), resnet([2, 1, 1, 1]))).compare).not.toBeNull();
  });

  it("adds what older payloads lack, also of the model that one is compared with", () => {
    const both = JSON.parse(JSON.stringify(compared(resnet([1, 1, 1, 1]), resnet([2, 1, 1, 1])))) as Loose;
    for (const payload of [both, (both.compare as { model: Loose }).model]) delete payload.blocks;
    const read = readPayload(both);
    expect([read.blocks, read.compare?.model.blocks]).toEqual([{}, {}]);
    delete both.compare;
    expect(readPayload(both).compare).toBeNull();
  });

  it.each([
    undefined,
    null,
    1,
    "text",
    [],
    { schema_version: 1, kind: "model" },
    { schema_version: 3, kind: "model" },
    { schema_version: 2, kind: "mask" }
  ])("says that %j is of another version", raw => {
    expect(() => readPayload(raw)).toThrow(new PayloadError(OTHER_VERSION));
  });

  it.each([
    ["no nodes", set("nodes", { name: [], parent: [], entity: [] })],
    ["a list that is too short", set("nodes.entity", [0])],
    ["a root with a parent", set("nodes.parent", [0, 0, 0, 2, 2])],
    ["a parent that comes later", set("nodes.parent", [-1, 0, 3, 0, 2])],
    ["a cycle", set("nodes.parent", [-1, 0, 2, 2, 2])],
    ["a second root", set("nodes.parent", [-1, 0, -1, 2, 2])],
    ["an order that is not depth-first", set("nodes.parent", [-1, 0, 0, 1, 2])],
    ["a fraction for an index", set("nodes.parent", [-1, 0, 0.5, 2, 2])],
    ["a name that is no text", set("nodes.name", ["", "a", 3, "0", "1"])],
    ["an entity out of range", set("nodes.entity", [0, 1, 2, 3, 99])],
    ["a class out of range", set("entities.class", [99, 0, 0, 0])],
    ["a class below zero", set("entities.class", [-1, 0, 0, 0])],
    ["hyper-parameters without a field", set("entities.hyper", [[1], [1, 2], [3], [4]])],
    ["an object as hyper-parameter", set("entities.hyper", [[{}], [], [], []])],
    ["a tensor without a shape", set("entities.tensors", [[["weight", "parameter"]], [], [], []])],
    ["a tensor of unknown role", set("entities.tensors", [[["weight", "grad", null]], [], [], []])],
    ["a column of another length", set("columns.params", [1])],
    ["an object in a column", set("columns.params", [1, 2, 3, 4, {}])],
    ["an unknown aggregate", set("column_info.params", { label: "x", aggregate: "max" })],
    ["a fold past its siblings", set("folds", [[3, 3, "exact", ""]])],
    ["a fold of the root", set("folds", [[0, 2, "exact", ""]])],
    ["a fold of one", set("folds", [[3, 1, "exact", ""]])],
    [
      "folds that overlap",
      set("folds", [
        [3, 2, "exact", ""],
        [3, 2, "family", ""]
      ])
    ],
    ["a fold of unknown kind", set("folds", [[3, 2, "same", ""]])],
    ["a link to nowhere", set("links", [[0, "x", 99, "shared"]])],
    ["a tie of the wrong length", set("tied", [[0, "weight", 1]])],
    ["a mark of no node", set("marks", { "99": ["x"] })],
    ["a mark of the prototype", damagedMarks],
    ["an edge out of range", set("edges", [[0, 5, ""]])],
    ["no word on tracing", set("traced", 0)],
    [
      "a comparison of a comparison",
      set("compare", { model: compared(small(), small()), left: [], right: [], pairs: [] })
    ],
    ["a comparison without status", set("compare", { model: small(), left: [], right: [], pairs: [] })]
  ])("refuses %s", (_, change) => {
    expect(() => readPayload(damaged(change))).toThrow(PayloadError);
  });

  it("accepts an edge from the model's input and one to its output", () => {
    expect(() =>
      readPayload(
        damaged(
          set("edges", [
            [-1, 1, "1×3"],
            [2, -1, ""]
          ])
        )
      )
    ).not.toThrow();
  });

  it.each([
    ["an error that is no text", set("error", 3)],
    ["no flow at all", set("flow", undefined)],
    ["a call of no module", set("flow.calls.node", [0, 99])],
    ["a call before the one that it ran in", set("flow.calls.parent", [-1, 1])],
    ["a second call without a parent", set("flow.calls.parent", [-1, -1])],
    ["an input that is no value", set("flow.calls.inputs", [[0], [9]])],
    ["a step without a name", set("flow.steps.name", [5])],
    ["a step of no call", set("flow.steps.call", [2])],
    ["a step that reads no value", set("flow.steps.inputs", [[9]])],
    ["a step that reads no tensor", set("flow.steps.tensors", [[0]])],
    ["FLOPs that are no number", set("flow.steps.flops", [{}])],
    ["a view of no step", set("flow.steps.view", [1])],
    ["a value without a shape", set("flow.values.shape", [0, 1])],
    ["too few values", set("flow.values.dtype", [0])],
    ["a negative size", set("flow.shapes", [[-1]])],
    ["an input of the model without a value", set("flow.inputs", [["x", 2]])],
    ["axes of another length", set("axes", { ...axes, size: [] })],
    ["an axis without its reason", set("axes", { ...axes, frozen: [1] })],
    ["axes without tensors", set("axes", { ...axes, dims: [[0]] })]
  ])("refuses a forward pass with %s", (_, change) => {
    const traced = { ...small(), traced: true, flow: lineOf([1]), axes };
    expect(() => readPayload(JSON.parse(JSON.stringify(traced)))).not.toThrow();
    const copy = JSON.parse(JSON.stringify(traced)) as Loose;
    change(copy);
    expect(() => readPayload(copy)).toThrow(PayloadError);
  });

  it("never repeats what it was given", () => {
    const text = "<img src=x onerror=alert(1)>";
    for (const change of [
      set("nodes.parent", text),
      set("folds", [[text, 2, "exact", text]]),
      set("compare", { model: text })
    ]) {
      const read = () => readPayload(damaged(change));
      expect(read).toThrow(PayloadError);
      expect(read).not.toThrow(/onerror/);
    }
  });
});

function damagedMarks(payload: Loose): void {
  Object.assign(payload, { marks: JSON.parse('{"__proto__": ["x"]}') as unknown });
}

describe("toNumber", () => {
  it.each([
    ["NaN", NaN],
    ["Infinity", Infinity],
    ["-Infinity", -Infinity],
    ["9007199254740993", 9007199254740992],
    ["-12", -12],
    [1.5, 1.5],
    [null, null],
    ["", null],
    ["1e3", null],
    ["0x10", null],
    ["seven", null]
  ])("reads %j as %j", (value, number) => {
    expect(toNumber(value)).toEqual(number);
  });
});
