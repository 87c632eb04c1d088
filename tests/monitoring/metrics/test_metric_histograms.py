"""Histograms: counts, samples of large tensors, values that are not finite, extreme ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS, histograms

NAMES = ["WeightHistogram", "OutputHistogram", "InputHistogram", "OutputGradHistogram", "WeightGradHistogram"]


def histogram(tensor: torch.Tensor, name: str = "WeightHistogram") -> dict[str, Any]:
    kind = METRICS[name]
    given = Moments(tensor, 0) if kind.needs[0].endswith("Moments") else tensor
    found = kind().instance().compute(given)
    assert list(found) == ["low", "high", "total", "sampled", "counts"]
    assert found["counts"].shape == (64,)
    return {key: value.tolist() if isinstance(value, torch.Tensor) else value for key, value in found.items()}


def centres(counts: list[int], low: float, width: float) -> torch.Tensor:
    """So many elements in the middle of each of 64 bins, and one at each end of the range."""
    middle = np.repeat(low + (np.arange(64) + 0.5) * width, counts)
    values = np.concatenate([[low], middle, [low + 64 * width]])
    return torch.tensor(np.random.default_rng(0).permutation(values))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("even", [0, 1])
def test_counts_are_exact(even: int, dtype: torch.dtype, name: str) -> None:
    counts = [(7 * at) % 13 + even for at in range(64)]
    found = histogram(centres(counts, -32.0, 1.0).to(dtype), name)
    counts[0] += 1
    counts[-1] += 1
    assert found == {"low": -32.0, "high": 32.0, "total": sum(counts), "sampled": sum(counts), "counts": counts}


@pytest.mark.parametrize("length", [1, 2, 3, 127, 131_071, 131_072, 131_073, 300_001])
def test_every_length(length: int) -> None:
    values = torch.rand(length, generator=torch.Generator().manual_seed(1))
    found = histogram(values)
    low, high = float(values.min()), float(values.max())
    expected = np.histogram(values.double().numpy(), 64, (low, high))[0] if length > 1 else np.eye(64)[0]
    assert sum(found["counts"]) == length
    assert np.abs(np.array(found["counts"]) - expected).sum() <= 2 + 1e-4 * length  # on the border of two bins


@pytest.mark.parametrize("shape", [(1000, 1000), (1_000_001,), (512, 512, 3, 3), (1024, 1024), (4, 1_000_000)], ids=str)
def test_a_large_tensor_is_sampled_and_says_so(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    found = histogram(values)
    assert found["total"] == values.numel()
    assert found["sampled"] == sum(found["counts"])
    if values.numel() <= 1_000_000:
        assert found["sampled"] == values.numel()
    else:
        assert 150_000 < found["sampled"] <= 1_000_000
    assert (found["low"], found["high"]) == (float(values.min()), float(values.max()))
    whole = np.histogram(values.numpy(), 64, (found["low"], found["high"]))[0] / values.numel()
    sample = np.array(found["counts"]) / found["sampled"]
    assert np.abs(whole - sample).sum() < 0.02


@pytest.mark.parametrize("shape", [(1024, 1024), (512, 512, 3, 3), (1500, 1000), (2, 1_000_000)], ids=str)
def test_a_sample_prefers_no_row_and_no_column(shape: tuple[int, ...]) -> None:
    """A stride that divides a dimension would look at some of its places only."""
    for dim in range(len(shape)):
        places = torch.arange(shape[dim]).float().view([-1 if at == dim else 1 for at in range(len(shape))])
        found = histogram(places.expand(shape).contiguous())
        used = np.array(found["counts"])
        expected = np.histogram(np.arange(shape[dim]), 64, (0, shape[dim] - 1))[0] / shape[dim]
        np.testing.assert_allclose(used / found["sampled"], expected, atol=0.01)


@pytest.mark.parametrize("count", [1, 999_999, 1_000_000, 1_000_001, 1 << 20, 510_510 * 4, 1 << 25])
def test_the_step_is_prime_to_the_count(count: int) -> None:
    step = histograms.sampling_stride(count)
    assert math.gcd(step, count) == 1
    assert -(-count // step) <= 1_000_000
    assert step == 1 or count > 1_000_000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_only_finite_elements_are_counted(dtype: torch.dtype) -> None:
    counts = [3] * 64
    bad = torch.tensor([float("nan"), float("inf"), -float("inf"), float("nan")], dtype=torch.float64)
    found = histogram(torch.cat([bad, centres(counts, -32.0, 1.0), bad]).to(dtype))
    counts[0] += 1
    counts[-1] += 1
    assert found == {"low": -32.0, "high": 32.0, "total": 202, "sampled": 202, "counts": counts}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nothing_finite_is_no_value(bad: float) -> None:
    with pytest.raises(NoValueError, match="no element is finite"):
        histogram(torch.full((5,), bad))


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_an_empty_tensor_is_no_value(shape: tuple[int, ...]) -> None:
    with pytest.raises(NoValueError, match="empty"):
        histogram(torch.empty(shape))


def test_a_complex_tensor_is_no_value() -> None:
    with pytest.raises(NoValueError, match="complex"):
        histogram(torch.ones(3, dtype=torch.complex64))


@pytest.mark.parametrize("value", [0.0, -2.5, 1e30])
def test_equal_elements_are_in_the_first_bin(value: float) -> None:
    found = histogram(torch.full((7, 3), value, dtype=torch.float64))
    assert found == {"low": value, "high": value, "total": 21, "sampled": 21, "counts": [21] + [0] * 63}


@pytest.mark.parametrize(
    ("dtype", "low", "width"),
    [
        (torch.float32, -3e38, 6e38 / 64),
        (torch.float32, -1e-38, 2e-38 / 64),
        (torch.float32, -1e-20, 2e-20 / 64),
        (torch.float32, 65536.0, 1.0),
        (torch.float32, 0.0, 1e30),
        (torch.bfloat16, -(2.0**126), 2.0**120),
        (torch.float16, -65504.0, 65504 / 32),
        (torch.float64, -1e300, 2e300 / 64),
        (torch.float64, 1e10, 1e-3),
    ],
)
def test_ranges_at_the_ends(dtype: torch.dtype, low: float, width: float) -> None:
    counts = [at % 5 + 1 for at in range(64)]
    values = centres(counts, low, width).to(dtype)
    counts[0] += 1
    counts[-1] += 1
    assert histogram(values)["counts"] == counts


@pytest.mark.parametrize("layout", ["channels_last", "sliced", "transposed"])
def test_the_layout_does_not_matter(layout: str) -> None:
    values = torch.randn(6, 8, 10, 10, generator=torch.Generator().manual_seed(3))
    other = {
        "channels_last": lambda: values.to(memory_format=torch.channels_last),
        "sliced": lambda: torch.cat([values, values], 1)[:, :8],
        "transposed": lambda: values.transpose(0, 1).contiguous().transpose(0, 1),
    }[layout]()
    assert torch.equal(values, other)
    assert histogram(other, "OutputHistogram") == histogram(values, "OutputHistogram")


def test_a_sparse_gradient_counts_its_values() -> None:
    at = torch.tensor([[0, 2, 0]])
    gradient = torch.sparse_coo_tensor(
        at, torch.tensor([[1.0, 2.0], [5.0, 6.0], [3.0, 1.0]]), (4, 2), check_invariants=True
    )
    found = histogram(gradient, "WeightGradHistogram")
    assert (found["low"], found["high"], found["total"]) == (3.0, 6.0, 4)
    assert [at for at, count in enumerate(found["counts"]) for _ in range(count)] == [0, 21, 42, 63]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("bad", [[], [float("nan"), float("inf")]])
def test_what_a_device_computes_is_the_same(bad: list[float], dtype: torch.dtype) -> None:
    counts = [(7 * at) % 13 for at in range(64)]
    values = torch.cat([centres(counts, -32.0, 1.0), torch.tensor(bad, dtype=torch.float64)]).to(dtype)
    own = Moments(values, 0)
    low, high, found = histograms._on_device(own, own.flat)
    counts[0] += 1
    counts[-1] += 1
    assert (float(low), float(high), found.tolist()) == (-32.0, 32.0, counts)


def test_a_device_counts_whole_numbers_where_algorithms_are_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of floating ones torch has no such algorithm for a GPU, and raises."""
    plain = torch.histc

    def histc(x: torch.Tensor, *args: int) -> torch.Tensor:
        assert x.dtype is torch.int32
        return plain(x.float(), *args).to(x.dtype)

    counts = [(7 * at) % 13 for at in range(64)]
    bad = torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=torch.float64)
    own = Moments(torch.cat([centres(counts, -32.0, 1.0), bad]), 0)
    expected = histograms._on_device(own, own.flat)
    monkeypatch.setattr(torch, "histc", histc)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    found = histograms._on_device(own, own.flat)
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_a_device_is_not_waited_for() -> None:
    found = METRICS["OutputHistogram"]().instance().compute(Moments(torch.empty(8, 5, device="meta"), 1))
    assert found["counts"].shape == (64,)
    assert found["total"] == 40


def test_equal_elements_on_a_device() -> None:
    own = Moments(torch.full((9,), 2.0), 0)
    assert histograms._on_device(own, own.flat)[2].tolist() == [9.0] + [0.0] * 63
