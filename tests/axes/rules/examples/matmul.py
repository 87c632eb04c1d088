"""Examples for rules/matmul.py."""

from __future__ import annotations

from typing import Any

import torch

from axes.rules.harness import as_if, example, ints, positive, x


def _bytes(*shape: int) -> torch.Tensor:
    return ints(100, *shape).to(torch.int8)


def _scaled(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, bias: Any = None
) -> torch.Tensor:
    out = (a * scale_a) @ (b * scale_b)
    return out if bias is None else out + bias


def _blocks(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    return (a * scale_a.repeat_interleave(2, 1)) @ b * scale_b


_ENDS = torch.tensor([2, 6])

EXAMPLES = [
    example("aten::mm", "a b, b c -> a c", x(2, 3), x(3, 5)),
    example("aten::bmm", "a b c, a c d -> a b d", x(2, 3, 5), x(2, 5, 7)),
    example("aten::_int_mm", "a b, b c -> a c", _bytes(32, 16), _bytes(16, 24)),
    example("aten::matmul", "a b, b c -> a c", x(2, 3), x(3, 5)),
    example("aten::matmul", "a, a -> ()", x(3), x(3)),
    example("aten::matmul", "a, b a c -> b c", x(3), x(2, 3, 5)),
    example("aten::matmul", "a b c, c -> a b", x(2, 3, 5), x(5)),
    example("aten::matmul", "a 1 b c, d c e -> a d b e", x(2, 1, 3, 5), x(7, 5, 11)),
    example("aten::addmm", "a, b c, c a -> b a", x(5), x(2, 3), x(3, 5)),
    example("aten::addmm", "a b, a c, c b -> a b", x(2, 5), x(2, 3), x(3, 5), beta=2, alpha=3),
    example("aten::_addmm_activation", "a, b c, c a -> b a", x(5), x(2, 3), x(3, 5)),
    example("aten::baddbmm", "a 1 b, a c d, a d b -> a c b", x(2, 1, 7), x(2, 3, 5), x(2, 5, 7)),
    example("aten::addbmm", "a b, c a d, c d b -> a b", x(3, 7), x(2, 3, 5), x(2, 5, 7)),
    example("aten::mv", "a b, b -> a", x(2, 3), x(3)),
    example("aten::addmv", "a, a b, b -> a", x(2), x(2, 3), x(3)),
    example("aten::dot", "a, a -> ()", x(3), x(3)),
    example("aten::vdot", "a, a -> ()", x(3), x(3)),
    example("aten::addr", "a b, a, b -> a b", x(2, 3), x(2), x(3)),
    example("aten::linear", "a b c, d c, d -> a b d", x(2, 3, 5), x(7, 5), x(7)),
    example("aten::linear", "a b, b -> a", x(2, 5), x(5)),
    # bilinear: (batch, in1), (out, in1, in2), (batch, in2)
    example("aten::_trilinear", "a b, c b d, a d -> a c", x(2, 3), x(5, 3, 7), x(2, 7), [1, 3], [0], [1, 2], [2, 3]),
    example("aten::_cdist_forward", "a b c, a d c -> a b d", x(2, 3, 5), x(2, 7, 5), 2.0, None),
    example("aten::cdist", "a 1 b c, d e c -> a d b e", x(2, 1, 3, 5), x(11, 7, 5), 1.0),
    example("aten::_euclidean_dist", "a b, c b -> a c", x(2, 5), x(3, 5)),
    *(example(f"aten::{name}", ". a -> .", x(5, 3)) for name in ("_pdist_forward", "pdist")),
    example("aten::_weight_int8pack_mm", "a b, c b, c -> a c", x(2, 32).float(), _bytes(16, 32), positive(16).float()),
    # products per group: a matrix per group on both sides, rows of each group, columns of each, parts of the sum
    example("aten::_grouped_mm", "a b c, a c d -> a b d", x(2, 4, 8).bfloat16(), x(2, 8, 16).bfloat16()),
    example("aten::_grouped_mm", ". a, . a b, . -> . b", x(6, 8).bfloat16(), x(2, 8, 16).bfloat16(), _ENDS.int()),
    as_if(
        example("aten::_grouped_mm", ". a b, b ., . -> a .", x(2, 3, 5), x(5, 6), _ENDS),
        lambda a, b, _: torch.cat([a[0] @ b[:, :2], a[1] @ b[:, 2:]], -1),
    ),
    as_if(
        example("aten::_grouped_mm", "a ., . b, . -> . a b", x(3, 6), x(6, 5), _ENDS),
        lambda a, b, _: torch.stack([a[:, :2] @ b[:2], a[:, 2:] @ b[2:]]),
    ),
    as_if(example("aten::_scaled_mm", "a b, b c, (), () -> a c", x(2, 3), x(3, 5), x(), x()), _scaled),
    as_if(
        example("aten::_scaled_mm", "a b, b c, a 1, 1 c, c -> a c", x(2, 3), x(3, 5), x(2, 1), x(1, 5), x(5)), _scaled
    ),
    as_if(example("aten::_scaled_mm", ". ., . ., . ., () -> . .", x(2, 6), x(6, 5), x(2, 3), x()), _blocks),
]
