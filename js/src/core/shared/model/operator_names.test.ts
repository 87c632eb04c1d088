import { describe, expect, it } from "vitest";
import { goldenFile, lineOf } from "../../../testing/payloads";
import { Dataflow } from "./dataflow";
import type { FlowPayload } from "../payload/payload";
import { findPatterns, groupTitle } from "./operator_names";
import { PATTERNS } from "./operator_patterns";

/** A program as lines "name inputs": the values are the two inputs, then what each line gives; "name:" gives one number. */
function program(...lines: string[]): Dataflow {
  const flow = lineOf(lines.map(() => 0));
  const names = lines.map(line => line.split(" ")[0]);
  flow.names = names.map(name => `aten::${name.replace(":", "")}`);
  flow.shapes = [[2, 3], []];
  flow.steps.name = names.map((_, at) => at);
  flow.steps.inputs = lines.map(line => line.split(" ").slice(1).map(Number));
  flow.values = {
    step: [-1, -1, ...names.map((_, at) => at)],
    shape: [0, 0, ...names.map(name => (name.endsWith(":") ? 1 : 0))],
    dtype: [0, 0, ...names.map(() => 0)],
    axes: [[], [], ...names.map(() => [])]
  };
  flow.inputs = [
    ["x", 0],
    ["y", 1]
  ];
  flow.outputs = [names.length + 1];
  flow.calls.outputs = flow.calls.outputs.map(() => []);
  flow.calls.inputs = flow.calls.inputs.map(() => []);
  return new Dataflow(flow);
}

const title = (...lines: string[]): string => {
  const flow = program(...lines);
  return groupTitle(flow, [...Array(flow.size).keys()], name => name);
};

const { named, misnamed } = goldenFile("views/golden_operators.json") as Record<string, Record<string, FlowPayload>>;
const patternsOf = (payload: FlowPayload): string[] => {
  const flow = new Dataflow(payload);
  return findPatterns(flow, [...Array(flow.size).keys()]).map(({ name }) => name);
};

describe("patterns of operators", () => {
  it.each(Object.entries(named))("%s", (name, flow) => expect(patternsOf(flow)).toEqual([name.split(": ")[0]]));

  it.each(Object.entries(misnamed))("are not found in what is no %s", (name, flow) =>
    expect(patternsOf(flow)).not.toContain(name.split(": ")[0])
  );

  it("are all tested, with what only looks like them", () => {
    const names = [...new Set(PATTERNS.map(({ name }) => name))].sort();
    const inTests = (cases: object) => [...new Set(Object.keys(cases).map(name => name.split(": ")[0]))].sort();
    expect(inTests(named)).toEqual(names);
    expect(inTests(misnamed)).toEqual(names);
  });

  it("are not found across other operators", () => {
    expect(title("bmm 0 1", "convolution 2", "_softmax 3", "bmm 4 1")).toBe("matmul, softmax, +1");
  });

  it("do not share operators, and keep what alone prepares and passes on their values", () => {
    expect(title("bmm 0 1", "_softmax 2", "bmm 3 1", "_softmax 4", "bmm 5 1")).toBe("attention, softmax, +1");
    expect(title("transpose 0", "bmm 0 2", "_softmax 3", "bmm 4 1", "clone 5", "view 6")).toBe("attention");
  });
});

describe("the title of a group", () => {
  it("has the operators that tell most, in the order in which they run, and counts the others", () => {
    expect(title("relu 0", "max_pool2d_with_indices 2", "clone 3")).toBe("relu, max_pool2d, +1");
    expect(title("topk 0", "slice 2", "ge 3 1", "_softmax 2", "unsqueeze 5")).toBe("topk, softmax, +3");
    expect(title("view 0", "nms 2", "index 3", "topk 4", "nms 5")).toBe("nms, topk, +2");
    expect(title("mul 0", "add 2", "clone 3")).toBe("mul, add, +1");
  });

  it("has all names where there are two, and how often one comes", () => {
    expect(title("view 0", "addmm 2", "view 3")).toBe("linear, view");
    expect(title("nms 0", "nms 2", "nms 3")).toBe("nms ×3");
    expect(title("upsample_nearest2d 0")).toBe("interpolate");
  });
});
