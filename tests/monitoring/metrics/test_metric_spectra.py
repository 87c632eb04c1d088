"""Spectra: rows and channels of convolutions, rank, failing decompositions, small singular values, autocast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modulekg_widgets.engine.adapters import channel_dim
from modulekg_widgets.engine.monitoring.measures.moments import Moments
from modulekg_widgets.engine.monitoring.metric import NoValueError
from modulekg_widgets.engine.monitoring.metrics import METRICS
from monitoring.metrics.metric_samples import array, rows


def metric(name: str, *needed: Any) -> Any:
    return METRICS[name]().instance().compute(*needed)


def normal(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def covariance_spectrum(values: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(np.atleast_2d(np.cov(values.T)))[::-1]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_covariance_of_a_convolution_does_not_mix_channels(memory_format: torch.memory_format) -> None:
    """Taiyi's reshape of (N, C, H, W) to (-1, C) does: channels of known deviation tell."""
    deviations = torch.tensor([8.0, 4.0, 2.0, 1.0])
    x = (normal(32, 4, 16, 16) * deviations[:, None, None]).contiguous(memory_format=memory_format)
    found = Moments(x, channel_dim(nn.Conv2d(4, 2, 3), 4)).eigenvalues
    np.testing.assert_allclose(array(found), [64, 16, 4, 1], rtol=0.1)
    np.testing.assert_allclose(array(found), covariance_spectrum(rows(x, 1)), rtol=1e-5)
    mixed = covariance_spectrum(array(x).reshape(-1, 4))
    assert mixed[0] < 40  # what the wrong reshape would give


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((700, 200), 1),  # several blocks
        ((90, 130, 8, 8), 1),  # several parts of the tensor
        ((3, 2, 300, 310), 1),  # few channels, many positions
        ((30, 200), 1),  # fewer rows than channels
        ((200, 200), 1),  # as many
        ((2, 50), 1),
        ((5, 300, 2, 2), 1),
        ((50, 1), 1),  # one channel
        ((6, 9, 70), 2),
        ((12, 5, 5), 0),  # unbatched
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_spectra_of_every_shape(shape: tuple[int, ...], axis: int, dtype: torch.dtype) -> None:
    x = (normal(*shape) + 0.5).to(dtype)
    expected = covariance_spectrum(rows(x, axis)).clip(0)
    found = array(Moments(x, axis).eigenvalues)
    assert found.shape == (shape[axis],)
    assert np.all(np.diff(found) <= 0)
    assert found[-1] >= 0.0
    close = 1e-12 if dtype is torch.float64 else 3e-6
    np.testing.assert_allclose(found, expected, rtol=close, atol=close * expected[0])
    singular = np.linalg.svd(rows(x, axis), compute_uv=False)
    found = array(Moments(x, axis).singular_values)
    np.testing.assert_allclose(found, singular, rtol=1e-9, atol=1e-7 * singular[0])


def test_few_rows_leave_exact_zeros() -> None:
    found = Moments(normal(10, 40), 1).eigenvalues
    assert (found == 0).tolist() == [False] * 9 + [True] * 31


@pytest.mark.parametrize("channels", [12, 150])  # in float64, and in float32
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_dead_and_constant_channels_have_the_eigenvalue_zero(dtype: torch.dtype, channels: int) -> None:
    x = normal(1000, channels).to(dtype)
    x[:, 3] = 0.0
    x[:, 7] = 0.1
    x[:, 8] = -3000.3
    found = Moments(x, 1).eigenvalues
    assert (found == 0).tolist() == [False] * (channels - 3) + [True] * 3
    expected = covariance_spectrum(rows(x, 1))
    np.testing.assert_allclose(array(found)[:-3], expected[:-3], rtol=1e-5)
    with pytest.raises(NoValueError, match=f"rank {channels - 3}, and {channels} channels"):
        metric("InputCovCondition", found)


def test_an_input_that_is_constant_has_no_direction() -> None:
    found = Moments(torch.full((8, 3, 4, 4), 0.7), 1).eigenvalues
    assert found.tolist() == [0.0, 0.0, 0.0]
    assert float(metric("InputCovMaxEig", found)) == 0.0
    with pytest.raises(NoValueError, match="rank 0"):
        metric("InputCovCondition", found)
    with pytest.raises(NoValueError, match="constant"):
        metric("InputCovStableRank", found)


@pytest.mark.parametrize(
    ("size", "places"),
    [(1, (0, 0, 0, 0)), (2, (0, 1, 1, 1)), (5, (1, 2, 4, 4)), (10, (2, 5, 8, 9)), (33, (6, 16, 26, 32))],
)
def test_condition_numbers_take_the_place_in_the_spectrum(size: int, places: tuple[int, ...]) -> None:
    spectrum = torch.linspace(100.0, 1.0, size, dtype=torch.float64)
    for name, at in zip(("20", "50", "80", ""), places, strict=True):
        found = float(metric(f"InputCovCondition{name}", spectrum))
        assert found == pytest.approx(100.0 / (float(spectrum[at]) + 1e-7), rel=1e-12)


@pytest.mark.parametrize("shape", [(1, 5), (5,), (1, 3, 1, 1)])
def test_one_row_has_no_covariance(shape: tuple[int, ...]) -> None:
    x = Moments(normal(*shape), 1 if len(shape) > 1 else 0)
    with pytest.raises(NoValueError, match="two rows"):
        _ = x.eigenvalues
    assert float(metric("RankMe", x)) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", [(40, 6), (4, 60)])
def test_what_is_not_finite_has_no_spectrum(shape: tuple[int, int], bad: float) -> None:
    x = normal(*shape)
    x[2, 3] = bad
    for name in ("eigenvalues", "singular_values"):
        with pytest.raises(NoValueError, match="NaN or infinite"):
            getattr(Moments(x, 1), name)


@pytest.mark.parametrize("shape", [(40, 6), (4, 60)])
def test_a_failed_decomposition_is_no_value(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Taiyi makes up eigenvalues then."""

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise torch.linalg.LinAlgError("linalg.eigvalsh: the algorithm failed to converge (error code: 7)\nmore")

    monkeypatch.setattr(torch.linalg, "eigvalsh", failing)
    x = Moments(normal(*shape), 1)
    with pytest.raises(NoValueError, match=r"not found: .*error code: 7\)$"):
        _ = x.eigenvalues
    with pytest.raises(NoValueError, match="not found"):
        metric("RankMe", x)


def with_singular_values(values: np.ndarray, count: int, channels: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    left = np.linalg.qr(generator.standard_normal((count, len(values))))[0]
    right = np.linalg.qr(generator.standard_normal((channels, len(values))))[0]
    return (left * values) @ right.T


def rank_me(values: np.ndarray) -> float:
    p = values / values.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))


@pytest.mark.parametrize("shape", [(300, 64), (64, 300), (128, 128)], ids=str)
@pytest.mark.parametrize(
    "spectrum",
    [
        np.geomspace(1, 1e-4, 64),
        np.geomspace(1e3, 1e-5, 64),
        np.r_[1.0, np.full(63, 1e-6)],
        np.r_[1.0, np.full(63, 1e-7)],
        np.ones(64),
        np.r_[np.ones(3), np.zeros(61)],
    ],
    ids=["four", "eight", "ones_in_a_million", "ones_in_ten_million", "full", "three"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rank_me_sees_small_singular_values(dtype: torch.dtype, spectrum: np.ndarray, shape: tuple[int, int]) -> None:
    y = torch.tensor(with_singular_values(spectrum, *shape)).to(dtype)
    expected = rank_me(np.linalg.svd(array(y), compute_uv=False))
    np.testing.assert_allclose(float(metric("RankMe", Moments(y, 1))), expected, rtol=1e-4)
    if dtype is torch.float64 and len(spectrum) == min(shape):
        np.testing.assert_allclose(expected, rank_me(spectrum), rtol=1e-6)


def test_rank_me_of_zeros_has_no_value() -> None:
    with pytest.raises(NoValueError, match="zero everywhere"):
        metric("RankMe", Moments(torch.zeros(6, 4), 1))


def test_rank_me_counts_directions_not_centred() -> None:
    """A constant output is one direction."""
    assert float(metric("RankMe", Moments(torch.ones(50, 20), 1))) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60), (300, 200)], ids=str)
def test_autocast_does_not_round_spectra(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    outside = Moments(x, 1).eigenvalues, Moments(x, 1).singular_values
    with torch.autocast("cpu", torch.bfloat16):
        assert (x @ x.t()).dtype is torch.bfloat16
        inside = Moments(x, 1).eigenvalues, Moments(x, 1).singular_values
    assert torch.equal(outside[0], inside[0])
    assert torch.equal(outside[1], inside[1])
