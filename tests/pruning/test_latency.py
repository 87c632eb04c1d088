"""Targets in milliseconds: the search on given times, and plans whose cuts are measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.residual import ResidualMLP
from modulekg_widgets.engine.errors import CutError, TraceError
from modulekg_widgets.engine.profiling import timing
from modulekg_widgets.engine.profiling.timing import LatencyComparison
from modulekg_widgets.engine.pruning import latency
from modulekg_widgets.engine.pruning.cut.edits import Edits
from modulekg_widgets.engine.pruning.plan import planner
from modulekg_widgets.engine.pruning.plan.targets import target_solver
from modulekg_widgets.engine.pruning.plan.targets.latency_search import LatencySearch, Proposal
from pruning.target_samples import ConvClassifier, left, three_layers


def comparison(share: float, before: float = 10.0) -> LatencyComparison:
    return LatencyComparison((before,) * 8, (before * share,) * 8)


# ------------------------------------------------------------------ the search


class Times:
    """A device on which a cut takes a fixed part of the time, and the rest as it is estimated."""

    def __init__(self, fixed: float = 0.2, grain: int = 1000, odd: float = 1.0, least: float = 0.0) -> None:
        self.fixed, self.grain, self.odd, self.least = fixed, grain, odd, least
        self.measured: list[tuple[float, int, bool]] = []

    def propose(self, goal: float, round_to: int) -> Proposal | None:
        estimate = max(round(goal * self.grain) / self.grain, self.least)
        tried: Any = SimpleNamespace(
            estimate=estimate,
            round_to=round_to,
            candidate=SimpleNamespace(selection=SimpleNamespace(counts={"a": estimate})),
        )
        return Proposal(tried, estimate)

    def measure(self, tried: Any, thorough: bool) -> LatencyComparison:
        self.measured.append((tried.estimate, tried.round_to, thorough))
        slower = self.odd if tried.round_to < 8 else 1.0
        return comparison(slower * (self.fixed + (1 - self.fixed) * tried.estimate))

    def search(self, wanted: float, multiples: tuple[int, ...] = (1, 8, 16)) -> LatencySearch:
        return LatencySearch(wanted, self.propose, self.measure, multiples)


@pytest.mark.parametrize("wanted", [0.9, 0.6, 0.4])
@pytest.mark.parametrize("fixed", [0.0, 0.3])
def test_the_search_meets_what_cuts_take_and_not_what_is_estimated(fixed: float, wanted: float) -> None:
    device = Times(fixed)
    found = device.search(wanted).run()
    assert found is not None
    assert found.share == pytest.approx(wanted, rel=0.02)
    assert found.is_confirmed
    assert device.measured[-1] == (found.proposal.estimate, found.round_to, True)
    assert len(device.measured) <= 9


def test_sizes_are_rounded_where_others_are_slower() -> None:
    assert Times(odd=1.2).search(0.6).run().round_to == 8  # type: ignore[union-attr]
    assert Times(odd=1.01).search(0.6).run().round_to == 1  # type: ignore[union-attr]


def test_the_nearest_of_coarse_steps_is_measured_well() -> None:
    device = Times(0.2, grain=5)
    found = device.search(0.63).run()
    assert found is not None
    assert found.share == pytest.approx(0.68)
    assert found.is_confirmed
    device = Times(0.5, least=0.4)
    assert device.search(0.3).run().share == pytest.approx(0.7)  # type: ignore[union-attr]


@pytest.mark.parametrize("slow", [0.45, 0.5, 0.55])
def test_a_cut_that_looked_slow_by_chance_is_measured_again(slow: float) -> None:
    class Disturbed(Times):
        def measure(self, tried: Any, thorough: bool) -> LatencyComparison:
            is_disturbed = not thorough and tried.estimate == pytest.approx(slow)
            found = super().measure(tried, thorough)
            return comparison(1.4 * found.share) if is_disturbed else found

    device = Disturbed(0.2, grain=20)
    found = device.search(0.2 + 0.8 * slow, (1,)).run()
    assert found is not None
    assert found.share == pytest.approx(0.2 + 0.8 * slow, rel=0.02)


def test_steps_without_a_cut_are_left_out() -> None:
    device = Times()
    every = LatencySearch(
        0.6, lambda goal, round_to: device.propose(goal, round_to) if round_to == 8 else None, device.measure, (1, 8)
    )
    assert every.run().round_to == 8  # type: ignore[union-attr]
    assert LatencySearch(0.6, lambda goal, round_to: None, device.measure, (1, 8)).run() is None


def test_a_share_goes_by_the_quick_half_of_passes() -> None:
    disturbed = LatencyComparison((10.0, 10.0, 10.0, 40.0, 90.0), (5.0, 70.0, 5.0, 5.0, 5.0))
    assert disturbed.share == 0.5
    assert disturbed.pair == (10.0, 5.0)
    assert len(disturbed.with_more(disturbed).before) == 10


# ------------------------------------------------------------------ plans


@pytest.fixture
def given_times(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Cuts take a fifth of the time, and the rest as much as parameters stay; `slower` is a factor on top."""
    device: dict[str, Any] = {"slower": 1.0, "edits": []}

    def compared(model: nn.Module, before: Edits, after: Edits, call: Any, **_: Any) -> LatencyComparison:
        sizes = {name: tensor.numel() for name, tensor in model.named_parameters()}
        whole = sum(sizes.values())
        for edit in after.tensors:
            sizes |= {name: torch.Size(edit.shape_after).numel() for name in edit.names if name in sizes}
        removed = [each.path for each in after.removal.modules]
        kept = sum(size for name, size in sizes.items() if not any(name.startswith(f"{path}.") for path in removed))
        device["edits"].append(after)
        return comparison(device["slower"] * (0.2 + 0.8 * kept / whole))

    monkeypatch.setattr(latency, "compare_latency", compared)
    monkeypatch.setattr(timing, "MAX_ROUNDS", 2)
    return device


def share(pair: tuple[float, float]) -> float:
    return pair[1] / pair[0]


@pytest.mark.parametrize("wanted", [0.8, 0.5])
def test_a_plan_takes_what_was_asked_for(given_times: dict[str, Any], wanted: float) -> None:
    graph = three_layers()
    with unchanged(graph.model):
        plan = mk.plan(graph, target={"latency": wanted})
    assert plan.latency is not None
    assert share(plan.latency) == pytest.approx(wanted, rel=0.1)
    assert share(plan.latency) == pytest.approx(0.2 + 0.8 * share(plan.params))
    assert f"({share(plan.latency):.1%})" in plan.summary
    assert " ms " in plan.summary
    plan.cut(graph.model)
    assert sum(p.numel() for p in graph.model.parameters()) == plan.params[1]


def test_the_text_of_a_measured_plan_makes_the_same_cuts_again(given_times: dict[str, Any]) -> None:
    graph = three_layers()
    plan = mk.plan(graph, target={"latency": 0.6})
    again = eval(repr(plan), {"mk": mk, "graph": graph})
    assert "per_axis" in repr(plan)
    assert again.axes == plan.axes
    assert again.latency is None  # nobody asked


def test_milliseconds_as_a_number(given_times: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency.Stopwatch, "model_time", lambda _: 10.0)
    plan = mk.plan(three_layers(), target={"latency": 7.0})
    assert plan.latency is not None
    assert plan.latency[1] == pytest.approx(7.0, rel=0.1)
    with pytest.raises(CutError, match="removes nothing"):
        mk.plan(three_layers(), target={"latency": 11.0})


def test_two_targets(given_times: dict[str, Any]) -> None:
    plan = mk.plan(three_layers(), target={"latency": 0.6, "params": 0.55})
    assert plan.latency is not None
    assert share(plan.latency) == pytest.approx(0.6, rel=0.1)
    assert share(plan.params) <= 0.56


@pytest.mark.parametrize(
    ("target", "tightest"), [({"latency": 0.9, "params": 0.3}, "params"), ({"latency": 0.4, "bytes": 0.95}, "latency")]
)
def test_a_time_is_a_budget_beside_others(given_times: dict[str, Any], target: dict[str, float], tightest: str) -> None:
    plan = mk.plan(three_layers(), target=target)
    left = {unit: share(getattr(plan, unit)) - wanted for unit, wanted in target.items()}
    assert max(left.values()) <= 0.01
    assert abs(left.pop(tightest)) < 0.03 < -max(left.values())
    assert not any("not met" in note for note in plan.notes)


def test_a_time_above_that_of_the_model_is_kept(given_times: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency.Stopwatch, "model_time", lambda _: 10.0)
    plan = mk.plan(three_layers(), target={"latency": 11.0, "params": 0.5})
    assert plan.axes == mk.plan(three_layers(), target={"params": 0.5}).axes
    assert plan.latency is not None
    assert plan.latency[1] < plan.latency[0]


def test_beside_other_options(given_times: dict[str, Any]) -> None:
    graph = three_layers()
    plan = mk.plan(graph, target={"latency": 0.7}, round_to=4, keep="first", scope="global")
    assert all(count % 4 == 0 for count in left(plan).values())
    assert "first.out" not in left(plan)
    assert not any("multiples of" in note for note in plan.notes)


def test_scores_are_computed_once(given_times: dict[str, Any]) -> None:
    asked = []

    def scores(group: Any) -> torch.Tensor:
        asked.append(group.axis.name)
        return torch.arange(group.axis.size)

    mk.plan(three_layers(), target={"latency": 0.6}, importance=scores)
    count = len(asked)
    asked.clear()
    mk.plan(three_layers(), target={"flops": 0.6}, importance=scores)
    assert count == len(asked)


def test_what_was_measured_is_not_measured_again(given_times: dict[str, Any]) -> None:
    graph = three_layers()
    first = mk.plan(graph, target={"latency": 0.6})
    count = len(given_times["edits"])
    second = mk.plan(graph, target={"latency": 0.6})
    assert (second.axes, second.latency) == (first.axes, first.latency)
    assert len(given_times["edits"]) == count


def test_a_layer_of_a_size_is_measured_once_in_whichever_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MAX_ROUNDS", 2)
    monkeypatch.setattr(latency, "_measured", {})
    rows = torch.randn(4096, 3, 4, 4)  # each layer takes far longer than listening to it does
    one, other = (mk.trace(ConvClassifier().eval(), rows) for _ in range(2))
    runs: list[str] = []
    measure = latency.Stopwatch._exclusive_times
    monkeypatch.setattr(latency.Stopwatch, "_exclusive_times", lambda watch: runs.append("run") or measure(watch))
    first = latency.Stopwatch(one).times(one)
    again = latency.Stopwatch(other).times(other)
    assert (again, len(runs)) == (first, 1)
    assert all(taken > 0 for taken in first.values())
    wider = mk.trace(one.model, torch.cat([one.call[0][0]] * 2))
    assert latency.Stopwatch(wider).times(wider).keys() == first.keys()
    assert len(runs) == 2
    latency.Stopwatch(mk.trace(one.model.double(), one.call[0][0].double())).times(wider)
    assert len(runs) == 3  # in float64 it takes longer


def test_layers_of_one_size_take_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_measured", {})
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)).eval()
    graph = mk.trace(model, torch.randn(2, 8))
    watch = latency.Stopwatch(graph)
    monkeypatch.setattr(latency.Stopwatch, "_exclusive_times", lambda _: {"0": 1e-3, "1": 3e-3, "2": 0.5e-3, "": 1.0})
    assert list(watch.times(graph).values()) == pytest.approx([2e3, 2e3, 0.5e3])


def test_a_target_that_no_cut_reaches(given_times: dict[str, Any]) -> None:
    with pytest.raises(
        CutError, match=r"cannot be reached: the nearest .* in the way: floor=0.5; .*frozen axes"
    ) as caught:
        mk.plan(three_layers(), target={"latency": 0.25}, floor=0.5)
    assert "what takes longest in the model: " in str(caught.value)


def test_cuts_that_are_slower_than_the_model(given_times: dict[str, Any]) -> None:
    given_times["slower"] = 6.0
    with pytest.raises(CutError, match=r"no cut for target=\{'latency': 0.95\} is faster than the model"):
        mk.plan(three_layers(), target={"latency": 0.95})


def test_blocks_and_widths(given_times: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mk.trace(nn.Sequential(*(ResidualMLP(8, 32) for _ in range(4))).eval(), torch.randn(2, 8))
    plan = mk.plan(graph, blocks=["1"], target={"latency": 0.9})  # the block alone leaves 0.8
    assert (plan.axes, plan.blocks) == ((), ("1",))
    assert plan.latency is not None
    assert share(plan.latency) == pytest.approx(0.8)
    plan = mk.plan(graph, blocks=["1"], target={"latency": 0.5})
    assert plan.axes
    assert plan.latency is not None
    assert share(plan.latency) == pytest.approx(0.5, rel=0.15)
    plan.cut(graph.model)
    assert len(list(graph.model.children())) == 3


def test_what_cannot_be_measured() -> None:
    graph = mk.trace(ConvClassifier().to("meta"), torch.randn(1, 3, 4, 4))
    with pytest.raises(TraceError, match=r"time is measured, and 'first.weight' is on the meta device"):
        mk.plan(graph, target={"latency": 0.5})
    with pytest.raises(CutError, match="keep of params, flops, matmul_flops, macs, bytes, latency"):
        mk.plan(three_layers(), target={"time": 0.5})
    with pytest.raises(CutError, match="keep of params, flops, matmul_flops, macs, bytes, as"):
        mk.PruningSchedule(steps=3, target={"latency": 0.5})


def test_a_really_measured_plan_leaves_the_model_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MAX_ROUNDS", 2)
    monkeypatch.setattr(planner, "MULTIPLES", (1,))
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 4))
    graph = mk.trace(model, torch.randn(8, 16))
    monkeypatch.setattr(target_solver.LatencyTarget, "is_too_slow", lambda *_: False)  # so small a model need not gain
    with unchanged(model):
        plan = mk.plan(graph, target={"latency": 0.5})
    assert plan.latency is not None
    assert min(plan.latency) > 0
    assert plan.axes[0].left < 64
