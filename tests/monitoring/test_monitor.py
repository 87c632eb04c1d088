"""What a user sees of the monitor: steps, output, the user's own numbers, alerts, events, own metrics, resuming."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.functional import Lambda
from modulekg_widgets.engine.errors import DuplicateNameError, UnknownNameError
from modulekg_widgets.engine.monitoring.config import ConfigError
from modulekg_widgets.engine.monitoring.monitor import MonitorError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def steps(
    model: nn.Module, monitor: mk.Monitor, count: int, first: int = 0, stride: int = 1, rate: float = 0.1
) -> None:
    generator = torch.Generator().manual_seed(7)
    for step in range(first, first + count * stride, stride):
        model.zero_grad()
        model(torch.randn(5, 4, generator=generator)).pow(2).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= rate * parameter.grad
        monitor.track(step)


# ------------------------------------------------------------------ steps and output


def test_the_first_forward_belongs_to_step_0_and_tables_agree_with_the_dict() -> None:
    model = net()
    with mk.Monitor(model, {"0": ["WeightNorm", "OutputSndNorm"], "2": ["InputMean", "WeightStatistic"]}) as monitor:
        steps(model, monitor, 3)
    output = monitor.get_output()
    assert {name: list(metrics) for name, metrics in output.items()} == {
        "0": ["WeightNorm", "OutputSndNorm"],
        "2": ["InputMean", "WeightStatistic"],
    }
    assert all(list(by_step) == [0, 1, 2] for metrics in output.values() for by_step in metrics.values())
    assert output["2"]["InputMean"][1].shape == (8,)
    assert set(output["2"]["WeightStatistic"][0]) == {"mean", "std", "min", "max", "zeros"}
    table = monitor.frame()
    assert list(table.columns) == ["module", "metric", "step", "value", "call", "phase"]
    assert len(table) == 12
    for row in table.itertuples():
        np.testing.assert_equal(output[row.module][row.metric][row.step], row.value)


def test_a_schedule_attaches_hooks_on_its_steps_only() -> None:
    model = net()
    monitor = mk.Monitor(model, {"0": [["OutputSndNorm", "linear(3,1)"]]})
    with monitor:
        attached = []
        for step in range(6):
            attached.append(monitor._hooks.is_attached)
            steps(model, monitor, 1, first=step)
    assert attached == [False, True, False, False, True, False]
    assert list(monitor.get_output()["0"]["OutputSndNorm"]) == [1, 4]


def test_steps_that_jump_are_followed_from_the_second_on() -> None:
    model = net()
    with mk.Monitor(model, {"0": ["OutputSndNorm", ["WeightNorm", "linear(20)"]]}) as monitor:
        steps(model, monitor, 5, first=0, stride=10)
    output = monitor.get_output()["0"]
    assert list(output["OutputSndNorm"]) == [0, 10, 20, 30, 40]
    assert list(output["WeightNorm"]) == [0, 20, 40]


def test_without_a_configuration_modules_with_weights_are_measured() -> None:
    model = net()
    with mk.Monitor(model) as monitor:
        steps(model, monitor, 2)
    output = monitor.get_output()
    assert set(output) == {"0", "2"}
    assert set(output["0"]) == {"OutputSndNorm", "OutputGradSndNorm", "WeightNorm", "WeightGradNorm", "UpdateRatio"}
    assert all(list(by_step) == [0, 1] for by_step in output["0"].values())


@pytest.mark.parametrize("step", [-1, 1.5, "3", None, True, torch.tensor(1.5)])
def test_a_step_is_a_count(step: object) -> None:
    model = net()
    with mk.Monitor(model, {"0": ["WeightNorm"]}) as monitor:
        with pytest.raises(MonitorError):
            monitor.track(step)  # type: ignore[arg-type]
        monitor.track(np.int64(0))  # type: ignore[arg-type]
    assert list(monitor.get_output()["0"]["WeightNorm"]) == [0]


def test_tracking_without_starting_is_an_error_that_says_how() -> None:
    monitor = mk.Monitor(net(), {"0": ["WeightNorm"]})
    with pytest.raises(MonitorError, match=r"start\(\)"):
        monitor.track(0)


def test_a_stopped_monitor_goes_on_where_it_was() -> None:
    model = net()
    monitor = mk.Monitor(model, {"0": ["OutputSndNorm", "UpdateRatio"]})
    with monitor:
        steps(model, monitor, 2)
    model(torch.randn(3, 4))  # not measured
    with monitor:
        assert monitor.step == 2
        steps(model, monitor, 2, first=2)
    assert list(monitor.get_output()["0"]["OutputSndNorm"]) == [0, 1, 2, 3]
    assert list(monitor.get_output()["0"]["UpdateRatio"]) == [0, 1, 2, 3]


def test_what_has_no_value_is_listed() -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 4), "idle": nn.Linear(4, 4)})
    with mk.Monitor(model, {"*": ["OutputSndNorm"], "idle": ["WeightNorm"]}) as monitor:
        model["used"](torch.randn(2, 4))
        monitor.track(0)
    assert monitor.unmeasured() == [("", "OutputSndNorm"), ("idle", "OutputSndNorm")]


# ------------------------------------------------------------------ the user's own numbers


def test_logged_numbers_stand_beside_the_metrics() -> None:
    model = net()
    before, after = mk.Monitor(model, {"0": ["WeightNorm"]}), mk.Monitor(model, {"0": ["WeightNorm"]})
    with before, after:
        for step in range(3):
            before.log({"loss": step / 2, "rate": torch.tensor(0.1)})
            before.track(step)
            after.track(step)
            after.log({"loss": np.float32(step / 2)})
    expected = {0: 0.0, 1: 0.5, 2: 1.0}
    assert before.get_output()[""]["loss"] == expected
    assert after.get_output()[""]["loss"] == expected
    assert list(before.get_output()[""]["rate"].values()) == pytest.approx([0.1] * 3)


@pytest.mark.parametrize("is_before", [True, False], ids=["before track", "after track"])
@pytest.mark.parametrize("validates", [True, False], ids=["with a validation", "alone"])
@pytest.mark.parametrize(("interval", "expected"), [(1, [0, 1, 2, 3]), (10, [9, 19])])
def test_a_number_of_every_tenth_step_has_that_step(
    is_before: bool, validates: bool, interval: int, expected: list[int]
) -> None:
    model = nn.Linear(2, 2)
    with mk.Monitor(model, {"": ["OutputSndNorm"]}) as monitor:
        for step in range(4 if interval == 1 else 21):
            model(torch.ones(1, 2)).sum().backward()
            if not is_before:
                monitor.track(step)
            if (step + 1) % interval == 0:
                if validates:
                    with torch.no_grad():
                        model(torch.ones(1, 2))
                monitor.log({"loss": step / 2})
            if is_before:
                monitor.track(step)
    assert monitor.get_output()[""]["loss"] == {step: step / 2 for step in expected}


def test_a_number_logged_where_no_hook_looks_is_placed_once_one_does() -> None:
    model = nn.Linear(2, 2)
    with mk.Monitor(model, {"": [["OutputSndNorm", "linear(10, 5)"]]}) as monitor:
        for step in range(7):
            model(torch.ones(1, 2)).sum().backward()
            if step in (3, 5, 6):
                monitor.log({f"loss at {step}": 1.0})
            monitor.track(step)
    found = {name: list(steps) for name, steps in monitor.get_output()[""].items() if "loss" in name}
    assert found == {"loss at 3": [2], "loss at 5": [5], "loss at 6": [6]}  # nothing saw the forward pass of step 3


def test_numbers_logged_without_track_count_on_by_themselves() -> None:
    monitor = mk.Monitor(net(), {"0": ["WeightNorm"]})
    for value in range(4):
        monitor.log({"loss": value})
    monitor.log({"loss": 9.0}, step=100)
    monitor.log({"loss": 10.0})
    assert monitor.get_output()[""]["loss"] == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0, 100: 9.0, 101: 10.0}


@pytest.mark.parametrize("value", ["three", None, torch.zeros(2), [1, 2]])
def test_what_is_no_number_is_not_logged(value: object) -> None:
    monitor = mk.Monitor(net(), {"0": ["WeightNorm"]})
    with pytest.raises(MonitorError, match="accuracy"):
        monitor.log({"loss": 1.0, "accuracy": value})
    assert monitor.get_output() == {}


# ------------------------------------------------------------------ alerts and events


def test_an_alert_is_noted_each_time_a_bound_is_crossed() -> None:
    monitor = mk.Monitor(net(), {"0": ["WeightNorm"]})
    monitor.log({"loss": 0.0})
    monitor.alert("loss", above=2.0, below=-1.0)
    for value in (1.0, 3.0, 4.0, 1.0, math.nan, -5.0):
        monitor.log({"loss": value})
    assert [alert.step for alert in monitor.alerts] == [2, 5]
    assert [alert.text for alert in monitor.alerts] == [
        "loss is 3, above 2 at step 2",
        "loss is NaN at step 5",
    ]


def test_an_alert_of_some_modules() -> None:
    model = net()
    monitor = mk.Monitor(model, {"Linear": ["WeightGradNorm"]})
    monitor.alert("WeightGradNorm", above=0.0, module="2")
    with monitor:
        steps(model, monitor, 2)
    assert [(alert.module, alert.step) for alert in monitor.alerts] == [("2", 0)]
    with pytest.raises(UnknownNameError, match="WeightGradNorm"):
        monitor.alert("WeightGradNrom", above=1)
    with pytest.raises(MonitorError, match="above="):
        monitor.alert("WeightGradNorm")


def test_a_metric_is_measured_in_the_step_after_another_crossed_its_bound() -> None:
    model = net()
    monitor = mk.Monitor(model, {"0": ["WeightNorm", ["OutputSndNorm", "on(WeightNorm, above, 100)"]]})
    with monitor:
        steps(model, monitor, 2)
        with torch.no_grad():
            model[0].weight.mul_(1000)
        steps(model, monitor, 1, first=2, rate=0.0)
        with torch.no_grad():
            model[0].weight.mul_(1e-3)
        steps(model, monitor, 2, first=3, rate=0.0)
    assert list(monitor.get_output()["0"]["OutputSndNorm"]) == [3]
    with pytest.raises(UnknownNameError, match="WeightNorm"):
        mk.Monitor(model, {"0": ["WeightNorm", ["OutputSndNorm", "on(WeightNrom, above, 1)"]]})


def test_the_first_guilty_module_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), Lambda(lambda m, x: x / (x - x))), nn.Linear(4, 2))
    with mk.Monitor(model, {"*": ["NonFiniteOrigin"]}) as monitor:
        model(torch.ones(2, 4)).sum().backward()
        monitor.track(0)
    assert monitor.non_finite_origin is not None
    assert monitor.non_finite_origin.module == "1.1"
    found = {name: metrics["NonFiniteOrigin"][0] for name, metrics in monitor.get_output().items()}
    assert found == {"": 0.0, "0": 0.0, "1": 0.0, "1.0": 0.0, "1.1": 1.0, "2": 0.0}


# ------------------------------------------------------------------ metrics of the user's own


def test_metrics_of_ones_own() -> None:
    @mk.metric("Test.Widest", needs=("ForwardInput", "ForwardOutput"))
    def widest(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        """The largest input and output."""
        return {"x": scale * x.abs().max(), "y": scale * y.abs().max()}

    @mk.metric("Test.Mean", needs="BackwardOutput", keeps="a sum")
    class Mean:
        """The mean gradient norm over a window, and the module's own width."""

        def __init__(self) -> None:
            self.norms: list[torch.Tensor] = []

        def update(self, gradient: torch.Tensor, module: nn.Module) -> None:
            self.norms.append(gradient.norm() * 0 + module.out_features)  # type: ignore[operator]

        def compute(self) -> torch.Tensor:
            norms, self.norms = self.norms, []
            return torch.stack(norms).mean() + len(norms)

    model = net()
    config = {"0": [mk.monitoring.Metric("Test.Widest", scale=2.0), [Mean, "window(2,3)"]], "2": widest}
    with mk.Monitor(model, config) as monitor:
        steps(model, monitor, 6)
    output = monitor.get_output()
    assert output["0"]["Test.Mean"] == {1: 10.0, 4: 10.0}
    assert set(output["2"]["Test.Widest"][0]) == {"x", "y"}
    assert output["0"]["Test.Widest"][0]["x"] > 0
    listed = mk.monitoring.metrics().set_index("name")
    assert listed.loc["Test.Mean", "steps"] == "several"
    assert listed.loc["Test.Widest", "meaning"] == "The largest input and output."
    with pytest.raises(DuplicateNameError):
        mk.metric("WeightNorm", needs="Weight")(lambda weight: weight.sum())
    with pytest.raises(UnknownNameError, match="ForwardInput"):
        mk.metric("Test.Other", needs="ForwardInptu")
    with pytest.raises(ConfigError, match="scael"):
        mk.monitoring.Metric("Test.Widest", scael=1.0)


def test_a_metric_that_fails_is_nan_with_a_reason_and_one_warning() -> None:
    @mk.metric("Test.Failing", needs="ForwardOutput")
    def failing(y: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("nothing to divide")

    model = net()
    monitor = mk.Monitor(model, {"*": ["Test.Failing"], "0": ["WeightNorm"]})
    with monitor, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps(model, monitor, 3)
    assert len([warning for warning in caught if "Test.Failing" in str(warning.message)]) == 1
    assert math.isnan(monitor.get_output()["1"]["Test.Failing"][0])
    assert "nothing to divide" in monitor.reasons["1", "Test.Failing"]
    assert list(monitor.get_output()["0"]["WeightNorm"]) == [0, 1, 2]


# ------------------------------------------------------------------ files


def test_a_run_is_resumed_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    model = net()
    config = {"0": ["WeightNorm", "InputMean"]}
    with mk.Monitor(model, config, sinks=[file]) as first:
        steps(model, first, 6)
    with mk.Monitor(model, config, resume=file, start=4, sinks=[file]) as second:
        assert second.step == 4
        steps(model, second, 3, first=4)
    expected = {step: first.get_output()["0"]["WeightNorm"][step] for step in range(4)}
    found = second.get_output()["0"]["WeightNorm"]
    assert list(found) == [0, 1, 2, 3, 4, 5, 6]
    assert {step: found[step] for step in range(4)} == expected
    recorded = mk.load_recording(file).get_output()["0"]
    assert recorded["WeightNorm"] == found
    assert recorded["InputMean"][5].shape == (4,)
    assert mk.Monitor(model, config, resume=file).step == 7


def test_a_monitor_that_starts_again_goes_on_in_its_files(tmp_path: Path) -> None:
    file, objects = tmp_path / "run.csv", Collected()
    model = net()
    monitor = mk.Monitor(model, {"0": ["WeightNorm"]}, sinks=[file, objects])
    for first in (0, 2):
        with monitor:
            steps(model, monitor, 2, first=first)
    assert list(mk.load_recording(file).get_output()["0"]["WeightNorm"]) == [0, 1, 2, 3]
    assert objects.steps == [0, 1, 2, 3]


class Collected:
    """A logger of the user's own."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def log(self, values: dict[str, float], step: int) -> None:
        assert set(values) == {"0/WeightNorm"}
        self.steps.append(step)


def test_the_hessian_on_request_is_recorded_and_disturbs_nothing() -> None:
    model = net()
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(7))
    with mk.Monitor(model, {"Linear": ["OutputGradSndNorm"]}) as plain:
        model(x).pow(2).sum().backward()
        plain.track(0)
    model.zero_grad()
    with mk.Monitor(model, {"Linear": ["OutputGradSndNorm"]}) as monitor:
        loss = model(x).pow(2).sum()
        found = monitor.hessian(loss, samples=4)
        loss.backward()
        monitor.track(0)
    output = monitor.get_output()
    assert set(found) == {"0", "2"}
    assert {name: {metric: output[name][metric][0] for metric in values} for name, values in found.items()} == found
    for name in found:
        assert output[name]["OutputGradSndNorm"] == plain.get_output()[name]["OutputGradSndNorm"]
    rows = [row.step for row in monitor.history.rows() if "OutputGradSndNorm" in {slot.metric for slot in row.slots}]
    assert rows == [0]  # the products with the Hessian were backward passes, too
    hidden = torch.relu(model[0](x))
    features = torch.cat([hidden, torch.ones(5, 1)], 1).double()
    expected = 2 * torch.linalg.eigvalsh(features.T @ features)[-1]  # of a linear layer under a squared loss
    assert found["2"]["HessianMaxEig"] == pytest.approx(expected.item(), rel=1e-3)
