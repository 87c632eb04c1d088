"""What is read of a module's calls as it comes by is what a whole observation gives, and stands in nobody's way."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.config import Measurement
from modulekg_widgets.engine.monitoring.hooks import module_metric
from modulekg_widgets.engine.monitoring.hooks.module_metric import ActiveMetrics, ModuleMetric
from modulekg_widgets.engine.monitoring.hooks.value_writer import ValueWriter
from modulekg_widgets.engine.monitoring.metrics import METRICS
from modulekg_widgets.engine.monitoring.schedule import Linear
from monitoring.surroundings import own_metrics

MANY = ["InputSndNorm", "InputMean", "OutputSndNorm", "ActivationMax", "Sparsity", "OutputGradSndNorm", "RankMe"]


@pytest.fixture(autouse=True)
def _own_metrics() -> Iterator[None]:
    torch.manual_seed(0)
    with own_metrics():
        yield


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(288, 4))


def trained(metrics: list[Any], steps: int = 3, around: Callable[[torch.Tensor], torch.Tensor] = lambda y: y) -> Any:
    model = net()
    with mk.Monitor(model, {"*": metrics}) as monitor:
        for step in range(steps):
            around(model(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(step)))).sum().backward()
            monitor.track(step)
    return monitor


def values(monitor: Any) -> dict[tuple[Any, ...], list[float]]:
    return {
        (r.module, r.metric, r.step, r.call): torch.as_tensor(r.value).reshape(-1).tolist() for r in monitor.readings()
    }


def test_a_tensor_read_at_once_and_one_of_a_whole_observation_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = values(trained(MANY))
    monkeypatch.setattr(module_metric, "IMMEDIATE_NEEDS", frozenset())
    jointly = values(trained(MANY))
    assert len(at_once) == len(jointly) > 100
    for key, own in jointly.items():
        assert at_once[key] == pytest.approx(own, rel=1e-6, nan_ok=True), key


def test_norms_alone_are_those_among_others() -> None:
    alone, among = values(trained(["OutputSndNorm"])), values(trained(["OutputSndNorm", "Sparsity"]))
    for key, own in alone.items():
        assert own == pytest.approx(among[key], rel=1e-6)


def test_autocast_does_not_reach_into_metrics() -> None:
    def product(y: torch.Tensor) -> torch.Tensor:
        rows = y.float().reshape(len(y), -1)
        return (rows @ rows.T).trace()

    mk.metric("Trace", needs="ForwardOutput")(product)
    model = nn.Linear(64, 64)
    x = torch.randn(8, 64)
    with mk.Monitor(model, {"": ["Trace", "OutputSndNorm"]}) as monitor, torch.autocast("cpu", torch.bfloat16):
        y = model(x)
        monitor.track(0)
    found = {r.metric: r.value for r in monitor.readings()}
    assert found["Trace"] == pytest.approx(float(y.detach().double().square().sum()), rel=1e-5)


def test_a_metric_builds_no_graph() -> None:
    seen = []

    def watch(y: torch.Tensor) -> torch.Tensor:
        seen.append((torch.is_grad_enabled(), y.requires_grad))
        return y.mean()

    mk.metric("Watching", needs="ForwardOutput")(watch)
    trained(["Watching"], steps=1)
    assert set(seen) == {(False, False)}
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("first", [True, False])
def test_hooks_of_the_user_on_the_same_tensor(first: bool) -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    seen: list[float] = []
    handles = []

    def forward(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        handles.append(output.register_hook(lambda g: seen.append(float(g.norm()))))

    with mk.Monitor(model, {"": ["OutputGradSndNorm"]}) as monitor:
        if first:
            model.register_forward_hook(forward)
            y = model(x)
        else:
            y = model(x)
            forward(model, (), y)
        y.sum().backward(retain_graph=True)
        handles.pop().remove()
        model.zero_grad()
        y.sum().backward()
        monitor.track(0)
    (reading,) = monitor.readings()
    assert seen == [pytest.approx(8**0.5)]
    assert reading.value == pytest.approx(2 * 8**0.5)  # of both backward passes


def test_callables_that_cannot_tell_their_parameters() -> None:
    mk.metric("OutputStd", needs="ForwardOutputMoments")(operator.attrgetter("std"))
    monitor = trained(["OutputStd"])
    assert len(monitor.get_output()["0"]["OutputStd"]) == 3
    assert monitor.reasons == {}


def test_one_failing_metric_leaves_the_others() -> None:
    def broken(y: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("on purpose")

    mk.metric("Broken", needs="ForwardOutput")(broken)
    with pytest.warns(RuntimeWarning, match="on purpose"):
        monitor = trained(["OutputSndNorm", "Broken", "Sparsity"])
    found = monitor.get_output()["0"]
    assert [len(found[name]) for name in ("OutputSndNorm", "Broken", "Sparsity")] == [3, 1, 3]


@pytest.mark.parametrize("metrics", [["OutputGradSndNorm"], ["OutputGradSndNorm", "OutputGradHistogram"]])
def test_a_scaler_that_fails_does_not_reach_the_training(metrics: list[str], caplog: pytest.LogCaptureFixture) -> None:
    class Failing:
        _scale = torch.ones(())

        def get_scale(self) -> float:
            return 1.0

        def is_enabled(self) -> bool:
            raise ZeroDivisionError("on purpose")

    model = nn.Linear(2, 2)
    with mk.Monitor(model, {"": metrics}, scaler=Failing()) as monitor:
        model(torch.ones(1, 2)).sum().backward()
        monitor.track(0)
    assert model.weight.grad is not None
    assert "on purpose" in caplog.text


# ------------------------------------------------------------------ which metrics are active


class Odd:
    """A schedule of the user's that cannot be compared."""

    __hash__ = None  # type: ignore[assignment]

    def due(self, step: int) -> bool:
        return step % 2 == 1

    watches = begins = due


def metric_on(schedule: Any, name: str = "WeightNorm") -> ModuleMetric:
    return ModuleMetric(
        Measurement("m", nn.Linear(1, 1), METRICS[name](), schedule), ValueWriter(print, lambda *_: 0), 0
    )


def test_metrics_watch_when_their_schedules_say_so() -> None:
    metrics = [metric_on(Linear(2)), metric_on(Odd()), metric_on(Linear(2)), metric_on(Linear(3)), metric_on(Odd())]
    active = ActiveMetrics(metrics)
    for step in range(12):
        assert active.at(step) == [one for one in metrics if one.schedule.due(step)]


def test_the_list_is_the_same_while_nothing_changes() -> None:
    one = metric_on(Linear())
    active = ActiveMetrics([one, metric_on(Linear())])
    assert active.at(1) is active.at(2)
    one.is_stopped = True
    assert len(active.at(3)) == 1


def test_a_schedule_is_asked_once_however_many_share_it() -> None:
    asked = []

    class Asked(Odd):
        def due(self, step: int) -> bool:
            asked.append(step)
            return True

    shared = Asked()
    ActiveMetrics([metric_on(shared) for _ in range(5)]).at(7)
    assert asked == [7]
