"""Where data decide the way of forward: what was not reached goes like its siblings; an obstacle keeps its own axes."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import CutError


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 6), nn.Linear(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(x).relu())


class Routed(nn.Module):
    """Sends each row to the expert that its first number names, and calls no other."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 8), nn.Linear(8, 3)
        self.experts = nn.ModuleList(Expert() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x)
        out = torch.zeros_like(y)
        for number in x[:, 0].long().unique().tolist():
            rows = (x[:, 0].long() == number).nonzero().flatten()
            out[rows] = self.experts[number](y[rows])
        return self.out(y + out)


def rows(*numbers: int) -> torch.Tensor:
    x = torch.rand(len(numbers), 4)
    x[:, 0] += torch.tensor(numbers)
    return x


def test_an_expert_that_no_row_reached_is_cut_like_the_others() -> None:
    torch.manual_seed(0)
    model = Routed()
    graph = mk.trace(model, rows(0, 1, 0))
    assert "experts.2.up.weight" in graph.axes.unread
    stream = graph.axes["into.weight", 0]
    assert graph.axes["experts.2.up.weight", 1] is graph.axes["experts.2.down.weight", 0] is stream
    assert "not read" in (graph.axes["experts.2.up.weight", 0].frozen or "")
    assert graph.axes.verify().ok
    plan = mk.plan(graph, ratio=0.5)
    receipt = plan.cut(model)
    assert model(rows(2, 1, 0)).shape == (3, 3)
    assert model.experts[2].up.in_features == model.into.out_features == 4
    receipt.undo()
    assert model(rows(2, 1, 0)).shape == (3, 3)


def test_what_a_static_forward_does_not_read_stays() -> None:
    class Unused(Routed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.experts[0](self.into(x)))

    graph = mk.trace(Unused(), rows(0, 1))
    assert "not read" in (graph.axes["experts.2.up.weight", 0].frozen or "")


class Flow(nn.Module):
    """As a vocoder: a text part, a length that the data decide, and a part that halves by an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.text_out = nn.Linear(4, 8), nn.Linear(8, 2)
        self.length = nn.Linear(2, 1)
        self.wave = Wave()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.text_out(self.text(x).relu())
        count = 2 + int(self.length(y).abs().sum().item() * 100) % 5
        return self.wave(y.repeat_interleave(count, 0)).mean(0)


class Wave(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.width = 6
        self.gate, self.out = nn.Linear(2, 12), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x)
        width = torch.tensor([self.width])[0]
        return self.out(gate[:, :width].tanh() * gate[:, width:].sigmoid())


def test_an_attribute_behind_what_the_data_decide_follows() -> None:
    torch.manual_seed(0)
    model, x = Flow(), torch.randn(3, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    left = {axis.name: (axis.size, axis.left) for axis in plan.axes}
    assert left["text.out"] == (8, 4)
    assert "wave.width" in plan.edits.attributes
    plan.cut(model)
    assert model(x).shape == (3,)


class Obstacle(nn.Module):
    """Three sides that run at no other sizes than those that they have, which nothing holds, beside free parts."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.free = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)) for _ in range(parts))
        self.sides = nn.ModuleList(nn.Linear(4, 8) for _ in range(3))
        self.ends = nn.ModuleList(nn.Linear(8, 2) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.free:
            x = x + part(x)
        sides = [side(x) for side in self.sides]
        if sum(side.shape[-1] for side in sides) != 23 + len("x"):
            raise ValueError("the sides do not fit")
        return torch.stack([end(side) for end, side in zip(self.ends, sides, strict=True)]).sum(0)


@pytest.mark.parametrize("parts", [1, 7])
def test_an_obstacle_keeps_its_own_axes_and_no_others(parts: int) -> None:
    torch.manual_seed(0)
    model, x = Obstacle(parts), torch.randn(3, 4)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert {axis.name for axis in plan.axes} == {f"free.{at}.0.out" for at in range(parts)}
    assert any("sides" in change.what and "is not cut" in change.what for change in plan.changes)
    plan.cut(model)
    assert model(x).shape == (3, 2)


@pytest.mark.nightly
def test_an_obstacle_in_one_part_of_vits_leaves_the_others_to_be_cut() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.VitsConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, flow_size=32,
        spectrogram_bins=33, upsample_initial_channel=32, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2, posterior_encoder_num_wavenet_layers=2, depth_separable_num_layers=2,
        duration_predictor_num_flows=2, duration_predictor_filter_channels=32,
    )  # fmt: skip
    model = transformers.VitsModel(config).eval()
    words = {"input_ids": torch.arange(7)[None] * 5 % 38}
    plan = mk.plan(mk.trace(model, (), words), ratio=0.5)
    assert {axis.left / axis.size for axis in plan.axes if axis.name.startswith("text_encoder")} == {0.5}
    assert plan.params[1] < 0.55 * plan.params[0]
    plan.cut(model)
    torch.manual_seed(0)
    with torch.no_grad():
        assert model(**words).waveform.shape[0] == 1


class Wrong(nn.Module):
    """Divides by the number of its features."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mid, self.out = nn.Linear(4, 8), nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x)
        return self.out(self.mid(y / y.shape[-1]).relu())


def test_an_axis_with_which_the_values_differ_stays_and_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is told that cuts of one axis are wrong, as where a coincidence of sizes hides an error."""
    from modulekg_widgets.engine.pruning.plan.corrections import repair_loop

    torch.manual_seed(0)
    model, x = Wrong(), torch.randn(3, 4)
    graph = mk.trace(model, x)
    bad = graph.axes["into.weight", 0]

    def agrees(axes: Any, masks: Any, *rest: Any) -> bool:
        return all(axes.of(atom).name != bad.name for atom in masks)

    monkeypatch.setattr(repair_loop, "matches_masked_model", agrees)
    monkeypatch.setattr(repair_loop.Repair, "_is_verified", lambda self, attempt, found: self._matches(attempt, found))
    plan = mk.plan(graph, ratio=0.5)
    assert [axis.name for axis in plan.axes] == ["mid.out"]
    assert any("returns other values" in change.source for change in plan.changes)
    with pytest.raises(mk.ModuleKGError, match="other values"):
        mk.plan(graph, per_axis={"into": 0.5})


def test_a_model_that_chance_moves_is_not_said_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from modulekg_widgets.engine.pruning.plan.dry_run import masked_reference

    monkeypatch.setattr(masked_reference, "_output_error", lambda *_: 0.1)
    graph = mk.trace(Wrong(), torch.randn(3, 4))
    assert masked_reference.matches_masked_model(graph.axes, {}, mk.plan(graph, ratio=0.5).edits) is None


# ------------------------------------------------------------------------ a dry run goes the way of the traced input


class Loop(nn.Module):
    """Goes on until the norm is small, a number of times that other sizes change."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c, self.b = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, n = self.a(x), 0
        while h.norm() > 1 and n < 5:
            h, n = self.c(h).tanh() * 0.5, n + 1
        return self.b(h)


class Recurrent(Loop):
    """The same with a cell, and the number read as a float."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.GRUCell(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        while float(h.norm()) > 0.5:
            h = (h - self.c(h, h) * 0.1) * 0.5
        return self.b(h)


class Halting(nn.Module):
    """Adaptive computation time."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c, self.p, self.b = nn.Linear(6, 16), nn.GRUCell(16, 16), nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, out = self.a(x), torch.zeros(())
        halt = torch.zeros(len(x))
        for _ in range(4):
            h = self.c(h, h)
            p = self.p(h).sigmoid()[:, 0]
            out = out + (p * (1 - halt))[:, None] * h
            halt = (halt + p).clamp(max=1)
            if (halt >= 0.99).all():
                break
        return self.b(out)


class Sorted(Loop):
    """Takes as many of the sorted rows as one value says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x).relu()
        order = h.norm(dim=1).sort().indices
        return self.b(self.c(h[order][: max(int(h.sum(1).argmax()), 1)])).mean(0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [Loop, Recurrent, Halting, Sorted])
def test_a_ratio_leaves_what_was_asked_for_where_data_decide_the_way(kind: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    model, x = kind().eval(), torch.randn(4, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert plan.axes
    assert {axis.left for axis in plan.axes} == {8}
    assert not plan.changes
    assert not plan.notes
    plan.cut(model)
    assert model(x).isfinite().all()


class Halves(nn.Module):
    """Slices of fixed width behind a loop that the data end."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.c = nn.Linear(6, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        for _ in range(6):
            h = self.c(h).tanh()
            if h.norm() < 2:
                break
        return self.parts(h)

    def parts(self, h: torch.Tensor) -> torch.Tensor:
        return torch.stack([h[:, :8].mean(1), h[:, 8:].mean(1)], 1)


class Thirds(Halves):
    def parts(self, h: torch.Tensor) -> torch.Tensor:
        return torch.stack([h[:, :4].mean(1), h[:, 4:12].mean(1), h[:, 12:].mean(1)], 1)


class Masked(Halves):
    """The rows that a mask takes, and a product of two fixed halves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x)
        h = self.c(h[h.sum(1) > 0]).relu()
        return (h[:, :8] * h[:, 8:].sigmoid()).mean(0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [Halves, Thirds, Masked])
def test_a_cut_equals_the_mask_behind_what_the_data_decide(kind: type[nn.Module], seed: int) -> None:
    from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import matches_masked_model

    torch.manual_seed(seed)
    model, x = kind().eval(), torch.randn(4, 6)
    graph = mk.trace(model, x)
    plan = mk.plan(graph, ratio=0.5)
    keeps = {}
    for axis in plan.axes:
        keep = torch.ones(axis.size, dtype=torch.bool)
        keep[list(axis.dropped)] = False
        keeps[graph.axes[axis.name].term] = keep.numpy()
    assert matches_masked_model(graph.axes, keeps, plan.edits)
    plan.cut(model)
    assert model(x).isfinite().all()


CHANCES: dict[str, Any] = {
    "python": lambda: random.random(),
    "numpy": lambda: float(np.random.rand()),
    "clock": lambda: 1 + time.perf_counter() % 1,
    "own generator": lambda: random.Random().random(),
    "system": lambda: 1 + int.from_bytes(os.urandom(4), "big") / 2**32,  # of one byte two are alike now and then
}


class Chance(nn.Module):
    """Slices of fixed width of what chance scales."""

    def __init__(self, chance: Any) -> None:
        super().__init__()
        self.chance = chance
        self.a, self.c = nn.Linear(6, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.c(self.a(x).relu()) * self.chance()
        return torch.stack([h[:, :8].mean(1), h[:, 8:].mean(1)], 1)


@pytest.mark.parametrize("name", CHANCES)
def test_what_chance_hides_stays_and_what_can_be_seeded_is_compared(name: str) -> None:
    torch.manual_seed(0)
    model, x = Chance(CHANCES[name]).eval(), torch.randn(4, 6)
    plan = mk.plan(mk.trace(model, x), ratio=0.5)
    assert {axis.name: axis.left for axis in plan.axes} == {"a.out": 8}
    assert not any(change.kind == "scale" for change in plan.changes)
    assert (name in ("python", "numpy")) is (not plan.notes)
    assert all("cannot be compared" in note for note in plan.notes)
    plan.cut(model)
    assert not model(x).isnan().any()


def test_what_chance_hides_goes_where_it_is_named_and_the_plan_says_so() -> None:
    torch.manual_seed(0)
    model, x = Chance(CHANCES["clock"]).eval(), torch.randn(4, 6)
    graph = mk.trace(model, x)
    halves = [axis.name for axis in graph.axes["c.weight", 0].axes]
    plan = mk.plan(graph, per_axis=dict.fromkeys(halves, 0.5))
    assert [axis.name for axis in plan.axes] == halves
    assert all(any(name in note and "as requested" in note for note in plan.notes) for name in halves)


class Branching(nn.Module):
    """Has two widths that are one, or indices whose order counts, on a way that the traced input does not take."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.a, self.b, self.c = nn.Linear(4, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.a(x).relu()
        h = self.b(first).relu()
        if self.how == "again" and x.abs().mean() > 100:
            h = self.b(h).relu()
        if self.how == "sum" and x.max().item() > 100.0:
            h = h + first
        if self.how == "flip" and bool((x.mean() > 100).numpy()):
            h = h.flip(1)
        if self.how == "count":
            for _ in range(int((x.abs().mean() / 100).ceil()) - 1):
                h = self.b(h).relu()
        if self.how == "chance":
            for _ in range(np.random.randint(3)):
                h = self.b(h).relu()
        return self.c(h)


@pytest.mark.parametrize("how", ["again", "sum", "flip", "count", "chance"])
def test_what_is_wrong_on_another_way_of_the_data_stays_whole(how: str) -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # of which the first of three is a zero
    model, x = Branching(how).eval(), torch.rand(5, 4)
    names = ["b.out"] if how == "flip" else ["a.out", "b.out"]
    graph = mk.trace(model, x)
    proof = graph.axes.verify()
    assert proof.wrong == names
    assert all("another branch" in proof[name].note for name in names)
    if how == "flip":
        plan = mk.plan(graph, ratio=0.5)
        assert [axis.name for axis in plan.axes] == ["a.out"]
        assert any("b.out is not cut" in note and "test_ways_of_data.py" in note for note in plan.notes)
        plan.cut(model)
        assert model(x + 200).isfinite().all()
    else:
        with pytest.raises(CutError, match="permuting its indices"):
            mk.plan(graph, ratio=0.5)


def test_a_way_that_only_raises_refutes_nothing() -> None:
    class Checked(Branching):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.isnan().any():
                raise ValueError("not a number")
            return super().forward(x)

    torch.manual_seed(0)
    model = Checked("none").eval()
    graph = mk.trace(model, torch.rand(5, 4))
    assert graph.axes.verify().wrong == []
    assert {axis.name for axis in mk.plan(graph, ratio=0.5).axes} == {"a.out", "b.out"}


def test_python_draws_as_before_once_a_plan_is_made() -> None:
    torch.manual_seed(0)
    model, x = Branching("chance").eval(), torch.rand(5, 4)
    np.random.seed(0)
    state, drawn = random.getstate(), str(np.random.get_state())
    graph = mk.trace(model, x)
    with pytest.raises(CutError):
        mk.plan(graph, ratio=0.5)
    assert random.getstate() == state
    assert str(np.random.get_state()) == drawn
