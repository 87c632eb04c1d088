import { describe, expect, it } from "vitest";
import { operatorWord } from "./operator_words";

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
