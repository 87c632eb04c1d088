"""The statistics that metrics share, over layouts, lengths, precisions and extreme values."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from modulekg_widgets.engine.monitoring.measures.moments import MAX_COPIED_ELEMENTS, Moments
from modulekg_widgets.engine.monitoring.metric import NoValueError
from monitoring.metrics.metric_samples import array, rows

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
TOTALS = ("norm", "total", "mean", "std", "least", "greatest", "zeros")
BY_CHANNEL = ("channel_means", "channel_stds", "channel_greatest")


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


LAYOUTS: dict[str, Any] = {
    "images": lambda: (normal(4, 6, 5, 5).relu(), 1),
    "large_images": lambda: (normal(5, 7, 96, 97).relu(), 1),
    "many_pixels": lambda: (normal(2, 3, 330, 331), 1),
    "small_images": lambda: (normal(9, 80, 2, 2), 1),
    "channels_last": lambda: (normal(4, 6, 40, 40).to(memory_format=torch.channels_last), 1),
    "tokens": lambda: (normal(4, 7, 30), 2),
    "long_tokens": lambda: (normal(40, 200, 40), 2),
    "unbatched": lambda: (normal(6, 9, 9), 0),
    "one_row": lambda: (normal(12), 0),
    "number": lambda: (normal(1)[0], 0),
    "sliced": lambda: (normal(4, 9, 7, 6)[:, 2:8, ::2], 1),
    "transposed": lambda: (normal(30, 4, 7).permute(2, 1, 0), 2),
    "expanded": lambda: (normal(4, 6, 1, 1).expand(4, 6, 9, 8), 1),
    "far_from_zero": lambda: (normal(8, 5, 30, 30) * 0.1 + 300.0, 1),
}


def reference(tensor: torch.Tensor, axis: int) -> dict[str, np.ndarray]:
    values = array(tensor)
    by_row = rows(tensor, axis) if tensor.dim() else values.reshape(1, 1)
    return {
        "norm": np.sqrt((values**2).sum()),
        "total": values.sum(),
        "mean": values.mean(),
        "std": values.std(),
        "least": values.min(),
        "greatest": values.max(),
        "zeros": np.mean(values == 0),
        "channel_means": by_row.mean(0),
        "channel_stds": by_row.std(0),
        "channel_greatest": by_row.max(0),
        "rows": by_row,
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics(layout: str, dtype: torch.dtype) -> None:
    tensor, axis = LAYOUTS[layout]()
    tensor = tensor.to(dtype)
    found, expected = Moments(tensor, axis), reference(tensor, axis)
    size = np.abs(array(tensor)).mean()
    for name, wanted in expected.items():
        own = getattr(found, name)
        assert own.dim() == wanted.ndim, name
        if name != "rows":
            assert own.dtype in (torch.float32, torch.float64) or name == "channel_greatest"
        # a mean is exact to the size of what was added up
        atol = {"mean": 1e-6 * size, "channel_means": 1e-6 * size, "total": 1e-6 * size * found.count}.get(name, 0.0)
        np.testing.assert_allclose(array(own), wanted, rtol=3e-6, atol=atol + 1e-300, err_msg=name)
    assert bool(found.finite)


def test_every_layout_says_something_of_its_own() -> None:
    """Long ones are read in several pieces."""
    pieces = {layout: len(list(Moments(*LAYOUTS[layout]()).pieces())) for layout in LAYOUTS}
    parts = {layout: len(list(Moments(*LAYOUTS[layout]()).parts())) for layout in LAYOUTS}
    assert {pieces["large_images"], pieces["many_pixels"], pieces["long_tokens"]} == {3, 6}
    assert {parts["large_images"], parts["many_pixels"], parts["long_tokens"]} == {2}
    assert not Moments(*LAYOUTS["transposed"]()).tensor.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_a_deviation_far_from_zero_is_that_of_the_values(offset: float, dtype: torch.dtype) -> None:
    """Squares of the values would cancel: the mean goes out first."""
    tensor = (normal(20, 3, 40) + offset).to(dtype)
    if not torch.isfinite(tensor).all():
        tensor = (normal(20, 3, 40) + 6e4).to(dtype)
    found = Moments(tensor, 1)
    np.testing.assert_allclose(float(found.std), array(tensor).std(), rtol=1e-5, atol=0)
    np.testing.assert_allclose(array(found.channel_stds), rows(tensor, 1).std(0), rtol=1e-5, atol=0)


EXTREMES = [
    (torch.float16, 1e4),
    (torch.float16, 6.5e4),
    (torch.float16, 6e-8),
    (torch.bfloat16, 1e20),
    (torch.bfloat16, 3e38),
    (torch.bfloat16, 1e-30),
    (torch.float32, 1e20),
    (torch.float32, 3e38),
    (torch.float32, 1e-25),
    (torch.float32, 1e-38),
    (torch.float64, 1e200),
    (torch.float64, 1e-200),
]


@pytest.mark.parametrize(("dtype", "size"), EXTREMES, ids=str)
@pytest.mark.parametrize("shape", [(4, 3, 6, 6), (8, 3, 120, 90)])
def test_squares_may_leave_the_range(shape: tuple[int, ...], dtype: torch.dtype, size: float) -> None:
    tensor = (normal(*shape).clamp(-1, 1) * size).to(dtype)
    values = array(tensor) / size  # whose squares numpy can add up
    found = Moments(tensor, 1)
    np.testing.assert_allclose(float(found.norm) / size, np.linalg.norm(values), rtol=2e-6)
    assert bool(found.finite)
    if dtype is torch.float64:
        return  # beyond its range there is no wider one
    np.testing.assert_allclose(float(found.std) / size, values.std(), rtol=2e-6)
    np.testing.assert_allclose(float(found.mean) / size, values.mean(), atol=2e-6)
    by_row = np.moveaxis(values, 1, -1).reshape(-1, 3)
    expected = np.linalg.eigvalsh(np.cov(by_row.T))[::-1]
    np.testing.assert_allclose(array(found.eigenvalues) / size / size, expected, rtol=1e-5)
    np.testing.assert_allclose(array(found.channel_stds) / size, by_row.std(0), rtol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("bad", "finite"),
    [([], True), ([np.nan], False), ([np.inf], False), ([-np.inf], False), ([np.inf, -np.inf], False)],
)
@pytest.mark.parametrize("count", [7, 200_000])
@pytest.mark.parametrize("first", [None, "norm", "std", "least"])
def test_finite_is_exact(first: str | None, count: int, bad: list[float], finite: bool, dtype: torch.dtype) -> None:
    tensor = normal(count).to(dtype)
    tensor[-len(bad) :] = torch.tensor(bad, dtype=dtype) if bad else tensor
    found = Moments(tensor, 0)
    if first:
        getattr(found, first)
    assert found.finite.dtype is torch.bool
    assert found.finite.dim() == 0
    assert bool(found.finite) is finite


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sum_that_overflows_is_no_sign_of_infinity(dtype: torch.dtype) -> None:
    largest = torch.full((100,), torch.finfo(dtype).max, dtype=dtype)
    assert bool(Moments(largest, 0).finite)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_zeros_are_exact_zeros(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal
    values = torch.tensor([0.0, -0.0, tiny, -tiny, 1.0], dtype=dtype)
    assert float(Moments(values, 0).zeros) == 0.4
    assert float(Moments(torch.cat([values, values.new_tensor([float("nan")])]), 0).zeros) == 2 / 6


def test_the_norm_of_a_complex_tensor() -> None:
    tensor = torch.complex(normal(3, 4), normal(3, 4))
    for own in (tensor, tensor.conj(), tensor.to(torch.complex64)):
        np.testing.assert_allclose(float(Moments(own, 1).norm), np.linalg.norm(tensor.numpy()), rtol=1e-6)
    for name in (*TOTALS[1:], *BY_CHANNEL, "eigenvalues", "singular_values", "finite"):
        with pytest.raises(NoValueError, match="complex"):
            getattr(Moments(tensor, 1), name)


@pytest.mark.parametrize("name", [*TOTALS, *BY_CHANNEL, "eigenvalues", "singular_values", "finite"])
def test_integers_have_no_value(name: str) -> None:
    with pytest.raises(NoValueError, match="int64"):
        getattr(Moments(torch.arange(6).view(2, 3), 1), name)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4, 4)])
def test_an_empty_tensor_has_a_norm_and_nothing_else(shape: tuple[int, ...]) -> None:
    found = Moments(torch.empty(shape), min(1, len(shape) - 1))
    assert float(found.norm) == 0.0
    assert bool(found.finite)
    for name in (*TOTALS[1:], *BY_CHANNEL, "eigenvalues", "singular_values"):
        with pytest.raises(NoValueError, match="empty"):
            getattr(found, name)


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "name", [*(n for n in TOTALS if n not in ("least", "greatest")), *BY_CHANNEL, "finite", "rows", "eigenvalues"]
)
def test_each_is_made_once(name: str) -> None:
    found = Moments(normal(4, 6, 5, 5), 1)
    first = getattr(found, name)
    with Operators() as second:
        assert getattr(found, name) is first
    assert second.seen == []


def test_the_extremes_are_read_in_one_pass() -> None:
    found = Moments(normal(4, 6, 5, 5), 1)
    assert float(found.least) < 0.0
    with Operators() as second:
        assert found.greatest.dim() == 0
    assert second.seen == []


def test_a_norm_reads_a_strided_image_where_it_lies() -> None:
    tensor = normal(4, 6, 5, 5).to(memory_format=torch.channels_last)
    with Operators() as found:
        assert Moments(tensor, 1).norm.dim() == 0
    assert not {"aten.clone.default", "aten._to_copy.default", "aten.copy_.default"} & set(found.seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_device_nothing_is_looked_at(dtype: torch.dtype) -> None:
    """A meta tensor has no values: whoever looks at one raises."""
    found = Moments(torch.empty(4, 6, 5, 5, dtype=dtype, device="meta"), 1)
    for name in TOTALS:
        assert getattr(found, name).shape == (), name
    for name in BY_CHANNEL:
        assert getattr(found, name).shape == (6,), name
    assert found.finite.dtype is torch.bool
    assert found.norm.dtype is torch.float64


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_looking_the_values_are_the_same(layout: str, dtype: torch.dtype) -> None:
    """What a device computes, computed here."""
    tensor, axis = LAYOUTS[layout]()
    tensor = tensor.to(dtype)
    found, expected = Moments(tensor, axis), reference(tensor, axis)
    found._is_on_host = False
    size = np.abs(array(tensor)).mean()
    for name in (*TOTALS, *BY_CHANNEL):
        atol = 1e-6 * size * (found.count if name == "total" else 1)
        np.testing.assert_allclose(array(getattr(found, name)), expected[name], rtol=1e-5, atol=atol, err_msg=name)
    assert bool(found.finite)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scale", [1.0, 1e25, 1e-30])
def test_a_long_norm_on_a_device_is_added_up_in_float64_and_copies_nothing(dtype: torch.dtype, scale: float) -> None:
    if dtype is torch.float16 and scale != 1.0:
        scale = 1e3 if scale > 1 else 1e-4
    tensor = (torch.rand(3, MAX_COPIED_ELEMENTS, generator=torch.Generator().manual_seed(0)) * scale).to(dtype).t()
    found = Moments(tensor, 0)
    found._is_on_host = False
    assert found.norm.dtype is torch.float64
    expected = float(torch.linalg.vector_norm(tensor.double()))
    assert abs(float(found.norm) / expected - 1) < 1e-12
    empty = Moments(torch.empty(3, MAX_COPIED_ELEMENTS, dtype=dtype, device="meta"), 1)
    with Operators() as seen:
        assert empty.norm.dtype is torch.float64
    assert "aten._to_copy.default" not in seen.seen


@pytest.mark.parametrize("first", ["measures.moments", "metrics.norms"])
@pytest.mark.slow
def test_either_may_be_imported_first(first: str) -> None:
    """Metrics need moments, and moments say in the metrics' words that there is no value."""
    code = f"import modulekg_widgets.engine.monitoring.{first}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
