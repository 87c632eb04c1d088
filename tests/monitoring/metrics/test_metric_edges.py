"""What every metric makes of tensors at the edge: a value, none, or a reason; never another error, never nonsense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modulekg_widgets.engine.monitoring import metrics
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS
from monitoring.metrics.metric_references import REFERENCES
from monitoring.metrics.metric_samples import as_array

_ = metrics  # importing them registers them
nan, inf = float("nan"), float("inf")
OF_TENSORS = sorted(name for name in REFERENCES if METRICS[name].needs != ("Loss",))


def images() -> torch.Tensor:
    return torch.randn(6, 8, 5, 5, generator=torch.Generator().manual_seed(6))


def with_one(value: float) -> torch.Tensor:
    tensor = images()
    tensor[2, 3, 1, 1] = value
    return tensor


EDGES: dict[str, Any] = {
    "one_row": lambda: images()[:1, :, :1, :1],
    "one_element": lambda: images()[:1, :1, :1, :1],
    "constant": lambda: torch.full((6, 8, 5, 5), 0.3),
    "zeros": lambda: torch.zeros(6, 8, 5, 5),
    "nan": lambda: with_one(nan),
    "infinite": lambda: with_one(-inf),
    "all_nan": lambda: torch.full((6, 8, 5, 5), nan),
    "huge_half": lambda: (images().clamp(-1, 1) * 1e4).half(),
    "largest_half": lambda: images().sign().half() * 65504,
    "huge": lambda: images().clamp(-1, 1) * 1e20,
    "largest": lambda: images().sign() * 3.4e38,
    "tiny": lambda: images() * 1e-30,
    "empty": lambda: images()[:0],
    "no_channel": lambda: images()[:, :0],
    "channels_last": lambda: images().to(memory_format=torch.channels_last),
    "sliced": lambda: torch.cat([images(), images()], 1)[:, :8],
    "expanded": lambda: images()[:1].expand(6, 8, 5, 5),
}
MODULE = nn.BatchNorm2d(8)


def compute(name: str, tensor: torch.Tensor, channel_dim: int = 1) -> Any:
    """The metric's value where everything that it needs is `tensor`."""
    kind = METRICS[name]
    instance = kind().instance()
    made = []
    for need in kind.needs:
        moments = Moments(tensor, channel_dim)
        made.append(moments if need.endswith("Moments") else moments.eigenvalues if "Eig" in need else tensor)
    module = nn.Conv2d(8, 8, 1) if "Noise" in name else MODULE
    given = {"module": module} if kind.wants_module else {}
    if kind.multi_step:
        instance.update(*made, **given)
        return instance.compute()
    if kind.before:
        instance.observe(tensor.clone())
    return instance.compute(*made, **given)


def outcome(name: str, tensor: torch.Tensor) -> Any:
    try:
        return compute(name, tensor)
    except NoValueError as error:
        return error


REGULAR = ("channels_last", "sliced", "expanded", "huge_half", "huge", "tiny")
# the product of the input and the gradient leaves the range of float32
OVERFLOWING = [("GradientNoiseScale", "huge"), ("GradientNoiseScale", "tiny")]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", OF_TENSORS)
def test_a_value_or_a_reason(name: str, edge: str) -> None:
    tensor = EDGES[edge]()
    before = tensor.clone()
    found = outcome(name, tensor)
    is_regular = edge in REGULAR and (name, edge) not in OVERFLOWING
    assert torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(before))  # it is the training's own
    if isinstance(found, NoValueError):
        assert not is_regular
        assert len(str(found)) > 10
    elif found is None:
        assert name == "WeightParamJump"
    else:
        parts = list(found.values()) if isinstance(found, dict) else [found]
        assert not any(isinstance(part, torch.Tensor) and (part.dim() > 1 or part.requires_grad) for part in parts)
        values = np.concatenate([np.atleast_1d(as_array(part)) for part in parts])
        assert np.isfinite(values).all() or not is_regular


@pytest.mark.parametrize("name", OF_TENSORS)
@pytest.mark.parametrize("layout", ["channels_last", "sliced"])
def test_the_layout_in_memory_does_not_matter(layout: str, name: str) -> None:
    other = EDGES[layout]()
    assert torch.equal(other, images())
    assert not other.is_contiguous()
    found, expected = as_array(compute(name, other)), as_array(compute(name, images()))
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = (np.concatenate([np.atleast_1d(part) for part in v.values()]) for v in (found, expected))
    if expected is not None and name != "WeightParamJump":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


BEYOND = ["huge_half", "largest_half", "huge", "largest", "tiny", "zeros", "empty", "no_channel"]
NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm", "WeightNorm", "WeightGradNorm"]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(
    "edge", ["huge_half", "largest_half", "huge", "largest", "tiny", "zeros", "empty", "no_channel"]
)
def test_norms_are_right_where_squares_are_not(edge: str, name: str) -> None:
    """The norm of fp16 is not infinite; neither is that of 1e20 in fp32."""
    tensor = EDGES[edge]()
    expected = np.sqrt((tensor.double().numpy() ** 2).sum())
    assert float(compute(name, tensor)) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("edge", ["nan", "all_nan", "infinite"])
def test_norms_pass_on_what_is_not_finite(edge: str, name: str) -> None:
    assert str(float(compute(name, EDGES[edge]()))) == ("inf" if edge == "infinite" else "nan")


@pytest.mark.parametrize("name", NORMS)
def test_the_norm_of_a_number(name: str) -> None:
    assert float(compute(name, torch.tensor(-3.0), 0)) == 3.0


@pytest.mark.parametrize("name", NORMS)
def test_the_norm_of_a_complex_tensor(name: str) -> None:
    assert float(compute(name, torch.tensor([[3.0 + 4.0j, 12.0j]]))) == pytest.approx(13.0)


@pytest.mark.parametrize(
    "name", [name for name in OF_TENSORS if name not in (*NORMS, "WeightParamJump", "UpdateRatio")]
)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64], ids=str)
def test_other_metrics_have_no_value_for_what_is_not_real(dtype: torch.dtype, name: str) -> None:
    with pytest.raises(NoValueError, match=r"complex|int64"):
        compute(name, torch.ones(4, 8, 3, 3).to(dtype))


def coalescing() -> torch.Tensor:
    """A gradient as an embedding gives it: row 1 twice."""
    table = nn.Embedding(5, 2, sparse=True)
    (table(torch.tensor([1, 3, 1])) * torch.tensor([[1.0], [2.0], [4.0]])).sum().backward()
    assert table.weight.grad is not None
    assert not table.weight.grad.is_coalesced()
    return table.weight.grad


def test_repeated_rows_of_a_sparse_gradient_add_up() -> None:
    assert float(compute("WeightGradNorm", coalescing())) == pytest.approx(np.sqrt(5.0**2 * 2 + 2.0**2 * 2))
    found = compute("WeightGradHistogram", coalescing())
    assert (float(found["low"]), float(found["high"]), found["total"]) == (2.0, 5.0, 4)


def test_a_sparse_gradient_without_rows_has_the_norm_0() -> None:
    empty = torch.sparse_coo_tensor(
        torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (5, 2), check_invariants=True
    )
    assert float(compute("WeightGradNorm", empty)) == 0.0


ORIGINS = [(1.0, 1.0, 0.0), (1.0, nan, 1.0), (1.0, inf, 1.0), (nan, nan, 0.0), (-inf, 1.0, 0.0), (nan, inf, 0.0)]


@pytest.mark.parametrize(("x", "y", "expected"), ORIGINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_origin_of_what_is_not_finite(dtype: torch.dtype, x: float, y: float, expected: float) -> None:
    inputs, outputs = (Moments(with_one(value).to(dtype), 1) for value in (x, y))
    assert float(METRICS["NonFiniteOrigin"]().instance().compute(inputs, outputs)) == expected


def test_outliers_are_counted_both_ways() -> None:
    y = torch.randn(10_000, generator=torch.Generator().manual_seed(1)).clamp(-3, 3)
    y[:7], y[7:10] = 50.0, -80.0
    values = y.double().numpy()
    for sigmas in (1.0, 6.0, 20.0, 40.0):
        found = METRICS["OutlierRatio"](sigmas=sigmas).instance().compute(Moments(y, 0))
        assert float(found) == pytest.approx(np.mean(np.abs(values - values.mean()) > sigmas * values.std()))
    assert float(compute("OutlierRatio", y, 0)) == pytest.approx(1e-3)
    assert np.isnan(float(compute("OutlierRatio", with_one(nan))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_kurtosis_does_not_count_rows_without_deviation(dtype: torch.dtype) -> None:
    y = torch.randn(50, 400, generator=torch.Generator().manual_seed(1))
    y[7], y[9], y[11] = 0.0, 0.1, 3000.7
    y = y.to(dtype)
    values = np.delete(y.double().numpy(), [7, 9, 11], 0)
    centred = values - values.mean(1, keepdims=True)
    expected = np.mean((centred**4).mean(1) / (centred**2).mean(1) ** 2)
    assert 2.5 < expected < 3.5
    assert float(compute("ActivationKurtosis", y)) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(NoValueError, match="same in all channels"):
        compute("ActivationKurtosis", torch.full((5, 3), 0.7))
    assert np.isnan(float(compute("ActivationKurtosis", with_one(nan))))


# a decomposition waits for the device, whoever runs it; the noise scale has a test of its own
WAITING = ("InputCov", "RankMe", "GradientNoise")


@pytest.mark.parametrize("name", [name for name in OF_TENSORS if not name.startswith(WAITING)])
def test_no_metric_waits_for_a_device(name: str) -> None:
    """A meta tensor has no values: whoever looks at one raises."""
    module = MODULE.to("meta")
    try:
        found = compute(name, torch.empty(6, 8, 5, 5, device="meta"))
    finally:
        module.to_empty(device="cpu").reset_running_stats()
    assert found is None or isinstance(found, dict | torch.Tensor)
