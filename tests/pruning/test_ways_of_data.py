"""Where data decide the way of forward: what was not reached goes like its siblings; an obstacle keeps its own axes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk


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
    assert any("sides" in change.what and "stays whole" in change.what for change in plan.changes)
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
    from modulekg_widgets.engine.pruning.plan import repair

    torch.manual_seed(0)
    model, x = Wrong(), torch.randn(3, 4)
    graph = mk.trace(model, x)
    bad = graph.axes["into.weight", 0]

    def agrees(axes: Any, masks: Any, *rest: Any) -> bool:
        return all(axes.of(atom).name != bad.name for atom in masks)

    monkeypatch.setattr(repair, "agrees", agrees)
    monkeypatch.setattr(repair.Repair, "_is_proved", lambda self, attempt, found: self._agrees(attempt, found))
    plan = mk.plan(graph, ratio=0.5)
    assert [axis.name for axis in plan.axes] == ["mid.out"]
    assert any("gives other values" in change.source for change in plan.changes)
    with pytest.raises(mk.ModuleKGError, match="other values"):
        mk.plan(graph, per_axis={"into": 0.5})


def test_a_model_that_chance_moves_is_not_said_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    from modulekg_widgets.engine.pruning.plan import reference

    monkeypatch.setattr(reference, "_disagreement", lambda *_: 0.1)
    graph = mk.trace(Wrong(), torch.randn(3, 4))
    assert reference.agrees(graph.axes, {}, mk.plan(graph, ratio=0.5).edits) is None
