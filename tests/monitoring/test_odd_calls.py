"""What no tidy training does: several monitors, odd orders of steps, odd backward passes, odd values of metrics."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import modulekg_widgets as mk
from models.functional import Lambda
from monitoring.surroundings import hook_count, own_metrics, process_state

NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm"]


@pytest.fixture(autouse=True)
def _the_process_is_as_before() -> Iterator[None]:
    torch.manual_seed(0)
    before = process_state()
    with own_metrics():
        yield
    assert {**process_state(), "random": 0} == {**before, "random": 0}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def norm(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return float(np.linalg.norm(tensor.detach().numpy()))


def about(*values: torch.Tensor | float | None) -> Any:
    numbers = [value if isinstance(value, float) else norm(value) for value in values]
    return pytest.approx(numbers[0] if len(numbers) == 1 else numbers, rel=1e-4)


# ------------------------------------------------------------------ several monitors, starts and stops


def test_two_monitors_at_once_see_the_same_and_go_in_any_order() -> None:
    model = net()
    first, second = mk.Monitor(model, {"*": NORMS}), mk.Monitor(model, {"0": [["OutputGradSndNorm", "linear(2)"]]})
    first.start()
    second.start()
    for step in range(4):
        model(torch.randn(2, 4)).sum().backward()
        first.track(step)
        second.track(step)
    first.stop()
    model(torch.randn(2, 4)).sum().backward()
    second.track(4)
    second.stop()
    assert hook_count() == 0
    both = first.get_output()["0"]["OutputGradSndNorm"], second.get_output()["0"]["OutputGradSndNorm"]
    assert list(both[1]) == [0, 2, 4]
    assert [both[0][step] for step in (0, 2)] == [both[1][step] for step in (0, 2)]


def test_monitors_whose_hooks_come_and_go_in_turn_leave_compiling_on() -> None:
    model, other = net(), net()
    with mk.Monitor(model, {"0": [["OutputSndNorm", "linear(2)"]]}) as first:
        with mk.Monitor(other, {"0": [["OutputSndNorm", "linear(3)"]]}) as second:
            for step in range(7):
                model(torch.randn(2, 4))
                other(torch.randn(2, 4))
                first.track(step)
                second.track(step)
        first.track(7)
    assert list(first.get_output()["0"]["OutputSndNorm"]) == [0, 2, 4, 6]
    assert list(second.get_output()["0"]["OutputSndNorm"]) == [0, 3, 6]


def test_start_and_stop_again_and_again() -> None:
    model = net()
    monitor = mk.Monitor(model, {"0": ["OutputSndNorm"]})
    monitor.stop()
    for step in range(3):
        monitor.start()
        monitor.start()
        hooks = hook_count()
        model(torch.randn(2, 4))
        monitor.track(step)
        assert hook_count() == hooks
        monitor.stop()
        monitor.stop()
        assert hook_count() == 0
        model(torch.randn(2, 4))
    assert list(monitor.get_output()["0"]["OutputSndNorm"]) == [0, 1, 2]


def test_the_same_monitor_entered_twice_is_one() -> None:
    model = net()
    monitor = mk.Monitor(model, {"0": ["OutputSndNorm"]})
    with monitor, monitor:
        model(torch.randn(2, 4))
        monitor.track(0)
    assert hook_count() == 0
    assert isinstance(monitor.get_output()["0"]["OutputSndNorm"][0], float)


@pytest.mark.parametrize("named", [[0, 1, 2, 2, 3], [5, 3, 4, 1], [0, 10, 20, 30], [7, 7, 7], [0, 10**15, 2**62], [3]])
def test_any_order_of_steps(named: list[int]) -> None:
    """Each value stands at the step that `track` named; of a step that is named twice, the later value."""
    model, expected = net(), {}
    with mk.Monitor(model, {"": ["InputSndNorm", "OutputGradSndNorm"]}) as monitor:
        for step in named:
            x = torch.randn(2, 4)
            expected[step] = norm(x)
            model(x).sum().backward()
            monitor.track(step)
    values = monitor.get_output()[""]["InputSndNorm"]
    assert values == {step: about(value) for step, value in expected.items()}
    assert list(values) == sorted(values)


@pytest.mark.parametrize("metric", ["OutputSndNorm", "WeightNorm"])
def test_steps_that_jump_by_ten_from_the_first_on(metric: str) -> None:
    model = net()
    with mk.Monitor(model, {"0": [metric, "linear(20,10)"]}) as monitor:
        for step in range(10, 70, 10):
            model(torch.randn(2, 4))
            monitor.track(step)
    found = list(monitor.get_output()["0"][metric])
    assert set(found) <= {10, 30, 50}
    assert {30, 50} <= set(found)


# ------------------------------------------------------------------ backward in odd places


def test_a_backward_after_track_is_not_taken_for_the_next_step() -> None:
    model = net()
    with mk.Monitor(model, {"0": ["OutputGradSndNorm"]}) as monitor:
        loss = model(torch.randn(2, 4)).sum()
        monitor.track(0)
        loss.backward()
        monitor.track(1)
    assert monitor.get_output() == {}


def test_accumulated_backwards_are_calls_of_one_step() -> None:
    model, batches = net(), torch.randn(3, 2, 4)
    with mk.Monitor(model, {"": ["InputSndNorm"], "0": ["OutputGradSndNorm", "WeightGradNorm"]}) as monitor:
        for batch in batches:
            (model(batch).sum() / 3).backward()
        monitor.track(0)
    assert monitor.get_output()[""]["InputSndNorm"][0] == about(*batches)
    assert len(monitor.get_output()["0"]["OutputGradSndNorm"][0]) == 3
    assert monitor.get_output()["0"]["WeightGradNorm"][0] == about(model[0].weight.grad)


def test_two_backwards_through_one_graph_add_up() -> None:
    model, x = net(), torch.randn(2, 4, requires_grad=True)
    with mk.Monitor(model, {"": ["OutputGradSndNorm", "InputGradSndNorm"]}) as monitor:
        y = model(x)
        y.sum().backward(retain_graph=True)
        (3 * y).sum().backward()
        monitor.track(0)
    assert monitor.get_output()[""]["OutputGradSndNorm"][0] == about(torch.full((2, 4), 4.0))
    assert monitor.get_output()[""]["InputGradSndNorm"][0] == about(x.grad)
    assert len(list(monitor.readings())) == 2


def test_a_gradient_of_some_inputs_before_the_backward() -> None:
    model, x = net(), torch.randn(2, 4, requires_grad=True)
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        loss = model(x).square().sum()
        torch.autograd.grad(loss, [model[2].weight], retain_graph=True)
        loss.backward()
        monitor.track(0)
    assert monitor.get_output()[""]["InputGradSndNorm"][0] == about(x.grad)
    assert monitor.get_output()["0"]["InputGradSndNorm"][0] == about(x.grad)


def test_a_gradient_penalty_is_bit_equal_and_has_values() -> None:
    def weights(monitored: bool) -> list[torch.Tensor]:
        model, x = net(), torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()
        with mk.Monitor(model, {"*": [*NORMS, "WeightGradNorm"]} if monitored else {}) as monitor:
            y = model(x).square().sum()
            (slope,) = torch.autograd.grad(y, x, create_graph=True)
            (y + slope.square().sum()).backward()
            monitor.track(0)
        if monitored:
            assert monitor.get_output()["2"]["WeightGradNorm"][0] == about(model[2].weight.grad)
            assert set(monitor.get_output()["2"]) == {*NORMS, "WeightGradNorm"}
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    for one, other in zip(weights(False), weights(True), strict=True):
        assert torch.equal(one, other)


class NoGradient(torch.autograd.Function):
    """Gives no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        return None


def test_a_function_without_a_gradient() -> None:
    model = net()
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        model[2](NoGradient.apply(model[0](torch.randn(2, 4)))).sum().backward()
        monitor.track(0)
    assert sorted(monitor.get_output()["0"]) == ["InputSndNorm", "OutputSndNorm"]
    assert "OutputGradSndNorm" in monitor.get_output()["2"]


def test_a_module_that_ignores_its_input_has_no_gradient_there() -> None:
    model = nn.Sequential(Lambda(lambda m, x: m.weight, weight=nn.Parameter(torch.ones(2, 4))))
    x = torch.randn(2, 4, requires_grad=True)
    with mk.Monitor(model, {"0": NORMS}) as monitor:
        (model(x) * 2 + x).sum().backward()
        monitor.track(0)
    values = monitor.get_output()["0"]
    assert "InputGradSndNorm" not in values
    assert values["OutputGradSndNorm"][0] == about(torch.full((2, 4), 2.0))


@pytest.mark.parametrize("leaf", [True, False])
def test_a_module_that_returns_its_input(leaf: bool) -> None:
    model, x = nn.Sequential(nn.Identity()), torch.randn(2, 4, requires_grad=True)
    h = x if leaf else x * 1
    with mk.Monitor(model, {"0": NORMS}) as monitor:
        (model(h) * 3).sum().backward()
        monitor.track(0)
    gradient = torch.full((2, 4), 3.0)
    assert monitor.get_output()["0"] == {
        "InputSndNorm": {0: about(x)},
        "OutputSndNorm": {0: about(x)},
        "OutputGradSndNorm": {0: about(gradient)},
        "InputGradSndNorm": {0: about(gradient)},
    }


def test_a_metric_of_both_gradients() -> None:
    @mk.metric("Gain", needs=("BackwardInput", "BackwardOutput"))
    def gain(at_input: torch.Tensor, at_output: torch.Tensor) -> torch.Tensor:
        return at_input.norm() / at_output.norm()

    model, x = net(), torch.randn(2, 4, requires_grad=True)
    with mk.Monitor(model, {"": ["Gain", *NORMS], "2": ["Gain"]}) as monitor:
        model(x).square().sum().backward()
        monitor.track(0)
    values = monitor.get_output()[""]
    assert values["Gain"][0] == pytest.approx(values["InputGradSndNorm"][0] / values["OutputGradSndNorm"][0], rel=1e-5)
    assert values["InputGradSndNorm"][0] == about(x.grad)
    assert isinstance(monitor.get_output()["2"]["Gain"][0], float)


# ------------------------------------------------------------------ what a metric may do


def test_metrics_run_without_gradients() -> None:
    modes: list[bool] = []
    for name, needs in (("A", "ForwardInput"), ("B", "ForwardOutput"), ("C", "BackwardOutput"), ("D", "WeightGrad")):

        @mk.metric(f"Mode {name}", needs=needs)
        def mode(tensor: torch.Tensor, module: nn.Module) -> torch.Tensor:
            modes.append(torch.is_grad_enabled() or (module.weight * tensor.sum()).requires_grad)  # type: ignore[operator]
            return tensor.sum()

    model = net()
    with mk.Monitor(model, {"0": [f"Mode {name}" for name in "ABCD"]}) as monitor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of gradients that hold on to their graph
            model(torch.randn(2, 4)).sum().backward(create_graph=True)
        monitor.track(0)
        model.zero_grad()
    assert modes == [False] * 4


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_metric_that_uses_the_weight_under_checkpointing(reentrant: bool) -> None:
    @mk.metric("Again", needs="ForwardInput")
    def again(x: torch.Tensor, module: nn.Module) -> torch.Tensor:
        return F.linear(x, module.weight).square().sum()  # type: ignore[arg-type]

    model, x = net(), torch.randn(2, 4, requires_grad=True)
    with mk.Monitor(model, {"Linear": ["Again"]}) as monitor:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        monitor.track(0)
    assert isinstance(monitor.get_output()["0"]["Again"][0], float)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_a_value_that_is_part_of_the_activation_is_that_of_its_time(mode: Any) -> None:
    @mk.metric("First row", needs="ForwardOutput")
    def first(y: torch.Tensor) -> torch.Tensor:
        return y[0]

    @mk.metric("The scalar itself", needs="ForwardOutput")
    def itself(y: torch.Tensor) -> torch.Tensor:
        return y

    model, total = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), nn.Flatten(0)
    x, model.total = torch.randn(2, 4), total
    with mk.Monitor(model, {"0": ["First row"], "total": ["The scalar itself"]}) as monitor, mode():
        model[0](x)
        expected = model[0](x).clone()[0]
        model[1](model[0](x))
        scalar = total(torch.ones(()))
        scalar.mul_(5)
        monitor.track(0)
    values = monitor.get_output()["0"]["First row"][0]
    np.testing.assert_allclose(values[2], expected.detach().numpy(), rtol=1e-6)
    assert (values[2] < 0).any()
    assert list(np.ravel(monitor.get_output()["total"]["The scalar itself"][0])) == [1.0]


BAD = {
    "sparse": lambda w: w.to_sparse(),
    "meta": lambda w: w.to("meta").sum(),
    "complex": lambda w: torch.complex(w, w)[0],
    "two dimensions": lambda w: w,
    "nested": lambda w: {"a": {"b": 1.0}},
    "empty dict": lambda w: {},
    "text": lambda w: "3",
    "none inside": lambda w: {"a": None},
    "object": lambda w: object(),
    "generator": lambda w: (value for value in (1, 2)),
    "huge": lambda w: 10**400,
    "ragged": lambda w: [[1.0], [1.0, 2.0]],
    "module": lambda w: nn.Linear(1, 1),
    "two devices": lambda w: {"a": w.sum(), "b": w.sum().to("meta")},
    "recursion": lambda w: BAD["recursion"](w),
    "stop iteration": lambda w: next(iter(())),
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_is_none_is_nan_with_a_reason(name: str) -> None:
    mk.metric("Bad", needs="Weight")(BAD[name])
    model = nn.Linear(2, 2)
    with mk.Monitor(model, {"": ["Bad", "WeightNorm"]}) as monitor, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(3):
            monitor.track(step)
    assert ["Bad" in str(warning.message) for warning in said] == [True]
    values = monitor.get_output()[""]
    assert [np.isnan(value) for value in values["Bad"].values()] == [True]
    assert list(values["WeightNorm"]) == [0, 1, 2]
    assert monitor.reasons["", "Bad"].isprintable()


GOOD = {
    "whole": (lambda w: {"n": 2**24 + 1, "x": 0.1}, {"n": 2.0**24 + 1, "x": 0.1}),
    "mixed": (
        lambda w: {"n": torch.tensor(2**24 + 1), "b": w.sum() * 0 > 1, "v": torch.arange(2)},
        {"n": 2.0**24 + 1, "b": 0.0, "v": np.array([0.0, 1.0])},
    ),
    "numpy": (lambda w: np.float64(0.1), 0.1),
    "array": (lambda w: np.arange(3), np.array([0.0, 1.0, 2.0])),
    "list": (lambda w: [1, 2.5], np.array([1.0, 2.5])),
    "bool": (lambda w: True, 1.0),
    "infinite": (lambda w: float("inf"), float("inf")),
    "no number": (lambda w: float("nan"), float("nan")),
    "empty": (lambda w: torch.zeros(0), np.array([])),
}


@pytest.mark.parametrize("name", GOOD)
def test_values_of_any_type_come_as_they_are(name: str) -> None:
    made, expected = GOOD[name]
    mk.metric("Good", needs="Weight")(made)
    with mk.Monitor(nn.Linear(2, 2), {"": ["Good"]}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.track(0)
    np.testing.assert_equal(monitor.get_output()[""]["Good"][0], expected)
