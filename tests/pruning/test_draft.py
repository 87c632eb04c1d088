"""The draft of a plan by hand: bits by axis, checked and changed wholly or not at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError, UnknownAxisError
from modulekg_widgets.engine.pruning.draft import Draft


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


@pytest.fixture
def draft() -> Draft:
    return Draft(mk.trace(net(), torch.zeros(2, 4)))


HIDDEN, WIDE = "0.out", "2.out"


def test_the_bits_of_each_axis_begin_with_a_byte_and_the_little_end(draft: Draft) -> None:
    draft.set_indices({HIDDEN: [0, 9], WIDE: [3, 16]})
    packed, start = draft.packed(), 0
    for axis in draft.axes:
        width = -(-axis.size // 8)
        bits = np.unpackbits(np.frombuffer(packed[start : start + width], np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == draft.dropped.get(axis.name, [])
        start += width
    assert start == len(packed)
    assert draft.dropped == {HIDDEN: [0, 9], WIDE: [3, 16]}


def test_what_is_drawn_is_all_that_goes(draft: Draft) -> None:
    hidden, wide = draft.axis_number(HIDDEN), draft.axis_number(WIDE)
    assert draft.set_bits({hidden: b"\x00\x03", wide: b"\x80\x01\x00"}, 0)
    assert draft.dropped == {HIDDEN: [8, 9], WIDE: [7, 8]}
    assert draft.snapshot() == (1, {hidden: b"\x00\x03", wide: b"\x80\x01\x00"})
    assert draft.set_bits({wide: b"\x80\x01\x00"}, 1)
    assert draft.dropped == {WIDE: [7, 8]}
    assert draft.revision == 2
    assert draft.set_bits({}, 2)
    assert draft.snapshot() == (3, {})


def test_what_was_drawn_on_another_revision_is_not_taken(draft: Draft) -> None:
    draft.set_indices({WIDE: [1]})
    assert not draft.set_bits({draft.axis_number(HIDDEN): b"\x01\x00"}, 0)
    assert (draft.dropped, draft.revision) == ({WIDE: [1]}, 1)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (HIDDEN, b"\xff\x0f", "would lose all of its 12 indices"),
        (HIDDEN, b"\x00\xf0", "bits beyond"),
        (HIDDEN, b"\x00\x00\x00", "has 2 bytes of bits: 3 were passed"),
        (HIDDEN, b"", "has 2 bytes of bits: 0 were passed"),
        ("0.in", b"\x01", "is frozen"),
        (99, b"\x01", "no axis number 99"),
        (-1, b"\x01", "no axis number -1"),
    ],
)
def test_what_may_not_be_leaves_all_as_it_was(draft: Draft, name: str | int, content: bytes, said: str) -> None:
    draft.set_indices({WIDE: [1]})
    number = name if isinstance(name, int) else draft.axis_number(name)
    before = draft.packed()
    with pytest.raises(CutError, match=said):
        draft.set_bits({draft.axis_number(WIDE): b"\x0f\x00\x00", number: content}, 1)
    assert draft.packed() == before
    assert draft.revision == 1


@pytest.mark.parametrize("indices", [[12], [-1], [1.5], [True], ["1"]])
def test_indices_are_those_of_the_axis(draft: Draft, indices: list[int]) -> None:
    with pytest.raises(CutError, match=r"has indices 0 … 11"):
        draft.set_indices({HIDDEN: indices})


def test_an_unknown_axis_is_named_with_its_neighbours(draft: Draft) -> None:
    with pytest.raises(UnknownAxisError, match="did you mean"):
        draft.set_indices({"0.outs": [1]})


def test_the_draft_and_the_plan_are_the_same_both_ways(draft: Draft) -> None:
    assert draft.plan() is None
    assert draft.report() is None
    plan = mk.plan(draft.graph, ratio=0.5)
    draft.adopt_plan(plan)
    assert draft.plan() is plan
    draft.set_indices(draft.dropped)
    again = draft.plan()
    assert again is draft.plan()
    assert again == plan
    assert repr(again) == f"mk.plan(graph, per_axis={draft.dropped!r})"
    draft.adopt_plan(None)
    assert draft.dropped == {}
    assert draft.plan() is None


def test_a_plan_of_another_model_is_refused(draft: Draft) -> None:
    other = nn.Sequential(nn.Linear(4, 10), nn.ReLU(), nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
    draft.set_indices({WIDE: [2]})
    with pytest.raises(CutError, match="has 12 indices, 10 in the plan"):
        draft.adopt_plan(mk.plan(mk.trace(other, torch.zeros(2, 4)), ratio=0.5))
    assert draft.dropped == {WIDE: [2]}


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
def attention() -> Draft:
    return Draft(mk.trace(Attention(), torch.zeros(2, 5, 6)))


def test_the_report_says_what_the_dry_run_left(attention: Draft) -> None:
    # 3 heads of 8: a stream that loses 3 has heads of 7
    attention.set_indices({"stem.hidden": [0, 1, 2], "head_dim": [4, 6]})
    report = attention.report()
    assert report is not None
    planned = {cut.name: cut.dropped for cut in report.plan.axes}
    assert planned["stem.hidden"] == (0, 1, 2)
    (stays,) = {4, 6} - set(planned["head_dim"])
    assert report.kept == {attention.axis_number("head_dim"): [stays]}
    assert report.added == {}
    (change,) = report.plan.changes
    assert str(change).startswith("head_dim keeps 7 of 8, tied to stem.hidden: aten::view")
    assert change.axes == ("head_dim", "stem.hidden")
    assert report.sizes[1].params == report.plan.params[1]
    assert attention.dropped == {"stem.hidden": [0, 1, 2], "head_dim": [4, 6]}  # the draft is the user's


def test_of_a_draft_that_cannot_run_as_it_is_goes_what_can(attention: Draft) -> None:
    attention.set_indices({"stem.hidden": [0, 1, 2, 3, 4], "head_dim": [0]})  # 19 are no whole number of heads
    report = attention.report()
    assert report is not None
    assert {cut.name: cut.dropped for cut in report.plan.axes} == {"stem.hidden": (0, 1, 2), "head_dim": (0,)}
    assert report.kept == {attention.axis_number("stem.hidden"): [3, 4]}


def test_a_draft_that_cannot_run_raises_with_the_line_and_stays(attention: Draft) -> None:
    attention.set_indices({"stem.hidden": [0]})
    with pytest.raises(CutError, match=r"could be cut.*aten::view"):
        attention.report()
    assert attention.dropped == {"stem.hidden": [0]}


def test_scores_are_of_all_axes_in_turn(draft: Draft) -> None:
    found = np.frombuffer(draft.scores("l2"), "<f8")
    assert len(found) == sum(axis.size for axis in draft.axes)
    start = 0
    for axis in draft.axes:
        part = found[start : start + axis.size]
        assert np.isnan(part).all() == (axis.frozen is not None)
        assert np.isnan(part).any() == (axis.frozen is not None)
        start += axis.size
    hidden = draft.axes[draft.axis_number(HIDDEN)]
    begin = sum(axis.size for axis in draft.axes[: hidden.number])
    plan = mk.plan(draft.graph, per_axis={HIDDEN: 0.5})
    order = np.argsort(found[begin : begin + hidden.size], kind="stable")
    assert sorted(order[:6].tolist()) == list(plan.axes[0].dropped)


def test_a_ratio_may_take_from_those_axes_that_a_plan_takes_from(draft: Draft) -> None:
    plan = mk.plan(draft.graph, ratio=0.5)
    assert {draft.axes[number].name for number in draft.ratio_axes} == {cut.name for cut in plan.axes}


@pytest.mark.parametrize(
    ("chosen", "said", "counted"),
    [([HIDDEN], "1 axis loses indices, ", "1 axis"), ([HIDDEN, WIDE], "2 axes lose indices, ", "2 axes")],
)
def test_one_axis_is_not_said_to_be_several(draft: Draft, chosen: list[str], said: str, counted: str) -> None:
    wanted = {name: [0, 1] for name in chosen}
    draft.set_indices(wanted)
    assert draft.summary.startswith(said)
    plan = mk.plan(mk.trace(net(), torch.zeros(2, 4)), per_axis=wanted)
    assert plan.summary.endswith(f", {counted}")
