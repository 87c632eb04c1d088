"""Metrics that see several steps: what they keep, when they have a value, and what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS

nan, inf = float("nan"), float("inf")


def jumps(*weights: list[float], dtype: torch.dtype = torch.float32) -> list[int | None]:
    instance = METRICS["WeightParamJump"]().instance()
    found = [instance.compute(torch.tensor(weight, dtype=dtype)) for weight in weights]
    return [None if value is None else int(value) for value in found]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_jump_is_a_sign_that_differs_from_the_previous_samples(dtype: torch.dtype) -> None:
    """Taiyi compares a weight with itself, and finds 0 always."""
    samples = [1.0, -2.0, 3.0], [-1.0, -5.0, 3.0], [-1.0, 5.0, -3.0], [-9.0, 1e-3, -0.5], [1.0, -1.0, 1.0]
    assert jumps(*samples, dtype=dtype) == [None, 1, 2, 0, 3]


def test_zero_is_a_sign_of_its_own() -> None:
    assert jumps([0.0, -0.0, 1.0], [1.0, 0.0, 0.0], [-0.0, 0.0, 0.0]) == [None, 2, 1]


def test_a_weight_that_is_not_a_number_has_no_sign() -> None:
    assert jumps([nan, 1.0, inf], [nan, nan, -inf], [nan, nan, -inf]) == [None, 2, 0]


def test_a_weight_of_another_shape_begins_anew() -> None:
    assert jumps([1.0, 1.0], [1.0], [-1.0], [-1.0, 1.0], [1.0, 1.0]) == [None, None, 1, None, 1]


def test_the_copy_of_signs_takes_a_byte_each() -> None:
    instance = METRICS["WeightParamJump"]().instance()
    instance.compute(torch.randn(10, 10))
    kept = [value for value in vars(instance).values() if isinstance(value, torch.Tensor)]
    assert [value.numel() * value.element_size() for value in kept] == [100]


def test_an_update_ratio_compares_with_the_step_before() -> None:
    instance = METRICS["UpdateRatio"]().instance()
    w = torch.tensor([3.0, 4.0])
    assert instance.compute(w) is None
    instance.observe(w)
    w += torch.tensor([0.0, 8.0])  # in place, as optimizers do
    assert float(instance.compute(w)) == pytest.approx(8.0 / np.hypot(3.0, 12.0))
    assert [value for value in vars(instance).values() if isinstance(value, torch.Tensor)] == []
    assert instance.compute(w) is None
    instance.observe(w)
    instance.observe(w + 1.0)
    assert float(instance.compute(w + 1.0)) == 0.0
    instance.observe(w)
    assert instance.compute(torch.ones(3)) is None
    assert METRICS["UpdateRatio"].before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_an_update_in_half_precision_is_not_rounded_away(dtype: torch.dtype) -> None:
    instance = METRICS["UpdateRatio"]().instance()
    before = torch.full((30_000,), 200.0, dtype=dtype)
    after = before.clone()
    after[::2] += 2.0
    instance.observe(before)
    expected = np.linalg.norm((after.double() - before.double()).numpy()) / np.linalg.norm(after.double().numpy())
    assert float(instance.compute(after)) == pytest.approx(expected, rel=1e-5)


def test_what_is_kept_is_declared() -> None:
    keeping = {name for name in METRICS if METRICS[name].keeps}
    assert keeping >= {"WeightParamJump", "UpdateRatio", "LossSpike"}


def spikes(losses: list[float], **settings: Any) -> list[float | None]:
    instance = METRICS["LossSpike"](**settings).instance()
    found: list[float | None] = []
    for loss in losses:
        try:
            found.append(instance.compute(loss))
        except NoValueError:
            found.append(nan)
    return found


def test_a_spike_is_measured_by_the_losses_before_it() -> None:
    losses = [float(value) for value in np.random.default_rng(1).normal(2.0, 0.1, 120)]
    losses[80] = 9.0
    found = spikes(losses)
    assert found[:5] == [None] * 5
    for at in range(5, 120):
        before = np.array(losses[max(0, at - 50) : at])
        spread = 1.4826 * np.median(np.abs(before - np.median(before)))
        assert found[at] == pytest.approx((losses[at] - np.median(before)) / spread, rel=1e-12)
    assert found[80] == max(found[5:])  # type: ignore[type-var]
    assert found[80] > 30  # type: ignore[operator]


def test_the_window_of_losses_is_a_setting() -> None:
    losses = [float(value) for value in np.random.default_rng(2).normal(0, 1, 30)]
    before = np.array(losses[22:29])
    spread = 1.4826 * np.median(np.abs(before - np.median(before)))
    assert spikes(losses, window=7)[29] == pytest.approx((losses[29] - np.median(before)) / spread)


def test_losses_that_do_not_vary_have_no_spread() -> None:
    assert spikes([1.0] * 9 + [5.0]) == [None] * 10


def test_losses_that_are_not_finite_stay_out_of_the_window() -> None:
    regular = [1.0, 1.1, 0.9, 1.2, 1.0, 1.05]
    found = spikes([*regular, nan, inf, 2.0])
    assert np.isnan(found[6])  # type: ignore[arg-type]
    assert found[7] == inf
    assert found[8] == spikes([*regular, 2.0])[6]


def dead(threshold: float | None, *outputs: torch.Tensor, dim: int = 1) -> float:
    settings = {} if threshold is None else {"threshold": threshold}
    instance = METRICS["DeadNeuronFraction"](**settings).instance()
    for output in outputs:
        instance.update(Moments(output, dim))
    return float(instance.compute())


def test_a_dead_relu_is_seen() -> None:
    """Taiyi reports 0 for it."""
    y = torch.relu(torch.tensor([[1.0, -1.0, 2.0, -3.0]] * 6))
    assert dead(None, y) == 0.5
    assert dead(None, torch.zeros(6, 4)) == 1.0
    assert dead(None, torch.zeros(2, 3, 4, 4)) == 1.0


def test_a_neuron_that_wakes_once_in_the_window_is_alive() -> None:
    y = torch.zeros(4, 5, 3, 3)
    once = y.clone()
    once[2, 1, 0, 2] = 0.1
    assert dead(None, y, once, y) == pytest.approx(0.8)
    assert dead(None, y, y) == 1.0


def test_the_threshold_is_a_setting() -> None:
    y = torch.tensor([[0.1, 0.5, -1.0], [0.2, 0.6, -2.0]])
    assert [round(dead(threshold, y), 4) for threshold in (None, 0.2, 0.6, -1.5)] == [0.3333, 0.6667, 1.0, 0.0]


def test_a_channel_with_nan_is_not_called_dead() -> None:
    assert dead(None, torch.tensor([[nan, 0.0], [0.0, 0.0]])) == 0.5


@pytest.mark.parametrize("name", ["MeanTID", "VarTID", "MeanTIDByStep", "VarTIDByStep"])
def test_a_window_is_the_mean_over_its_steps(name: str) -> None:
    module = nn.BatchNorm1d(3)
    module.running_mean = torch.tensor([1.0, 2.0, 2.0])
    module.running_var = torch.tensor([4.0, 4.0, 1.0])
    steps = [torch.randn(20, 3, generator=torch.Generator().manual_seed(at)) for at in range(4)]
    instance = METRICS[name]().instance()
    assert instance.compute() is None
    found = []
    for x in steps:
        instance.update(Moments(x, 1), x, module=module)
        distance = x.double().mean(0) - torch.tensor([1, 2, 2]) if "Mean" in name else None
        distance = x.double().std(0) - torch.tensor([2, 2, 1]) if distance is None else distance
        found.append(float(distance.norm()) / (3.0 + 1e-8))
    assert float(instance.compute()) == pytest.approx(np.mean(found), rel=1e-5)


@pytest.mark.parametrize("name", ["MeanTID", "VarTID", "MeanTIDByStep", "VarTIDByStep"])
@pytest.mark.parametrize("module", [nn.BatchNorm1d(3, track_running_stats=False), nn.LayerNorm(3)], ids=str)
def test_without_running_statistics_there_is_no_discrepancy(name: str, module: nn.Module) -> None:
    x = torch.randn(5, 3)
    with pytest.raises(NoValueError, match=f"{type(module).__name__} keeps no running mean"):
        METRICS[name]().instance().update(Moments(x, 1), x, module=module)


WINDOWS = ["DeadNeuronFraction", "LinearDeadNeuronNum", "MeanTID", "VarTID", "MeanTIDByStep", "VarTIDByStep"]


def test_the_table_has_every_metric_of_several_steps() -> None:
    assert {name for name in METRICS if METRICS[name].multi_step and "Attention" not in METRICS[name].needs} == set(
        WINDOWS
    )


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_does_not_grow(name: str) -> None:
    """Nor does it keep a tensor of the training."""
    module, kind = nn.BatchNorm1d(6), METRICS[name]
    instance = kind().instance()
    sizes = set()
    for step in range(20):
        x = torch.randn(50, 6, requires_grad=True)
        y = module(x)
        given = {"module": module} if kind.wants_module else {}
        inputs = [Moments(y.detach(), 1), y.detach()][: len(kind.needs)]
        with torch.no_grad():
            instance.update(*inputs, **given)
        kept = [value for value in vars(instance).values() if isinstance(value, torch.Tensor)]
        assert all(value.grad_fn is None for value in kept)
        assert all(value.untyped_storage().data_ptr() != y.untyped_storage().data_ptr() for value in kept)
        if step:
            sizes.add(sum(value.untyped_storage().nbytes() for value in kept))
    assert len(sizes) == 1
    assert max(sizes) <= 64
