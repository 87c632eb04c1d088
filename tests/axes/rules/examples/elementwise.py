"""Examples for rules/elementwise.py."""

from __future__ import annotations

import torch

from axes.rules.harness import as_if, example, idle, ints, mask, positive, shapes_only, x, z

_UNARY = [
    "abs",
    "alias",
    "alias_copy",
    "clone",
    "contiguous",
    "detach",
    "detach_copy",
    "gelu",
    "hardswish",
    "lift",
    "lift_fresh_copy",
    "logit",
    "mish",
    "_to_copy",
]
_BINARY = [
    "copysign.Tensor",
    "floor_divide",
    "ge.Tensor",
    "gt.Tensor",
    "le.Tensor",
    "lt.Tensor",
    "polar",
    "rsub.Tensor",
    "xlogy.Tensor",
    "_add_relu.Tensor",
    "complex",
]
_ON_INTEGERS = [
    "__and__.Tensor",
    "__or__.Tensor",
    "__iand__.Tensor",
    "__ior__.Tensor",
    "__ilshift__.Tensor",
    "__irshift__.Tensor",
    "eq.Tensor",
    "gcd",
    "heaviside",
    "lcm",
    "ne.Tensor",
]

EXAMPLES = [
    *(example(f"aten::{name}", "a b -> a b", positive(2, 3)) for name in _UNARY),
    *(example(f"aten::{name}", "a b, a b -> a b", x(5, 7), x(5, 7)) for name in _BINARY),
    *(example(f"aten::{name}", "a b, a b -> a b", ints(4, 5, 7), ints(3, 5, 7)) for name in _ON_INTEGERS),
    *(example(f"prims::{name}", "a b, a b -> a b", x(5, 7), positive(5, 7)) for name in ("add", "div", "mul", "sub")),
    example("prims::neg", "a b -> a b", x(5, 7)),
    example("prims::convert_element_type", "a b -> a b", x(5, 7), torch.float32),
    # broadcasting
    example("aten::floor_divide", "a b c, c -> a b c", x(2, 3, 5), positive(5)),
    example("aten::polar", "a 1 b, c b -> a c b", x(2, 1, 5), x(3, 5)),
    example("aten::eq.Tensor", "a b, () -> a b", x(2, 3), x()),
    example("aten::mul_.Tensor", "a b, b -> a b", x(2, 3), x(3)),
    example("aten::where.self", "a 1, b, c a b -> c a b", mask(3, 1), x(5), x(2, 3, 5)),
    example("aten::masked_fill.Scalar", "a b, b -> a b", x(2, 3), mask(3), 7.0),
    example("aten::masked_fill.Tensor", "a b, a 1, () -> a b", x(2, 3), mask(2, 1), x()),
    # complex numbers
    *(
        example(f"aten::{name}", "a b -> a b", z(2, 3))
        for name in ("_conj", "_conj_copy", "resolve_conj", "resolve_neg")
    ),
    *(example(f"aten::{name}", "a b -> a b", x(2, 3)) for name in ("_neg_view", "_neg_view_copy")),
    example("aten::view_as_real", "a b -> a b .", z(2, 3)),
    example("aten::view_as_real_copy", "a b -> a b .", z(2, 3)),
    example("aten::view_as_complex", "a b . -> a b", x(3, 5, 2)),
    example("aten::view_as_complex_copy", "a b . -> a b", x(3, 5, 2)),
    # only the shape is taken
    *(example(f"aten::{name}", "a b -> a b", x(2, 3)) for name in ("ones_like", "zeros_like", "zero")),
    shapes_only(example("aten::empty_like", "a b -> a b", x(2, 3))),
    example("aten::full_like", "a b -> a b", x(2, 3), 5.0),
    example("aten::fill.Scalar", "a b -> a b", x(2, 3), 5.0),
    example("aten::fill.Tensor", "a b, () -> a b", x(2, 3), x()),
    example("aten::lift_fresh", "a b -> a b", x(2, 3)),
    idle(example("aten::copy", "a b, b -> a b", x(2, 3), x(3))),
    idle(example("aten::copy_", "a b, a b -> a b", x(2, 3), x(2, 3))),
    example("aten::threshold", "a b -> a b", x(2, 3), 0.1, 0.2),
    as_if(example("aten::_pin_memory", "a b -> a b", x(2, 3)), torch.clone),
    as_if(
        example("aten::_masked_scale", "a b, a b -> a b", x(2, 3), positive(2, 3), 2.0),
        lambda a, b, scale: a * b * scale,
    ),
    # quantisation
    example("aten::fake_quantize_per_tensor_affine_cachemask", "a b -> a b, a b", x(2, 3), 0.1, 3, 0, 255),
    example(
        "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        "a b, 1, 1, 1 -> a b, a b",
        x(2, 3).float(),
        positive(1).float(),
        ints(5, 1).int(),
        ints(2, 1),
        0,
        255,
    ),
    example(
        "aten::_fake_quantize_learnable_per_tensor_affine",
        "a b, 1, 1 -> a b",
        x(2, 3).float(),
        positive(1).float(),
        positive(1).float(),
        0,
        255,
    ),
    example(
        "aten::fake_quantize_per_channel_affine_cachemask",
        "a b c, b, b -> a b c, a b c",
        x(2, 3, 5).float(),
        positive(3).float(),
        ints(5, 3).int(),
        1,
        0,
        255,
    ),
    example(
        "aten::_fake_quantize_learnable_per_channel_affine",
        "a b c, b, b -> a b c",
        x(2, 3, 5).float(),
        positive(3).float(),
        ints(5, 3).float(),
        1,
        0,
        255,
    ),
    *(
        idle(
            example(
                "aten::_fused_moving_avg_obs_fq_helper",
                terms,
                x(3, 2).float(),
                torch.ones(1),
                torch.ones(1),
                x(size).float(),
                positive(size).float(),
                positive(size).float(),
                torch.zeros(size, dtype=torch.int32),
                0.1,
                0,
                255,
                0,
                size > 1,
            )
        )
        for terms, size in (("a b, 1, 1, 1, 1, 1, 1 -> a b, a b", 1), ("a b, 1, 1, a, a, a, a -> a b, a b", 3))
    ),
    # a dimension of its own kind
    example("aten::prelu", "a b c, b -> a b c", x(2, 3, 5), x(3)),
    example("aten::prelu", "a b c, 1 -> a b c", x(2, 3, 5), x(1)),
    example("aten::_prelu_kernel", "a b c, 1 b 1 -> a b c", x(2, 3, 5), x(1, 3, 1)),
    example("aten::glu", "a (b+b) c -> a b c", x(2, 6, 5), 1),
    example("aten::log_sigmoid_forward", "a b -> a b, a b", x(2, 3)),
]
