"""Attention is found in the data flow, in whatever way it is written, with its projections, heads and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modulekg_widgets as mk
from modulekg_widgets.engine.axes.inference.attention import Attention, find_attention
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.tracing.dataflow import OperatorNode

QKVO = {"q": ["q"], "k": ["k"], "v": ["v"], "out": ["out"]}


def attentions(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[Attention, ...]:
    return mk.trace(model.eval(), args, kwargs).attention_dependency().attentions


def only(model: nn.Module, *args: Any, **kwargs: Any) -> Attention:
    (found,) = attentions(model, *args, **kwargs)
    return found


# ------------------------------------------------------- one head, many hands

Core = Callable[[Tensor, Tensor, Tensor], Tensor]


def by_matmul(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v


def keys_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (v.transpose(-1, -2) @ (k @ q.transpose(-1, -2)).softmax(-2)).transpose(-1, -2)


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v)


def by_einsum_keys_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhkd,bhkq->bhqd", v, torch.einsum("bhkd,bhqd->bhkq", k, q).softmax(2))


def by_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q[:, :, :, None] * k[:, :, None]).sum(-1)
    return (scores.softmax(-1)[..., None] * v[:, :, None]).sum(-2)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked_by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    return F.dropout(scores.masked_fill(~mask, -1e9).float().softmax(-1), 0.1).to(v.dtype) @ v


def by_exponentials(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return (e / (e.sum(-1, keepdim=True) + 1e-6)) @ v


def flat_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    heads = q.shape[:2]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    return torch.bmm(torch.baddbmm(torch.zeros(1), q, k.mT).softmax(-1), v).unflatten(0, heads)


def with_a_sink(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    wide = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1)
    return wide.softmax(-1)[..., :-1] @ v


def written_into(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (k @ q.mT).transpose(-1, -2)
    scores[..., 1:, 1:] += 1
    scores[torch.zeros_like(scores, dtype=torch.bool)] = -1e9
    return scores.softmax(-1) @ v


HANDS: list[Core] = [by_matmul, keys_first, by_einsum, by_einsum_keys_first, by_sums, fused, causal, masked_by_hand,
                     by_exponentials, flat_batch, with_a_sink, written_into]  # fmt: skip


class Heads(nn.Module):
    """Four projections around one of the functions above; the keys may come from elsewhere."""

    def __init__(self, core: Core, heads: int = 4, width: int = 32, other: int = 32, v_dim: int = 8) -> None:
        super().__init__()
        self.core, self.heads = core, heads
        self.q, self.k = nn.Linear(width, 32), nn.Linear(other, 32)
        self.v, self.out = nn.Linear(other, heads * v_dim), nn.Linear(heads * v_dim, width)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        y = x if y is None else y
        split = [p(z).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                 for p, z in ((self.q, x), (self.k, y), (self.v, y))]  # fmt: skip
        return self.out(self.core(*split).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("core", HANDS)
def test_attention_is_found_however_it_is_written(core: Core) -> None:
    graph = mk.trace(Heads(core).eval(), torch.zeros(2, 5, 32))
    (found,) = graph.attention_dependency().attentions
    assert found.projections == QKVO
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 4, 8)
    assert graph.axes.expression("q.weight") == "(heads=4 head_dim=8) in=32"
    assert graph.axes.expression("k.weight") == "(heads=4 head_dim=8) in=32"
    assert graph.axes.expression("v.weight") == "(heads=4 v_head_dim=8) in=32"
    assert graph.axes.expression("out.weight") == "out=32 (heads=4 v_head_dim=8)"


@pytest.mark.parametrize("core", HANDS)
def test_in_cross_attention_keys_and_values_come_from_the_other_side(core: Core) -> None:
    found = only(Heads(core, other=20, v_dim=6), torch.zeros(2, 5, 32), torch.zeros(2, 5, 20))
    assert found.projections == QKVO
    assert (found.heads, found.head_dim) == (4, 8)


def test_one_head_has_no_axis_of_heads() -> None:
    found = only(Heads(by_matmul, heads=1, v_dim=12), torch.zeros(2, 5, 32))
    assert (found.heads, found.kv_heads, found.head_dim, found.heads_axes) == (1, 1, 32, ())


def test_the_roles_say_what_an_axis_is_for() -> None:
    axes = mk.trace(Heads(by_matmul).eval(), torch.zeros(2, 5, 32)).axes
    assert [axis.role for axis in axes["q.weight", 0].axes] == ["heads", "head_dim"]
    assert [axis.role for axis in axes["v.weight", 0].axes] == ["heads", "head_dim"]
    assert [axis.name for axis in axes["v.weight", 0].axes] == ["heads", "v_head_dim"]
    assert axes["heads"].members == axes["q.weight", 0].axes[0].members


# ------------------------------------------------------- torch's own attention


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_with_one_input_has_one_layer_for_q_k_and_v(need_weights: bool, batch_first: bool) -> None:
    x = torch.zeros(2, 5, 32)
    model = nn.Sequential(nn.Linear(32, 32), nn.TransformerEncoderLayer(32, 4, 48, batch_first=batch_first))
    graph = mk.trace(model.eval(), x)
    (found,) = graph.attention_dependency().attentions
    assert found.projections == {part: ["1.self_attn"] for part in "qkv"} | {"out": ["1.self_attn.out_proj"]}
    assert graph.attention_dependency().dependency_sets == [["1.self_attn", "1.self_attn.out_proj"]]
    assert graph.axes.expression("1.self_attn.in_proj_weight") == "(qkv=3 heads=4 head_dim=8) hidden=32"
    alone = only(nn.MultiheadAttention(32, 4, batch_first=batch_first), x, x, x, need_weights=need_weights)
    assert alone.projections == {part: ["in_proj_weight"] for part in "qkv"} | {"out": ["out_proj"]}


def test_multi_head_attention_with_kdim_and_vdim_has_a_weight_for_each() -> None:
    model = nn.MultiheadAttention(32, 4, kdim=20, vdim=24, batch_first=True)
    graph = mk.trace(model.eval(), (torch.zeros(2, 5, 32), torch.zeros(2, 7, 20), torch.zeros(2, 7, 24)))
    (found,) = graph.attention_dependency().attentions
    assert found.projections == {**{part: [f"{part}_proj_weight"] for part in "qkv"}, "out": ["out_proj"]}
    assert graph.axes.expression("k_proj_weight") == "(heads=4 head_dim=8) in=20"
    assert graph.axes.expression("in_proj_bias") == (
        "((heads=4 head_dim=8) + (heads=4 head_dim=8) + (heads=4 v_head_dim=8))"
    )


def test_a_transformer_has_three_kinds_of_attention() -> None:
    model = nn.Transformer(16, 2, 1, 1, 24, batch_first=True)
    found = attentions(model, torch.zeros(1, 5, 16), torch.zeros(1, 4, 16))
    assert [a.module for a in found] == [
        "encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"
    ]  # fmt: skip
    assert all(a.heads == 2 and a.head_dim == 8 for a in found)


# --------------------------------------------------------------- fewer keys


class SharedKeys(nn.Module):
    """Each key and value serves a group of queries."""

    def __init__(self, repeat: Callable[[Tensor, int], Tensor] | None, heads: int = 4, keys: int = 2) -> None:
        super().__init__()
        self.repeat, self.heads, self.keys = repeat, heads, keys
        self.q, self.k, self.v = nn.Linear(32, heads * 8), nn.Linear(32, keys * 8), nn.Linear(32, keys * 8)
        self.out = nn.Linear(heads * 8, 32)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (-1, 8)).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.repeat is None:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            k, v = (self.repeat(z, self.heads // self.keys) for z in (k, v))
            y = (q @ k.mT).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))


def expanded(x: Tensor, count: int) -> Tensor:
    return x[:, :, None].expand(-1, -1, count, -1, -1).flatten(1, 2)


@pytest.mark.parametrize("repeat", [expanded, lambda x, n: x.repeat_interleave(n, 1), None])
def test_queries_that_share_a_key_are_a_group(repeat: Callable[[Tensor, int], Tensor] | None) -> None:
    graph = mk.trace(SharedKeys(repeat).eval(), torch.zeros(2, 5, 32))
    (found,) = graph.attention_dependency().attentions
    assert found.projections == QKVO
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 2, 8)
    assert graph.axes.expression("q.weight") == "(kv_heads=2 group=2 head_dim=8) in=32"
    assert graph.axes.expression("k.weight") == "(kv_heads=2 head_dim=8) in=32"
    assert graph.axes.expression("out.weight") == "out=32 (kv_heads=2 group=2 v_head_dim=8)"


def test_one_key_for_all_queries() -> None:
    graph = mk.trace(SharedKeys(expanded, keys=1).eval(), torch.zeros(2, 5, 32))
    (found,) = graph.attention_dependency().attentions
    assert (found.heads, found.kv_heads) == (4, 1)
    assert graph.axes.expression("q.weight") == "(heads=4 head_dim=8) in=32"
    assert graph.axes.expression("k.weight") == "head_dim=8 in=32"


# --------------------------------------------------------- what is no attention


class Gated(nn.Module):
    """Softmaxes that weigh channels, experts and instances, and one of a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.gate, self.score = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        x = weights[..., :1] * self.a(x) + weights[..., 1:] * self.b(x)
        x = x * x.softmax(-1)
        pooled = self.score(x.tanh()).softmax(1).transpose(1, 2) @ x
        return self.head(pooled[:, 0]).softmax(-1)


def test_a_softmax_alone_is_no_attention() -> None:
    assert attentions(Gated(), torch.zeros(2, 6, 8)) == ()


class Linearised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(q.softmax(-1) @ (k.softmax(1).mT @ v))


def test_linear_attention_has_no_scores() -> None:
    assert attentions(Linearised(), torch.zeros(2, 6, 8)) == ()


# ------------------------------------------------------------------------ cost


class Counted(Layers):
    """Counts how often an operator is looked at."""

    looks = 0

    def traits(self, operator: OperatorNode) -> Any:
        self.looks += 1
        return super().traits(operator)


def test_the_cost_is_linear_in_the_number_of_operators() -> None:
    def looks(depth: int) -> int:
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), depth)
        layers = Counted(mk.trace(model.eval(), torch.zeros(1, 4, 16)).axes.inference)
        assert len(find_attention(layers)) == depth
        return layers.looks

    assert 7 * looks(6) < looks(48) < 9 * looks(6)
