"""Modules that come and go in a run are followed, or have NaN with the reason; and gradients that are gone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import modulekg_widgets as mk

EVERY = ["WeightNorm", "WeightGradNorm", "UpdateRatio", "OutputSndNorm", "OutputGradSndNorm"]
pytestmark = pytest.mark.filterwarnings("ignore:the metric:RuntimeWarning")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))


class Measured:
    """Values of some steps, and what they should be."""

    def __init__(self, model: nn.Module, config: dict[str, Any], change: Callable[[Any], object], at: int = 2) -> None:
        self.true: list[dict[str, float]] = []
        with mk.Monitor(model, config) as self.monitor:
            for step in range(4):
                if step == at:
                    change(model)
                optimizer = torch.optim.SGD(model.parameters(), 0.1)
                optimizer.zero_grad()
                y = model(torch.randn(5, 6))
                y.retain_grad()
                y.square().mean().backward()
                optimizer.step()
                self.monitor.track(step)
                self.true.append({"OutputSndNorm": float(y.detach().norm()), "OutputGradSndNorm": float(y.grad.norm())})
        self.output = self.monitor.get_output()

    def reason(self, path: str, metric: str) -> str:
        return self.monitor.reasons.get((path, metric), "")


def new_head(model: Any) -> None:
    model[2] = nn.Linear(6, 2)
    nn.init.ones_(model[2].weight)


def test_a_module_that_takes_the_place_of_another_is_measured() -> None:
    model = net()
    found = Measured(model, {"2": EVERY}, new_head)
    values = found.output["2"]
    assert values["WeightNorm"][3] == pytest.approx(float(model[2].weight.detach().norm()))
    assert values["WeightGradNorm"][3] == pytest.approx(float(model[2].weight.grad.norm()))
    for name in ("OutputSndNorm", "OutputGradSndNorm"):
        assert list(values[name].values()) == pytest.approx([true[name] for true in found.true], rel=1e-5)
    assert [math.isnan(value) for value in values["UpdateRatio"].values()] == [False, False, True, False]
    assert "its module was replaced" in found.reason("2", "UpdateRatio")
    assert found.monitor.unmeasured() == []


def test_a_container_that_is_replaced_takes_what_is_in_it() -> None:
    model = nn.Sequential(nn.Linear(6, 6), net())
    found = Measured(model, {"1.2": EVERY}, lambda model: model.__setitem__(1, net().requires_grad_()))
    values = found.output["1.2"]
    assert list(values["OutputSndNorm"].values()) == pytest.approx([t["OutputSndNorm"] for t in found.true], rel=1e-5)
    assert values["WeightNorm"][3] == pytest.approx(float(model[1][2].weight.detach().norm()))  # type: ignore[index]


def test_a_replaced_module_whose_root_is_not_called_is_measured_from_the_next_step_on() -> None:
    model = nn.ModuleDict({"head": nn.Linear(6, 2)})
    with mk.Monitor(model, {"head": ["OutputSndNorm", "WeightNorm"]}) as monitor:
        for step in range(3):
            if step == 1:
                model["head"] = nn.Linear(6, 2)
            y = model["head"](torch.ones(1, 6))
            monitor.track(step)
    values = monitor.get_output()["head"]
    assert math.isnan(values["OutputSndNorm"][1])
    assert values["OutputSndNorm"][2] == pytest.approx(float(y.detach().norm()))
    assert values["WeightNorm"][1] == values["WeightNorm"][2] == pytest.approx(float(model["head"].weight.norm()))  # type: ignore[operator]


def test_a_module_that_goes_is_nan_with_the_reason_until_one_comes() -> None:
    model = net()
    with mk.Monitor(model, {"2": EVERY}) as monitor:
        for step in range(6):
            if step == 2:
                del model[2]
            if step == 4:
                model.append(nn.Linear(6, 2))
            model.zero_grad()
            model(torch.randn(5, 6)).square().mean().backward()
            monitor.track(step)
    for name, values in monitor.get_output()["2"].items():
        gone = [step for step, value in values.items() if math.isnan(value)]
        assert gone == ([2, 3, 4] if name == "UpdateRatio" else [2, 3])
    assert "its module was removed" in monitor.reasons["2", "WeightNorm"]
    assert monitor.get_output()["2"]["WeightNorm"][5] == pytest.approx(float(model[2].weight.detach().norm()))


def test_a_module_without_a_weight_takes_the_place_of_one_with_it() -> None:
    found = Measured(net(), {"2": EVERY}, lambda model: model.__setitem__(2, nn.Tanh()))
    assert math.isnan(found.output["2"]["WeightNorm"][3])
    assert "no weight" in found.reason("2", "WeightNorm")
    assert found.output["2"]["OutputSndNorm"][3] == pytest.approx(found.true[3]["OutputSndNorm"], rel=1e-5)


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


@pytest.mark.parametrize(
    "change",
    [
        lambda model: parametrize.register_parametrization(model[2], "weight", Doubled()),
        lambda model: parametrizations.weight_norm(model[2]),
        lambda model: parametrizations.spectral_norm(model[2]),
        lambda model: prune.l1_unstructured(model[2], "weight", amount=0.5),
    ],
    ids=["parametrized", "weight_norm", "spectral_norm", "pruned"],
)
def test_a_weight_that_is_computed_from_now_on_is_nan_with_the_reason(change: Callable[[Any], object]) -> None:
    found = Measured(net(), {"2": EVERY}, change)
    values = found.output["2"]
    for name in ("WeightNorm", "WeightGradNorm", "UpdateRatio"):
        assert [math.isnan(value) for value in values[name].values()] == [False, False, True, True]
        assert "computed" in found.reason("2", name)
    assert list(values["OutputSndNorm"].values()) == pytest.approx([t["OutputSndNorm"] for t in found.true], rel=1e-5)


def test_a_parametrization_that_goes_gives_the_weight_back() -> None:
    model = net()
    parametrize.register_parametrization(model[2], "weight", Doubled())
    found = Measured(
        model, {"2": ["WeightNorm"]}, lambda model: parametrize.remove_parametrizations(model[2], "weight")
    )
    assert [math.isnan(value) for value in found.output["2"]["WeightNorm"].values()] == [True, True, False, False]


def test_a_call_of_the_step_before_the_module_went_keeps_its_value() -> None:
    model = net()
    with mk.Monitor(model, {"2": ["OutputSndNorm", "WeightNorm"]}) as monitor:
        y = model(torch.randn(5, 6))
        del model[2]
        monitor.track(0)
    assert monitor.get_output()["2"]["OutputSndNorm"][0] == pytest.approx(float(y.detach().norm()))
    assert math.isnan(monitor.get_output()["2"]["WeightNorm"][0])


# ------------------------------------------------------------------ gradients that are gone at `track`


@pytest.mark.parametrize("steps", [True, False], ids=["after a step", "without a step"])
def test_gradients_that_were_cleared_before_track_are_nan_with_the_reason(steps: bool) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with mk.Monitor(model, {"Linear": ["WeightGradNorm", "WeightGradHistogram", "WeightNorm"]}) as monitor:
        for step in range(2):
            model(torch.randn(5, 6)).square().mean().backward()
            if steps:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            monitor.track(step)
    for path in ("0", "2"):
        values = monitor.get_output()[path]
        assert all(
            math.isnan(values[name][step]) for name in ("WeightGradNorm", "WeightGradHistogram") for step in (0, 1)
        )
        assert "zero_grad" in monitor.reasons[path, "WeightGradNorm"]
        assert values["WeightNorm"][1] > 0


def test_gradients_of_one_of_two_optimizers_that_were_cleared() -> None:
    model = nn.ModuleDict({"critic": nn.Linear(4, 1), "generator": nn.Linear(3, 4)})
    optimizers = {name: torch.optim.SGD(part.parameters(), 0.1) for name, part in model.items()}
    with mk.Monitor(model, {"Linear": ["WeightGradNorm"]}) as monitor:
        model["critic"](model["generator"](torch.randn(5, 3))).mean().backward()
        for optimizer in optimizers.values():
            optimizer.step()
        optimizers["critic"].zero_grad()
        monitor.track(0)
    assert math.isnan(monitor.get_output()["critic"]["WeightGradNorm"][0])
    assert monitor.get_output()["generator"]["WeightGradNorm"][0] > 0
    assert set(monitor.reasons) == {("critic", "WeightGradNorm")}


def test_weights_that_no_gradient_reached_have_no_value_as_before() -> None:
    model = nn.ModuleDict({"used": nn.Linear(3, 2), "unused": nn.Linear(3, 2), "frozen": nn.Linear(3, 2)})
    model["frozen"].requires_grad_(False)
    with mk.Monitor(model, {"Linear": ["WeightGradNorm"]}) as monitor:
        (model["used"](torch.ones(1, 3)) + model["frozen"](torch.ones(1, 3))).sum().backward()
        monitor.track(0)
    assert set(monitor.get_output()) == {"used"}
    assert monitor.reasons == {}


def test_no_hook_of_optimizers_stays() -> None:
    from torch.optim import optimizer

    before = len(optimizer._global_optimizer_pre_hooks)
    with mk.Monitor(net(), {"Linear": [["WeightGradNorm", "linear(2)"]]}) as monitor:
        assert len(optimizer._global_optimizer_pre_hooks) == before + 1
        monitor.track(0)
        assert len(optimizer._global_optimizer_pre_hooks) == before
    assert len(optimizer._global_optimizer_pre_hooks) == before
