"""What a cut would change, on every kind of name, and how it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.grouped = nn.Conv2d(6, 6, 1, groups=3)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.grouped(self.norm(self.conv(x)).relu()).mean((2, 3)))


@pytest.fixture(scope="module")
def graph() -> mk.DataflowGraph:
    return mk.trace(seeded(Small).eval(), torch.randn(2, 3, 4, 4))


def test_parameters_attributes_and_values_are_named(graph: mk.DataflowGraph) -> None:
    cut = graph.cut_analysis("conv.weight", index=[0, 1])
    gone = {0: [0, 1]}
    assert cut.parameters == {
        "conv.weight": gone, "conv.bias": gone, "norm.weight": gone, "norm.bias": gone, "norm.running_mean": gone,
        "norm.running_var": gone, "grouped.weight": gone, "grouped.bias": gone, "head.weight": {1: [0, 1]},
    }  # fmt: skip
    assert cut.attributes == {
        "conv.out_channels": (6, 4), "norm.num_features": (6, 4), "grouped.in_channels": (6, 4),
        "grouped.out_channels": (6, 4), "grouped.groups": (3, 2), "head.in_features": (6, 4),
    }  # fmt: skip
    relu = graph.modules[""].operators[2]
    assert cut.values[relu.outputs[0].name] == {1: [0, 1]}


def test_the_same_cut_from_every_side(graph: mk.DataflowGraph) -> None:
    expected = graph.cut_analysis("conv.weight", index=[4, 5]).parameters
    assert graph.cut_analysis("norm.running_var", index=[4, 5]).parameters == expected
    assert graph.cut_analysis("head.weight", index=[4, 5], dim=1).parameters == expected
    assert graph.cut_analysis("head.weight", index=[-1, -2], dim=-1).parameters == expected
    assert graph.cut_analysis("norm.bias", index=np.arange(6) >= 4).parameters == expected
    value = graph.modules["norm"].outputs[0]
    assert value.cut_analysis([4, 5], 1).parameters == expected
    assert graph.cut_analysis(value.name, index=[4, 5], dim=1).parameters == expected


def test_a_position_that_cannot_go_alone_takes_the_fewest_with_it(graph: mk.DataflowGraph) -> None:
    # (3 groups · 2): the other of its group, or its namesakes in the other groups, which are one more
    assert graph.cut_analysis("grouped.bias", index=[2]).parameters["grouped.bias"] == {0: [2, 3]}
    inner = graph.cut_analysis("grouped.bias", index=[0, 2, 4])
    assert inner.parameters == {
        "grouped.weight": {0: [0, 2, 4]}, "grouped.bias": {0: [0, 2, 4]}, "head.weight": {1: [0, 2, 4]},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "index", "dim", "message"),
    [
        ("head.weight", [0], 0, "model output"),
        ("conv.weight", [0], 1, "model input x"),
        ("conv.weight", [0], 2, "positions of the kernel"),
        ("conv.weight", [6], 0, "no 6"),
        ("conv.weight", [], 0, "no position"),
        ("conv.weight", [0], 4, "no dimension 4"),
        ("conv.weight", range(6), 0, "would lose all|all others"),
        ("conv.weight", [0.5], 0, "list of int"),
        ("conv.weight", [True] * 5, 0, "mask of shape"),
        ("conv.weigth", [0], 0, "did you mean 'weight'"),
        ("convolution.weight", [0], 0, "no parameter"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_reason(
    graph: mk.DataflowGraph, name: str, index: list[int], dim: int, message: str
) -> None:
    with pytest.raises(mk.ModuleKGError, match=message):
        graph.cut_analysis(name, index=index, dim=dim)


def test_one_operator_alone(graph: mk.DataflowGraph) -> None:
    operator = graph.modules["grouped"].operators[0]
    x, weight, bias = operator.inputs
    assert operator.analysis(weight, {0: [0, 1]}) == {
        x: {1: [0, 1]}, weight: {0: [0, 1]}, bias: {0: [0, 1]}, operator.outputs[0]: {1: [0, 1]},
    }  # fmt: skip
    mask = np.ones(weight.shape)
    mask[:2] = 0
    assert operator.analysis(weight, mask) == operator.analysis(weight, {0: [0, 1]})
    with pytest.raises(mk.ModuleKGError, match="neither an input nor an output"):
        operator.analysis(graph.state["head.weight"], {0: [0]})


def test_indices_are_rows_of_positions(graph: mk.DataflowGraph) -> None:
    group, inner = graph.axes["grouped.weight", 0].axes
    assert group.indices("grouped.bias").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert inner.indices("grouped.bias").tolist() == [[0, 2, 4], [1, 3, 5]]
    assert group.indices("head.weight", 1).tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(mk.ModuleKGError, match="does not run along"):
        group.indices("head.weight", 0)


class Turned(nn.Module):
    """Two layers that read the same (4 heads · 3) once as it is and once with the factors exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.plain, self.turned = nn.Linear(2, 24), nn.Linear(24, 2), nn.Linear(24, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.make(x)
        return self.plain(y) + self.turned(y.view(-1, 2, 4, 3).transpose(2, 3).reshape(-1, 24))


def test_columns_have_one_order_in_all_members() -> None:
    graph = mk.trace(seeded(Turned), torch.randn(3, 2))
    outer, heads, inner = graph.axes["make.weight", 0].axes
    position = np.arange(24).reshape(2, 4, 3)
    expected = {
        "plain.weight": position.transpose(1, 0, 2).reshape(4, 6),
        "turned.weight": np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1).reshape(4, 6),
    }
    for name, rows in expected.items():
        assert heads.indices(name, 1).tolist() == rows.tolist()
    assert (outer.size, inner.size) == (2, 3)
