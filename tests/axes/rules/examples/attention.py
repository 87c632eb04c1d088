"""Examples for rules/attention.py."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axes.rules.harness import Example, as_if, example, mask, shapes_only, x

MATH = torch.ops.aten._scaled_dot_product_attention_math.default
PLAIN = "a b c d, a b e d, a b e f -> a b c f"


def _q_k_v(heads: int = 3, groups: int = 1, values: int = 13) -> tuple[Tensor, Tensor, Tensor]:
    """(batch 2, heads, queries 5, width 7), keys and values of length 11."""
    return x(2, heads * groups, 5, 7), x(2, heads, 11, 7), x(2, heads, 11, values)


def _math(q: Tensor, k: Tensor, v: Tensor, bias: Any = None) -> Tensor:
    return MATH(q, k, v, bias)[0]


def _on_cuda(name: str, terms: str, *args: Any, results: Any, bias: bool = False) -> Example:
    """A kernel for GPUs: its first result is compared with the mathematics, the others have their shapes alone."""

    def run(*given: Any) -> Any:
        return (_math(*given[: 4 if bias else 3]), *results())

    return shapes_only(as_if(example(name, terms, *args), run), results=1)


def _flash_results() -> Any:
    state = torch.zeros(2, dtype=torch.int64)
    return torch.zeros(2, 3, 5), None, None, 5, 11, state, torch.zeros(()), torch.zeros(0)


EXAMPLES = [
    example("aten::scaled_dot_product_attention", PLAIN, *_q_k_v()),
    example("aten::scaled_dot_product_attention", "a b, c b, c d -> a d", x(5, 7), x(11, 7), x(11, 13)),
    example("aten::scaled_dot_product_attention", "a b . c, a b . c, a b . d -> a b . d", *_q_k_v(), is_causal=True),
    # a mask meets the scores, broadcast: (heads, queries, keys)
    example(
        "aten::scaled_dot_product_attention", "a b c d, a b e d, a b e f, b c e -> a b c f", *_q_k_v(), x(3, 5, 11)
    ),
    example(
        "aten::scaled_dot_product_attention",
        "a b c d, a b e d, a b e f, a 1 1 e -> a b c f",
        *_q_k_v(),
        mask(2, 1, 1, 11),
    ),
    # fewer key heads than query heads: each serves a group
    example(
        "aten::scaled_dot_product_attention",
        "a (b .) c d, a b e d, a b e f -> a (b .) c f",
        *_q_k_v(3, 2),
        enable_gqa=True,
    ),
    example(
        "aten::scaled_dot_product_attention", "a b c d, a 1 e d, a 1 e f -> a b c f", *_q_k_v(1, 6), enable_gqa=True
    ),
    example("aten::_scaled_dot_product_attention_math", "a b c d, a b e d, a b e f -> a b c f, a b c e", *_q_k_v()),
    example(
        "aten::_scaled_dot_product_attention_math",
        "a b c d, a b e d, a b e f, a b c e -> a b c f, a b c e",
        *_q_k_v(),
        None,
        0.5,
        False,
        mask(2, 3, 5, 11),
    ),
    example("aten::_scaled_dot_product_flash_attention_for_cpu", f"{PLAIN}, a b c", *_q_k_v(values=7)),
    example(
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "a b c d, a b e d, a b e f, a b c e -> a b c f, a b c",
        *_q_k_v(values=7),
        attn_mask=x(2, 3, 5, 11),
    ),
    # on other devices
    _on_cuda(
        "aten::_scaled_dot_product_flash_attention", f"{PLAIN}, a b c, ., (), .", *_q_k_v(), results=_flash_results
    ),
    _on_cuda(
        "aten::_scaled_dot_product_efficient_attention",
        "a b . c, a b d c, a b d e -> a b . e, a b ., (), ()",
        *_q_k_v(),
        None,
        True,
        results=lambda: (torch.zeros(2, 3, 32), torch.zeros(()), torch.zeros(())),
        bias=True,
    ),
    _on_cuda(
        "aten::_scaled_dot_product_efficient_attention",
        "a b c d, a b e d, a b e f, a b c e -> a b c f, a b ., (), ()",
        *_q_k_v(),
        x(2, 3, 5, 11),
        False,
        results=lambda: (torch.zeros(2, 3, 0), torch.zeros(()), torch.zeros(())),
        bias=True,
    ),
    _on_cuda(
        "aten::_scaled_dot_product_cudnn_attention",
        f"{PLAIN}, a b c 1, (), (), ()",
        *_q_k_v(),
        None,
        True,
        results=lambda: (torch.zeros(2, 3, 5, 1), None, None, 5, 11, *[torch.zeros(()) for _ in range(3)]),
        bias=True,
    ),
    _on_cuda(
        "aten::_scaled_dot_product_fused_attention_overrideable",
        f"{PLAIN}, a b c, (), (), ()",
        *_q_k_v(),
        None,
        results=lambda: (torch.zeros(2, 3, 5), None, None, 5, 11, *[torch.zeros(()) for _ in range(3)]),
        bias=True,
    ),
    _on_cuda(
        "aten::_scaled_dot_product_attention_math_for_mps",
        f"{PLAIN}, a b c e",
        *_q_k_v(),
        results=lambda: (torch.zeros(2, 3, 5, 11),),
    ),
]
