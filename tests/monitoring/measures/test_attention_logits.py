"""What is read of attention: entropy and largest logit against numpy, for SDPA and nn.MultiheadAttention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils._python_dispatch import TorchDispatchMode

from modulekg_widgets.engine.monitoring.measures import attention_logits
from modulekg_widgets.engine.monitoring.measures.attention_logits import AttentionCall, AttentionLogits
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS
from monitoring.measures.attention_samples import (
    B,
    E,
    Fused,
    H,
    L,
    N,
    S,
    W,
    check,
    projected,
    random,
    reference,
    watched,
)

SHOWN = torch.rand(B, H, L, S, generator=torch.Generator().manual_seed(1)) > 0.4
SHOWN[0, 1, 2] = False  # a query that sees nothing
ADDED = random(H, L, S)
CAUSAL = torch.ones(L, S, dtype=torch.bool).tril()
LOWEST = torch.zeros(B, 1, L, S).masked_fill(~SHOWN[:, 1:2], torch.finfo(torch.float32).min)

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "scale": ({"scale": 0.9}, {"scale": 0.9}),
    "boolean": ({"attn_mask": SHOWN}, {"hidden": ~SHOWN}),
    "boolean of rows": ({"attn_mask": SHOWN[0, 0]}, {"hidden": ~SHOWN[0, 0]}),
    "added": ({"attn_mask": ADDED}, {"mask": ADDED}),
    "-inf": ({"attn_mask": torch.zeros(SHOWN.shape).masked_fill(~SHOWN, -math.inf)}, {"hidden": ~SHOWN}),
    "lowest number": ({"attn_mask": LOWEST}, {"hidden": LOWEST < 0}),
    "causal": ({"is_causal": True}, {"hidden": ~CAUSAL}),
    "upper left": ({"attn_mask": causal_upper_left(L, S)}, {"hidden": ~CAUSAL}),
    "lower right": (
        {"attn_mask": causal_lower_right(L, S)},
        {"hidden": ~torch.ones(L, S, dtype=torch.bool).tril(S - L)},
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("block", [1, 3 * S, 1 << 20])
def test_masks_and_scales(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_logits, "CPU_BLOCK_ELEMENTS", block)
    arguments, facts = CASES[name]
    query, key = random(B, H, L, E), 2 * random(B, H, S, E)
    module = Fused()
    expected = module(query, key, key, **arguments)
    seen = watched(module)
    assert torch.equal(module(query, key, key, **arguments).nan_to_num(7), expected.nan_to_num(7))
    check(seen[0], reference(query, key, **facts))


@pytest.mark.parametrize(
    ("queries", "keys"),
    [((L, E), (S, E)), ((H, L, E), (H, S, E)), ((1, H, L, E), (B, H, S, E)), ((3, B, H, L, E), (3, B, H, S, E))],
)
def test_any_leading_dimensions(queries: tuple[int, ...], keys: tuple[int, ...]) -> None:
    query, key = random(*queries), random(*keys)
    module = Fused()
    seen = watched(module)
    module(query, key, key)
    check(seen[0], reference(query, key))


@pytest.mark.parametrize("shape", [None, (L, S), (B, 1, L, S), (B, H, L, S)])
def test_grouped_queries(shape: tuple[int, ...] | None) -> None:
    query, key = random(B, H, L, E), random(B, 2, S, E)
    mask = None if shape is None else random(*shape)
    module = Fused()
    seen = watched(module)
    module(query, key, key, mask, enable_gqa=True)
    whole = torch.stack([key[:, head // 2] for head in range(H)], 1)
    check(seen[0], reference(query, whole, mask=mask))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_arithmetic_is_in_fp32_or_better(dtype: torch.dtype) -> None:
    query, key = 40 * random(B, H, L, 64, dtype=dtype), 40 * random(B, H, S, 64, dtype=dtype)
    seen = watched(module := Fused())
    with torch.autocast("cpu", torch.bfloat16):
        module(query, key, key)
        assert reference(query, key)[1] > 1000
        check(seen[0], reference(query, key), 1e-12 if dtype is torch.float64 else 2e-6)
    assert seen[0] is not None
    assert seen[0].entropy() is seen[0].entropy()  # computed once


def test_the_ends_of_the_scale() -> None:
    zero = torch.zeros(1, 1, L, E)
    check(AttentionLogits([AttentionCall(zero, zero, (), None, 1.0)]), (math.log(L), 0.0), 1e-6)
    sharp = 1e3 * torch.eye(E).expand(1, 1, E, E)
    check(AttentionLogits([AttentionCall(sharp, sharp, (), None, 1.0)]), (0.0, 1e6), 1e-6)


def test_nan_shows_and_no_query_at_all_is_no_number() -> None:
    query = random(1, 1, L, E)
    hidden = AttentionLogits([AttentionCall(query, query, (torch.zeros(L, L, dtype=torch.bool),), None, 1.0)])
    assert math.isnan(hidden.entropy())
    assert math.isnan(hidden.largest_logit())
    broken = query.clone()
    broken[0, 0, 1, 1] = math.nan
    found = AttentionLogits([AttentionCall(broken, query, (), None, 1.0)])
    assert math.isnan(found.entropy())
    assert math.isnan(found.largest_logit())
    with pytest.raises(NoValueError, match="no query"):
        AttentionLogits([AttentionCall(query[:, :, :0], query, (), None, 1.0)]).entropy()


# ----------------------------------------------------------- nn.MultiheadAttention

AHEAD = torch.ones(L, L, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[False] * L, [False] * 3 + [True] * 2, [True] * L])  # the last item is nothing but padding
EACH = torch.rand(N * H, L, L, generator=torch.Generator().manual_seed(2)) > 0.7

MASKS: dict[str, tuple[dict[str, Any], torch.Tensor]] = {
    "none": ({}, torch.zeros(1, dtype=torch.bool)),
    "padding": ({"key_padding_mask": PADDED}, PADDED.view(N, 1, 1, L)),
    "float padding": ({"key_padding_mask": torch.zeros(N, L).masked_fill(PADDED, -math.inf)}, PADDED.view(N, 1, 1, L)),
    "boolean": ({"attn_mask": AHEAD}, AHEAD),
    "each head": ({"attn_mask": EACH}, EACH.view(N, H, L, L)),
    "both": ({"attn_mask": AHEAD, "key_padding_mask": PADDED}, AHEAD | PADDED.view(N, 1, 1, L)),
    "causal": ({"attn_mask": nn.Transformer.generate_square_subsequent_mask(L), "is_causal": True}, AHEAD),
    "all": ({"attn_mask": AHEAD, "key_padding_mask": PADDED, "is_causal": True}, AHEAD | PADDED.view(N, 1, 1, L)),
}


def multihead(**settings: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(W, H, **settings)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("way", ["train", "eval", "fast", "inside"])
def test_multihead_attention(masks: str, weights: bool, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fast` runs torch._native_multi_head_attention where torch can; in all ways nothing changes."""
    native, quick = torch._native_multi_head_attention, []
    monkeypatch.setattr(torch, "_native_multi_head_attention", lambda *args: quick.append(1) or native(*args))
    arguments, hidden = MASKS[masks]
    module = multihead(batch_first=way != "train").train(way in ("train", "inside"))
    x = random(N, L, W)
    given = x.transpose(0, 1) if way == "train" else x
    outer = nn.ModuleList([module]) if way == "inside" else module
    with torch.set_grad_enabled(way in ("train", "eval")):
        expected = module(given, given, given, need_weights=weights, **arguments)[0]
        if way == "inside":
            outer.forward = lambda *args, **kwargs: module(*args, **kwargs)  # type: ignore[method-assign]
        seen = watched(outer)
        found = outer(given, given, given, need_weights=weights, **arguments)[0]
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))
    check(seen[0], reference(*projected(module, x), hidden=hidden))
    of_floats = any(torch.is_tensor(mask) and mask.is_floating_point() for mask in arguments.values())
    assert len(quick) == (2 if way == "fast" and not of_floats else 0)


@pytest.mark.parametrize(("way", "hidden"), [("train", AHEAD), ("fast", torch.zeros(1, dtype=torch.bool))])
def test_a_wrong_hint_counts_as_torch_takes_it(way: str, hidden: torch.Tensor) -> None:
    """With `is_causal` a mask of nothing is no mask for the fast path, and a causal one for the other."""
    module, x = multihead(batch_first=True).train(way == "train"), random(N, L, W)
    nothing = torch.zeros(L, L, dtype=torch.bool)
    seen = watched(module)
    with torch.set_grad_enabled(way == "train"):
        found = module(x, x, x, need_weights=False, attn_mask=nothing, is_causal=True)[0]
        asked = module(x, x, x, need_weights=False, attn_mask=hidden.expand(L, L))[0]
    assert torch.allclose(found, asked, atol=1e-4)
    check(seen[0], reference(*projected(module, x), hidden=hidden))


@pytest.mark.parametrize("training", [True, False])
def test_multihead_attention_of_other_widths_with_more_keys(training: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(W, H, kdim=5, vdim=6, add_bias_kv=True, add_zero_attn=True, batch_first=True)
    module.train(training)
    query, key, value = random(N, L, W), random(N, S, 5), random(N, S, 6)
    padding = torch.rand(N, S, generator=torch.Generator().manual_seed(3)) > 0.5
    seen = watched(module)
    with torch.set_grad_enabled(training):
        probabilities = module(query, key, value, padding, average_attn_weights=False)[1].detach().double().numpy()
    assert probabilities.shape == (N, H, L, S + 2)
    with np.errstate(divide="ignore"):
        logs = np.where(probabilities > 0, np.log(probabilities), 0)
    assert seen[0] is not None
    assert float(seen[0].entropy()) == pytest.approx(-(probabilities * logs).sum(-1).mean(), rel=1e-5)


def test_multihead_attention_without_batch() -> None:
    module, x = multihead(), random(L, W)
    seen = watched(module)
    module(query=x, key=x, value=x, attn_mask=EACH[:H])
    check(seen[0], reference(*projected(module, x.unsqueeze(0)), hidden=EACH[:H]))


class Largest(TorchDispatchMode):
    """Notes the most elements that new memory has."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {part.untyped_storage().data_ptr() for part in args if isinstance(part, torch.Tensor)}
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in known:
            self.most = max(self.most, result.numel())
        return result


@pytest.mark.parametrize(("rows", "keys"), [(600, 600), (1, 1500)])
def test_memory_is_bounded(rows: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key = random(2, 8, rows, 16), random(2, 2, keys, 16)
    seen = watched(module := Fused())
    module(query, key, key, enable_gqa=True)
    monkeypatch.setattr(attention_logits, "CPU_BLOCK_ELEMENTS", 1 << 15)
    assert seen[0] is not None
    with Largest() as largest:
        seen[0].entropy()
    assert keys <= largest.most <= 1 << 15
    check(seen[0], reference(query, key.repeat_interleave(4, 1)))


@pytest.mark.parametrize("name", CASES)
def test_no_value_is_read_from_the_device(name: str) -> None:
    """A meta tensor has no data: whatever waits for a value raises."""
    seen = watched(module := Fused())
    module(random(B, H, L, E), key := random(B, H, S, E), key, **CASES[name][0])
    assert seen[0] is not None
    query, key, masks, *others = seen[0].calls[0]
    bare = AttentionLogits(
        [AttentionCall(query.to("meta"), key.to("meta"), tuple(mask.to("meta") for mask in masks), *others)]
    )
    assert bare.entropy().is_meta
    assert bare.largest_logit().shape == ()


def test_both_are_registered() -> None:
    for name in ("AttentionEntropy", "AttentionMaxLogit"):
        assert METRICS[name].needs == ("Attention",)
