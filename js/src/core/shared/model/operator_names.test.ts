import { describe, expect, it } from "vitest";
import { lineOf } from "../../../testing/payloads";
import { Dataflow } from "./dataflow";
import { findPatterns, groupTitle, PATTERNS } from "./operator_names";

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

describe("patterns of operators", () => {
  it.each<[string, string, string[]]>([
    ["cross_entropy", "cross_entropy", ["_log_softmax 0", "nll_loss_forward: 2 1"]],
    ["rotary embedding", "by halves", ["mul 0", "slice 0", "slice 0", "neg 4", "cat 5 3", "mul 6", "add 2 7"]],
    ["rotary embedding", "by complex numbers", ["view_as_complex 0", "mul 2 1", "view_as_real 3"]],
    ["attention", "of torch", ["transpose 0", "_scaled_dot_product_flash_attention_for_cpu 2 1 1", "transpose 3"]],
    [
      "attention",
      "by hand",
      [
        "transpose 0",
        "bmm 0 2",
        "div 3",
        "ones",
        "triu 5",
        "masked_fill 4 6",
        "_softmax 7",
        "dropout 8",
        "bmm 9 1",
        "view 10"
      ]
    ],
    ["layer norm", "by squares", ["mean 0", "sub 0 2", "pow 3", "mean 4", "add 5", "sqrt 6", "div 3 7"]],
    ["layer norm", "by the variance", ["mean 0", "var 0", "sub 0 2", "add 3", "rsqrt 5", "mul 4 6"]],
    ["RMS norm", "with a weight", ["pow 0", "mean 2", "add 3", "rsqrt 4", "mul 0 5", "mul 6"]],
    ["mse_loss", "by hand", ["sub 0 1", "pow 2", "mean: 3"]],
    ["l1_loss", "by hand", ["sub 0 1", "abs 2", "mean: 3"]],
    ["softmax", "by hand", ["exp 0", "sum 2", "div 2 3"]],
    ["normalize", "to length one", ["linalg_vector_norm 0", "clamp_min 2", "expand 3", "div 0 4"]],
    ["gelu", "by tanh", ["pow 0", "mul 2", "add 0 3", "mul 4", "tanh 5", "add 6", "mul 0 7"]],
    ["gelu", "by erf", ["div 0", "erf 2", "add 3", "mul 0 4"]],
    ["silu", "by hand", ["sigmoid 0", "mul 0 2"]],
    ["dropout", "while a model trains", ["empty_like 0", "bernoulli_ 2", "div_ 3", "mul 0 4"]],
    ["mask", "of what comes later", ["ones", "triu 2", "masked_fill 0 3"]]
  ])("%s %s", (name, _how, lines) => {
    const flow = program(...lines);
    expect(findPatterns(flow, [...Array(flow.size).keys()]).map(found => found.name)).toContain(name);
  });

  it("are all tested", () => expect(PATTERNS).toHaveLength(17));

  it.each([
    ["a product of a sigmoid with something else", ["sigmoid 0", "mul 1 2"]],
    ["squares that are no loss, as many numbers come out", ["sub 0 1", "pow 2", "mean 3"]],
    ["a softmax between no products", ["_softmax 0", "bmm 2 1"]],
    ["a convolution between the parts", ["bmm 0 1", "convolution 2", "_softmax 3", "bmm 4 1"]]
  ])("are not found in %s", (_what, lines) => {
    const flow = program(...lines);
    expect(findPatterns(flow, [...Array(flow.size).keys()])).toEqual([]);
  });

  it("do not share operators, and keep what alone prepares and passes on their values", () => {
    expect(title("bmm 0 1", "_softmax 2", "bmm 3 1", "_softmax 4", "bmm 5 1")).toBe("attention, softmax, +1");
    expect(title("transpose 0", "bmm 0 2", "_softmax 3", "bmm 4 1", "clone 5", "view 6")).toBe("attention");
  });
});

describe("the title of a group", () => {
  it("has the operators that tell most first, and counts the others", () => {
    expect(title("relu 0", "max_pool2d_with_indices 2", "clone 3")).toBe("max_pool2d, relu, +1");
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
