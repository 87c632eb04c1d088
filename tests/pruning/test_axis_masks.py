"""The draft of a plan by hand: bits by axis, checked and changed wholly or not at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, UnknownAxisError
from modulekg_widgets.engine.pruning.plan.draft import AxisMasks, Edit


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


@pytest.fixture
def masks() -> AxisMasks:
    return AxisMasks(mk.trace(net(), torch.zeros(2, 4)))


HIDDEN, WIDE = "0.out", "2.out"


def test_the_bits_of_each_axis_begin_with_a_byte_and_the_little_end(masks: AxisMasks) -> None:
    masks.set({HIDDEN: [0, 9], WIDE: [3, 16]})
    packed, start = masks.packed(), 0
    for axis in masks.axes:
        width = -(-axis.size // 8)
        bits = np.unpackbits(np.frombuffer(packed[start : start + width], np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == masks.dropped.get(axis.name, [])
        start += width
    assert start == len(packed)
    assert masks.dropped == {HIDDEN: [0, 9], WIDE: [3, 16]}


def test_edits_are_the_new_bytes(masks: AxisMasks) -> None:
    hidden, wide = masks.number(HIDDEN), masks.number(WIDE)
    masks.apply([Edit(hidden, 1, b"\x03"), Edit(wide, 0, b"\x80\x01")])
    assert masks.dropped == {HIDDEN: [8, 9], WIDE: [7, 8]}
    assert masks.revision == 1
    masks.apply([Edit(hidden, 1, b"\x00")])
    assert masks.dropped == {WIDE: [7, 8]}
    assert masks.revision == 2


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ((HIDDEN, 0, b"\xff\x0f"), "would lose all of its 12 indices"),
        ((HIDDEN, 1, b"\xf0"), "bits beyond"),
        ((HIDDEN, 1, b"\x00\x00"), "goes beyond"),
        ((HIDDEN, -1, b"\x00"), "goes beyond"),
        (("0.in", 0, b"\x01"), "is frozen"),
        ((None, 0, b"\x01"), "no axis number 99"),
    ],
)
def test_what_may_not_be_leaves_all_as_it_was(masks: AxisMasks, edit: tuple[str | None, int, bytes], said: str) -> None:
    masks.set({WIDE: [1]})
    name, start, content = edit
    number = 99 if name is None else masks.number(name)
    before = masks.packed()
    with pytest.raises(CutError, match=said):
        masks.apply([Edit(masks.number(WIDE), 0, b"\x0f"), Edit(number, start, content)])
    assert masks.packed() == before
    assert masks.revision == 1


@pytest.mark.parametrize("indices", [[12], [-1], [1.5], [True], ["1"]])
def test_indices_are_those_of_the_axis(masks: AxisMasks, indices: list[int]) -> None:
    with pytest.raises(CutError, match=r"has indices 0 … 11"):
        masks.set({HIDDEN: indices})


def test_an_unknown_axis_is_named_with_its_neighbours(masks: AxisMasks) -> None:
    with pytest.raises(UnknownAxisError, match="did you mean"):
        masks.set({"0.outs": [1]})


def test_the_draft_and_the_plan_are_the_same_both_ways(masks: AxisMasks) -> None:
    assert masks.plan() is None
    assert masks.report() is None
    plan = mk.plan(masks.graph, ratio=0.5)
    masks.take(plan)
    assert masks.plan() is plan
    masks.set(masks.dropped)
    again = masks.plan()
    assert again is masks.plan()
    assert again == plan
    assert repr(again) == f"mk.plan(graph, per_axis={masks.dropped!r})"
    masks.take(None)
    assert masks.dropped == {}
    assert masks.plan() is None


def test_a_plan_of_another_model_is_refused(masks: AxisMasks) -> None:
    other = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
    masks.set({WIDE: [2]})
    with pytest.raises(CutError, match="has 12 indices, 10 in the plan"):
        masks.take(mk.plan(mk.trace(other, torch.zeros(2, 4)), ratio=0.5))
    assert masks.dropped == {WIDE: [2]}


class Attention(nn.Module):
    """Attention whose code divides the width of the stream by the heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 24)
        self.qkv = nn.Linear(24, 72)
        self.out = nn.Linear(24, 24)
        self.head = nn.Linear(24, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 3, width // 3).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.head(x + self.out(mixed.transpose(1, 2).reshape(batch, length, width)))


@pytest.fixture
def attention() -> AxisMasks:
    return AxisMasks(mk.trace(Attention(), torch.zeros(2, 5, 6)))


def test_the_report_says_what_the_dry_run_left(attention: AxisMasks) -> None:
    # 3 heads of 8: a stream that loses 3 has heads of 7
    attention.set({"stem.hidden": [0, 1, 2], "head_dim": [4, 6]})
    report = attention.report()
    assert report is not None
    planned = {cut.name: cut.dropped for cut in report.plan.axes}
    assert planned["stem.hidden"] == (0, 1, 2)
    (stays,) = {4, 6} - set(planned["head_dim"])
    assert report.kept == {attention.number("head_dim"): [stays]}
    assert report.taken == {}
    (change,) = report.plan.changes
    assert str(change).startswith("head_dim keeps 7 of 8: aten::view")
    assert change.axes == ("head_dim",)
    assert report.sizes[1].params == report.plan.params[1]
    assert attention.dropped == {"stem.hidden": [0, 1, 2], "head_dim": [4, 6]}  # the draft is the user's


def test_a_draft_that_cannot_run_raises_with_the_line_and_stays(attention: AxisMasks) -> None:
    attention.set({"stem.hidden": [0, 1, 2, 3, 4], "head_dim": [0]})
    with pytest.raises(CutError, match=r"had to stay whole.*aten::view"):
        attention.report()
    assert attention.dropped == {"stem.hidden": [0, 1, 2, 3, 4], "head_dim": [0]}


def test_scores_are_of_all_axes_in_turn(masks: AxisMasks) -> None:
    found = np.frombuffer(masks.scores("l1"), "<f8")
    assert len(found) == sum(axis.size for axis in masks.axes)
    start = 0
    for axis in masks.axes:
        part = found[start : start + axis.size]
        assert np.isnan(part).all() == (axis.frozen is not None)
        assert np.isnan(part).any() == (axis.frozen is not None)
        start += axis.size
    hidden = masks.axes[masks.number(HIDDEN)]
    begin = sum(axis.size for axis in masks.axes[: hidden.number])
    plan = mk.plan(masks.graph, per_axis={HIDDEN: 0.5})
    order = np.argsort(found[begin : begin + hidden.size], kind="stable")
    assert sorted(order[:6].tolist()) == list(plan.axes[0].dropped)


def test_a_ratio_may_take_from_those_axes_that_a_plan_takes_from(masks: AxisMasks) -> None:
    plan = mk.plan(masks.graph, ratio=0.5)
    assert {masks.axes[number].name for number in masks.by_ratio} == {cut.name for cut in plan.axes}
