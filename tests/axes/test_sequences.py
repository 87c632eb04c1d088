"""Sequences: attention, recurrence and shared tables, each as a small model with its exact slices."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from checks.axes import frozen, proved, slices
from models.shared_weights import TiedResidual


class FusedQKV(nn.Module):
    """One projection for queries, keys and values; two heads of three."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 6)
        self.qkv = nn.Linear(6, 18)
        self.proj = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        batch, tokens, _ = x.shape
        if self.how == "reshape":
            q, k, v = self.qkv(x).reshape(batch, tokens, 3, 2, 3).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (part.view(batch, tokens, 2, 3).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, 6)
        return self.head(x + self.proj(y))


def test_fused_qkv_by_reshape() -> None:
    graph = proved(FusedQKV("reshape"), torch.randn(2, 4, 5))
    # a head: its block in q, k and v, and what the projection reads of it
    assert slices(graph, "qkv.weight", [0, 1, 2, 6, 7, 8, 12, 13, 14]) == {
        "qkv.weight": {0: [0, 1, 2, 6, 7, 8, 12, 13, 14]}, "qkv.bias": {0: [0, 1, 2, 6, 7, 8, 12, 13, 14]},
        "proj.weight": {1: [0, 1, 2]},
    }  # fmt: skip
    # one index of the head's width goes in every head, in q, k and v
    assert slices(graph, "proj.weight", [1], 1)["qkv.weight"] == {0: [1, 4, 7, 10, 13, 16]}
    outer = graph.axes["qkv.weight", 0].axes[0]
    assert (outer.size, "the code" in str(outer.frozen)) == (3, True)


def test_fused_qkv_by_chunk() -> None:
    graph = proved(FusedQKV("chunk"), torch.randn(2, 4, 5))
    # the width of values is independent of that of queries and keys, which go together
    assert slices(graph, "qkv.weight", [0, 3]) == {"qkv.weight": {0: [0, 3, 6, 9]}, "qkv.bias": {0: [0, 3, 6, 9]}}
    assert slices(graph, "qkv.weight", [12, 15]) == {
        "qkv.weight": {0: [12, 15]}, "qkv.bias": {0: [12, 15]}, "proj.weight": {1: [0, 3]},
    }  # fmt: skip


class GroupedQuery(nn.Module):
    """Four query heads on two key heads of width four, with rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.q = nn.Linear(6, 16, bias=False)
        self.k = nn.Linear(6, 8, bias=False)
        self.v = nn.Linear(6, 8, bias=False)
        self.o = nn.Linear(16, 6, bias=False)
        self.register_buffer("frequencies", torch.tensor([1.0, 0.3]))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * self.frequencies
        table = torch.cat([angles, angles], -1)
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * table.cos() + turned * table.sin()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        batch, tokens, _ = x.shape
        q = self.rotate(self.q(x).view(batch, tokens, 4, 4).transpose(1, 2))
        k = self.rotate(self.k(x).view(batch, tokens, 2, 4).transpose(1, 2))
        v = self.v(x).view(batch, tokens, 2, 4).transpose(1, 2)
        k, v = (t[:, :, None].expand(batch, 2, 2, tokens, 4).reshape(batch, 4, tokens, 4) for t in (k, v))
        weights = (q @ k.transpose(2, 3) / 2).softmax(-1)
        return F.linear(x + self.o((weights @ v).transpose(1, 2).reshape(batch, tokens, 16)), self.embed.weight)


def test_grouped_query_attention_with_rotary_positions_and_a_tied_head() -> None:
    graph = proved(GroupedQuery(), torch.randint(0, 11, (2, 3)))
    # a key head takes its two query heads with it
    assert slices(graph, "k.weight", [4, 5, 6, 7]) == {
        "q.weight": {0: list(range(8, 16))}, "k.weight": {0: [4, 5, 6, 7]}, "v.weight": {0: [4, 5, 6, 7]},
        "o.weight": {1: list(range(8, 16))},
    }  # fmt: skip
    # a frequency takes both halves of every head
    assert slices(graph, "frequencies", [1]) == {
        "frequencies": {0: [1]}, "q.weight": {0: [1, 3, 5, 7, 9, 11, 13, 15]}, "k.weight": {0: [1, 3, 5, 7]},
    }  # fmt: skip
    # the width of the values is its own axis
    assert slices(graph, "v.weight", [0, 4]) == {"v.weight": {0: [0, 4]}, "o.weight": {1: [0, 4, 8, 12]}}
    # the table is read as embedding and as head
    assert "vocabulary" in frozen(graph, "embed.weight", 0)
    assert slices(graph, "embed.weight", [5], 1)["o.weight"] == {0: [5]}


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.before = nn.Linear(3, 4)
        self.cell = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.after = nn.Linear(10, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.cell(self.before(x))[0][:, -1])


def _recurrent_slices(gates: int) -> dict[str, dict[int, list[int]]]:
    """What goes with index 1 of the first layer's backward direction."""
    rows = [5 * gate + 1 for gate in range(gates)]
    own = {"weight_ih": {0: rows}, "weight_hh": {0: rows, 1: [1]}, "bias_ih": {0: rows}, "bias_hh": {0: rows}}
    return {
        **{f"cell.{name}_l0_reverse": gone for name, gone in own.items()},
        "cell.weight_ih_l1": {1: [6]}, "cell.weight_ih_l1_reverse": {1: [6]},
    }  # fmt: skip


def test_lstm_in_both_directions() -> None:
    graph = proved(Recurrent(nn.LSTM), torch.randn(2, 3, 3))
    assert slices(graph, "cell.weight_hh_l0_reverse", [1], 1) == _recurrent_slices(4)
    assert slices(graph, "before.weight", [2])["cell.weight_ih_l0_reverse"] == {1: [2]}


def test_gru_in_both_directions() -> None:
    graph = proved(Recurrent(nn.GRU), torch.randn(2, 3, 3))
    assert slices(graph, "cell.weight_hh_l0_reverse", [1], 1) == _recurrent_slices(3)
    assert slices(graph, "after.weight", [7], 1)["cell.bias_ih_l1_reverse"] == {0: [2, 7, 12]}


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x, self.y, self.z = nn.Linear(3, 8), nn.Linear(3, 6), nn.Linear(3, 10)
        self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=10, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(self.x(x), self.y(x), self.z(x), need_weights=False)[0])


def test_multihead_attention_with_widths_of_keys_and_values() -> None:
    graph = proved(CrossAttention(), torch.randn(2, 4, 3))
    assert slices(graph, "y.weight", [5]) == {
        "y.weight": {0: [5]}, "y.bias": {0: [5]}, "attention.k_proj_weight": {1: [5]},
    }  # fmt: skip
    head = slices(graph, "attention.k_proj_weight", [0, 1, 2, 3])
    assert head["attention.q_proj_weight"] == {0: [0, 1, 2, 3]}
    assert head["attention.v_proj_weight"] == {0: [0, 1, 2, 3]}
    assert head["attention.in_proj_bias"] == {0: [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19]}
    assert head["attention.out_proj.weight"] == {1: [0, 1, 2, 3]}


class RawParameters(nn.Module):
    """Parameters that no layer owns."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(3, 7))
        self.b = nn.Parameter(torch.randn(2, 7, 5))
        self.c = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("nk,hkd->nhd", x @ self.a, self.b) @ self.c


def test_raw_parameters_through_matmul_and_einsum() -> None:
    graph = proved(RawParameters(), torch.randn(6, 3))
    assert slices(graph, "a", [4], 1) == {"a": {1: [4]}, "b": {1: [4]}}
    assert slices(graph, "b", [2], 2) == {"b": {2: [2]}, "c": {0: [2]}}
    assert "model output" in frozen(graph, "b", 0)


def test_tied_embeddings_are_one_value_with_two_names() -> None:
    graph = proved(TiedResidual(7, 4), torch.randint(0, 7, (2, 3)))
    assert graph.state["embed.weight"] is graph.state["head.weight"]
    assert slices(graph, "head.weight", [1], 1) == {
        "embed.weight": {1: [1]}, "head.weight": {1: [1]}, "mix.weight": {0: [1], 1: [1]}, "mix.bias": {0: [1]},
    }  # fmt: skip
