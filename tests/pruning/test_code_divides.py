"""Numbers that code computes from two sizes, as `width // heads`: a cut keeps what one is of the other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import modulekg_widgets as mk

WIDTH, HEADS, DEPTH = 48, 6, 2


class Attention(nn.Module):
    """Divides the width of what it gets by its number of heads."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, self.num_heads, width // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Blocks(nn.Module):
    """Attention and an MLP that read and write one stream."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(8, WIDTH)
        self.attention = nn.ModuleList(Attention() for _ in range(DEPTH))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(DEPTH)
        )
        self.out = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        for attention, mlp in zip(self.attention, self.mlp, strict=True):
            x = x + attention(x)
            x = x + mlp(x)
        return self.out(x)


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("share", [0.6, 0.3])
def test_heads_go_with_the_width_that_they_divide(scope: str, share: float) -> None:
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(2, 5, 8)
    plan = mk.plan(mk.trace(model, x), target={"flops": share}, scope=scope, granularity="head")
    before, after = plan.flops
    assert after / before == pytest.approx(share, abs=0.01)
    left = {axis.name: axis.left for axis in plan.axes}
    heads = {left.get(f"attention.{at}.heads", HEADS) for at in range(DEPTH)}
    assert {count * WIDTH // HEADS for count in heads} == {left.get("into.hidden", WIDTH)}
    if share < 0.5:  # more than the MLPs alone can give
        assert max(heads) < HEADS
    plan.cut(model)
    assert model(x).shape == (2, 5, 4)


def test_the_width_of_a_head_goes_with_the_width_over_the_heads() -> None:
    torch.manual_seed(0)
    model, x = Blocks().eval(), torch.randn(2, 5, 8)
    plan = mk.plan(mk.trace(model, x), target={"flops": 0.5})
    before, after = plan.flops
    assert after / before == pytest.approx(0.5, abs=0.01)
    plan.cut(model)
    assert model(x).shape == (2, 5, 4)


class OneNumber(nn.Module):
    """The width of its heads is one number for queries and values, beside a stream whose half is by chance as wide."""

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.head_dim = size
        self.q, self.v, self.o = nn.Linear(width, 2 * size), nn.Linear(width, 2 * size), nn.Linear(2 * size, width)

    def forward(self, x: Tensor) -> Tensor:
        q, v = (y.view(*x.shape[:-1], 2, self.head_dim).transpose(1, 2) for y in (self.q(x), self.v(x)))
        mixed = (q @ q.mT).softmax(-1) @ v
        return x + self.o(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("share", [0.25, 0.375, 0.625, 0.75])
def test_a_number_that_is_asked_for_is_what_an_attribute_of_that_module_follows(share: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), OneNumber(32, 8), nn.Linear(32, 3)).eval()
    graph = mk.trace(model, torch.randn(2, 5, 4))
    # the attribute becomes 4, which is also a quarter of the stream
    plan = mk.plan(graph, per_axis={"0.hidden": 0.5, "1.head_dim": 0.5, "1.v_head_dim": share})
    ties = [change.axes for change in plan.changes if change.kind == "tie"]
    assert ties == [("1.v_head_dim", "1.head_dim")]
