import { describe, expect, it } from "vitest";
import { golden } from "../../../testing/payloads";
import { type Dataflow, dataflowOf, operatorWord } from "./dataflow";
import { Hierarchy } from "./hierarchy";
import type { ModelPayload } from "../payload/payload";

const h = new Hierarchy(golden("traced"));
const flow = dataflowOf(h) as Dataflow;
const node = (path: string) => h.find(path) ?? -1;
const stepsOf = (name: string) => Array.from({ length: flow.size }, (_, i) => i).filter(i => flow.name(i) === name);

describe("a forward pass", () => {
  it("is not there in a payload without one", () => {
    expect(dataflowOf(new Hierarchy(golden("folded")))).toBeNull();
  });

  it("knows the calls of a module and what ran in them", () => {
    expect(flow.callsOf(node("act"))).toHaveLength(2);
    expect(flow.callsOf(node("spare"))).toEqual([]);
    const [block] = flow.callsOf(node("blocks.1"));
    expect(flow.isLeaf(block)).toBe(false);
    expect(flow.end(block) - block).toBe(3);
    expect(flow.operators(block)).toBe(3);
  });

  it("has shapes as text", () => {
    const [call] = flow.callsOf(node("left"));
    const { inputs, outputs } = flow.payload.calls;
    expect(inputs[call].map(value => flow.shape(value))).toEqual(["2×3"]);
    expect(outputs[call].map(value => [flow.shape(value), flow.dtype(value)])).toEqual([["2×4", "float32"]]);
  });

  it("counts the look at a parameter to the operator that reads it", () => {
    const [transpose] = stepsOf("t");
    const [addmm] = stepsOf("addmm");
    expect(flow.isAside(transpose)).toBe(true);
    expect(flow.isAside(addmm)).toBe(false);
    expect(flow.tensorNames(addmm)).toEqual(["weight", "bias"]);
  });

  it("names operators in the words of the field, and conversions by what they give", () => {
    const converted = (dtype: number) => (payload: ModelPayload) => {
      payload.flow?.names.fill("aten::_to_copy");
      payload.flow?.dtypes.push("float16");
      payload.flow?.values.step.forEach((step, value) => {
        if (step >= 0 && payload.flow)
          payload.flow.values.dtype[value] = dtype < 0 ? payload.flow.dtypes.length - 1 : dtype;
      });
    };
    const [addmm] = stepsOf("addmm");
    expect(flow.fullName(addmm)).toBe("aten::addmm");
    const name = (dtype: number) => dataflowOf(new Hierarchy(golden("traced", converted(dtype))))?.name(addmm);
    expect([name(-1), name(0)]).toEqual(["to(float16)", "to"]);
  });

  it("knows where an axis runs, also through what has no tensors", () => {
    const path = (name: string) => flow.pathOf(h.payload.axes?.name.indexOf(name) ?? -1);
    const left = path("left.out");
    const inside = [0, 1, 2].flatMap(block => [`blocks.${block}.conv`, `blocks.${block}.act`]);
    expect(left.leaves.map(at => h.path(at))).toEqual(["left", "right", "act", "drop", ...inside, "head"]);
    expect([...left.steps].map(step => flow.name(step))).toEqual(expect.arrayContaining(["addmm", "add", "relu"]));
    expect(flow.callsOf(node("act")).map(left.hasCall)).toEqual([true, true]);
    expect([left.hasCall(0), path("head.out").hasCall(flow.callsOf(node("left"))[0])]).toEqual([true, false]);
    const kernel = path("blocks.0.conv.kernel_h");
    expect([kernel.leaves, [...kernel.steps]]).toEqual([[], []]); // no value has it
    expect(flow.pathOf(-1).steps.size).toBe(0);
  });

  it("lists what has no formula, in a module and below", () => {
    const broken = new Hierarchy(
      golden("traced", ({ flow: raw }) => {
        raw?.steps.name.forEach((name, step) => {
          if (raw.names[name] === "aten::convolution") {
            raw.steps.flops[step] = null;
          }
        });
      })
    );
    const found = dataflowOf(broken)?.uncounted(node("blocks"));
    expect([...(found ?? [])]).toEqual([["aten::convolution", 3]]);
    expect(dataflowOf(broken)?.uncounted(node("head")).size).toBe(0);
  });
});

describe("words for operators", () => {
  it.each([
    ["aten::_unsafe_view", "view"],
    ["aten::_reshape_alias", "reshape_alias"],
    ["aten::_log_softmax", "log_softmax"],
    ["aten::_softmax", "softmax"],
    ["aten::_safe_softmax", "softmax"],
    ["aten::_to_copy", "to"],
    ["aten::native_layer_norm", "layer_norm"],
    ["aten::_native_batch_norm_legit_no_training", "batch_norm"],
    ["aten::_batch_norm_with_update_functional", "batch_norm"],
    ["aten::_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention"],
    ["aten::_scaled_dot_product_fused_attention_overrideable", "scaled_dot_product_attention"],
    ["aten::_fused_rms_norm", "rms_norm"],
    ["aten::max_pool2d_with_indices", "max_pool2d"],
    ["aten::_weight_norm_interface", "weight_norm"],
    ["aten::unsafe_split", "split"],
    ["aten::_local_scalar_dense", "item"],
    ["aten::constant_pad_nd", "pad"],
    ["aten::__and__", "and"]
  ])("%s is %s", (name, word) => expect(operatorWord(name)).toBe(word));

  it.each(["add_", "index_copy", "view_copy", "index_put_", "convolution", "addmm", "masked_fill_", "copy_", "native"])(
    "%s stays as it is",
    name => expect(operatorWord(`aten::${name}`)).toBe(name)
  );

  it("keeps the names of others", () => {
    expect(operatorWord("torchvision::roi_align")).toBe("roi_align");
    expect(operatorWord("mine")).toBe("mine");
    expect(operatorWord("a::b::_c")).toBe("c");
    expect(operatorWord("a::__")).toBe("__");
  });
});
