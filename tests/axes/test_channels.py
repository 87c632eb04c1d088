"""Channels of images: the constructs that other tools stumble over, each as a small model with its exact slices."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modulekg_widgets as mk
from checks.axes import frozen, proved, slices
from modulekg_widgets.engine.axes.terms import index_semantics


class C2f(nn.Module):
    """Chunk, a residual branch on one half, concatenation of all: the block of YOLO v8."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 1)
        self.inner = nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(12, 6, 1)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = list(self.first(x).chunk(2, 1))
        y.append(y[-1] + self.inner(y[-1]))
        return self.head(self.last(torch.cat(y, 1)).mean((2, 3)))


def test_chunk_with_residual() -> None:
    graph = proved(C2f(), torch.randn(2, 3, 5, 5))
    # the first half is free of the second
    assert slices(graph, "first.weight", [1]) == {
        "first.weight": {0: [1]}, "first.bias": {0: [1]}, "last.weight": {1: [1]},
    }  # fmt: skip
    assert slices(graph, "first.weight", [4]) == {
        "first.weight": {0: [4]}, "first.bias": {0: [4]}, "inner.weight": {0: [0], 1: [0]}, "inner.bias": {0: [0]},
        "last.weight": {1: [4, 8]},
    }  # fmt: skip


class Upscale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, 12, 3, padding=1)
        self.after = nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.after(F.pixel_shuffle(self.before(x), 2)).mean((2, 3)))


def test_pixel_shuffle() -> None:
    graph = proved(Upscale(), torch.randn(2, 3, 4, 4))
    assert slices(graph, "after.weight", [1], 1) == {
        "before.weight": {0: [4, 5, 6, 7]}, "before.bias": {0: [4, 5, 6, 7]}, "after.weight": {1: [1]},
    }  # fmt: skip


def test_frozen_batch_norm() -> None:
    from torchvision.ops import FrozenBatchNorm2d

    norm = FrozenBatchNorm2d(4)
    graph = proved(nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 2, 3)), torch.randn(2, 3, 8, 8))
    assert slices(graph, "0.weight", [3]) == {
        "0.weight": {0: [3]}, "0.bias": {0: [3]}, "1.weight": {0: [3]}, "1.bias": {0: [3]},
        "1.running_mean": {0: [3]}, "1.running_var": {0: [3]}, "3.weight": {1: [3]},
    }  # fmt: skip


class OtherChannelCount(nn.Module):
    """A view folds half of the channels into the width."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, 8, 1)
        self.after = nn.Conv2d(4, 5, 1)
        self.head = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        batch, channels, height, width = y.shape
        return self.head(self.after(y.view(batch, channels // 2, height * 2, width)).mean((2, 3)))


def test_view_that_changes_the_channel_count() -> None:
    graph = proved(OtherChannelCount(), torch.randn(2, 3, 3, 3))
    assert slices(graph, "after.weight", [1], 1) == {
        "before.weight": {0: [2, 3]}, "before.bias": {0: [2, 3]}, "after.weight": {1: [1]},
    }  # fmt: skip


class Shuffled(nn.Module):
    """A grouped convolution, a shuffle of its groups by a view, another one."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(3, 12, 1)
        self.grouped = nn.Conv2d(12, 12, 3, groups=3, padding=1)
        self.after = nn.Conv2d(12, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.grouped(self.before(x))
        batch, _, height, width = y.shape
        y = y.view(batch, 3, 4, height, width).transpose(1, 2).reshape(batch, 12, height, width)
        return self.head(self.after(y).mean((2, 3)))


def test_channel_shuffle() -> None:
    graph = proved(Shuffled(), torch.randn(2, 3, 3, 3))
    # index 1 inside each group: 1, 5 and 9 before, side by side after
    assert slices(graph, "after.weight", [3, 4, 5], 1) == {
        "grouped.weight": {0: [1, 5, 9]}, "grouped.bias": {0: [1, 5, 9]}, "after.weight": {1: [3, 4, 5]},
    }  # fmt: skip
    # a whole group: its inputs too
    group = slices(graph, "grouped.weight", [4, 5, 6, 7])
    assert group["before.weight"] == {0: [4, 5, 6, 7]}
    assert group["after.weight"] == {1: [1, 4, 7, 10]}


def test_grouped_transposed_convolution() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.ConvTranspose2d(6, 8, 2, groups=2), nn.Conv2d(8, 5, 1), nn.Flatten(2), nn.Softmax(2)
    )
    graph = proved(model, torch.randn(2, 3, 3, 3))
    # (in, out/groups): index 3 of a group's outputs in both groups
    assert slices(graph, "1.weight", [3], 1) == {
        "1.weight": {1: [3]}, "1.bias": {0: [3, 7]}, "2.weight": {1: [3, 7]},
    }  # fmt: skip
    # index 2 inside each group of inputs
    assert slices(graph, "1.weight", [2, 5]) == {
        "0.weight": {0: [2, 5]},
        "0.bias": {0: [2, 5]},
        "1.weight": {0: [2, 5]},
    }
    whole = slices(graph, "1.weight", [3, 4, 5])
    assert (whole["1.weight"], whole["1.bias"]) == ({0: [3, 4, 5]}, {0: [4, 5, 6, 7]})


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 4, 1)
        self.c = nn.Conv2d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        y[:, 2:] += self.b(x)
        return self.c(y)


def test_slices_written_in_place() -> None:
    graph = proved(InPlace(), torch.randn(2, 3, 3, 3))
    assert slices(graph, "b.weight", [1]) == {
        "a.weight": {0: [3]}, "a.bias": {0: [3]}, "b.weight": {0: [1]}, "b.bias": {0: [1]}, "c.weight": {1: [3]},
    }  # fmt: skip
    assert slices(graph, "a.weight", [0]) == {"a.weight": {0: [0]}, "a.bias": {0: [0]}, "c.weight": {1: [0]}}


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 2), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).permute(0, 2, 3, 1).flatten(1))


def test_flatten_with_channels_last() -> None:
    graph = proved(ChannelsLast(), torch.randn(2, 3, 3, 3))
    assert slices(graph, "conv.weight", [1])["head.weight"] == {1: [1, 5, 9, 13]}


def test_flatten_with_channels_first() -> None:
    graph = proved(nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 2)), torch.randn(2, 3, 3, 3))
    assert slices(graph, "0.weight", [1])["2.weight"] == {1: [4, 5, 6, 7]}


class Reordered(nn.Module):
    """Channels in another order, by a buffer or by a flip."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 1), nn.Conv2d(6, 2, 1)
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        y = {"index": lambda: y[:, self.order], "select": lambda: y.index_select(1, self.order),
             "flip": lambda: y.flip(1), "roll": lambda: y.roll(1, 1)}[self.how]()  # fmt: skip
        return self.c(self.b(y))


def test_index_by_a_permutation_buffer_is_the_same_axis_in_another_order() -> None:
    for how in ("index", "select"):
        graph = proved(Reordered(how), torch.randn(2, 3, 3, 3))
        (axis,) = graph.axes["b.weight", 1].axes
        assert axis is graph.axes["a.weight", 0]
        assert axis.frozen is None
        order = graph.model.get_buffer("order").tolist()
        assert [order[at] for at in axis.indices("b.weight", 1)[:, 0]] == list(range(axis.size))
        assert "order" not in {member.name for axis in graph.axes for member in axis.members}


class RelativeBias(nn.Module):
    """A table of biases that is read by pairs of positions, as attention in windows does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 2))
        self.register_buffer("pairs", torch.arange(9) % 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[self.pairs].t()


def test_an_index_that_is_longer_than_its_axis_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It picks something twice, whatever it holds: reading and sorting it took longer than all the rest."""
    graph = mk.trace(RelativeBias(), torch.randn(2, 9))
    monkeypatch.setattr(index_semantics, "constant_value", lambda node: pytest.fail("the buffer is read"))
    assert graph.axes["table", 0].frozen is not None
    assert not graph.axes.unknown


def test_flip_and_roll_freeze_and_say_where() -> None:
    for how, text in (("flip", "flipped"), ("roll", "rolled")):
        graph = proved(Reordered(how), torch.randn(2, 3, 3, 3))
        for name, dim in (("a.weight", 0), ("b.weight", 1)):
            assert text in frozen(graph, name, dim)
            assert "test_channels.py:" in frozen(graph, name, dim)
        assert graph.axes["c.weight", 1].frozen is None


class OneDimensional(nn.Module):
    """Two crashes of NNI: cat of 1-D tensors, and [18] viewed as [1, 18, 1, 1]."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(9)), nn.Parameter(torch.randn(9))
        self.conv, self.head = nn.Conv2d(3, 18, 1), nn.Conv2d(18, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.cat([self.a, self.b])
        return self.head(self.conv(x) * gate.view(1, 18, 1, 1))


def test_one_dimensional_cat_and_view_to_four_dimensions() -> None:
    graph = proved(OneDimensional(), torch.randn(2, 3, 3, 3))
    assert slices(graph, "b", [2]) == {
        "b": {0: [2]}, "conv.weight": {0: [11]}, "conv.bias": {0: [11]}, "head.weight": {1: [11]},
    }  # fmt: skip


def test_group_norm_goes_by_index_in_every_group_or_by_group() -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv2d(6, 2, 1))
    graph = proved(model, torch.randn(2, 3, 3, 3))
    assert slices(graph, "0.weight", [1, 4])["1.weight"] == {0: [1, 4]}
    assert slices(graph, "0.weight", [3, 4, 5])["3.weight"] == {1: [3, 4, 5]}
    assert graph.cut_analysis("0.weight", [3, 4, 5]).attributes["1.num_groups"] == (2, 1)


def test_depthwise_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 2, 1))
    graph = proved(model, torch.randn(2, 3, 5, 5))
    cut = graph.cut_analysis("0.weight", [2])
    assert cut.parameters == {
        "0.weight": {0: [2]}, "0.bias": {0: [2]},
        "1.weight": {0: [4, 5]}, "1.bias": {0: [4, 5]}, "2.weight": {1: [4, 5]},
    }  # fmt: skip
    assert cut.attributes == {
        "0.out_channels": (4, 3), "1.in_channels": (4, 3), "1.out_channels": (8, 6), "1.groups": (4, 3),
        "2.in_channels": (8, 6),
    }  # fmt: skip
