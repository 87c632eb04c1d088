"""Histograms of single tensors of files: right counts, odd numbers, large and strided tensors within little memory."""

import json
import math
from pathlib import Path

import pytest
import torch

from modulekg_widgets.engine.errors import ModelFileError, UnknownNameError
from modulekg_widgets.engine.views import file_payload as module
from modulekg_widgets.engine.views.file_payload import BINS, histogram_line, tensor_histogram


def histogram(tmp_path: Path, tensor: torch.Tensor) -> dict:
    path = tmp_path / "x.pt"
    torch.save({"a": tensor}, path)
    return tensor_histogram(str(path), "a")


def test_it_counts_as_numpy_does(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    tensor = torch.randn(300, 7, generator=torch.Generator().manual_seed(1))
    found = histogram(tmp_path, tensor)
    counts, edges = numpy.histogram(tensor.double().numpy(), bins=BINS)
    assert found["counts"] == counts.tolist()
    assert found["edges"] == pytest.approx(edges.tolist())
    assert found["mean"] == pytest.approx(float(tensor.double().mean()))
    assert (found["min"], found["max"]) == (float(tensor.min()), float(tensor.max()))
    assert found["sampled"] == found["elements"] == 2100


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_every_kind_of_number_is_counted(tmp_path: Path, dtype: torch.dtype) -> None:
    found = histogram(tmp_path, torch.tensor([0, 1, 1, 0, 1]).to(dtype))
    assert (found["zeros"], found["counts"][0], found["counts"][-1], sum(found["counts"])) == (2, 2, 3, 5)


def test_numbers_that_are_none_are_counted_apart(tmp_path: Path) -> None:
    found = histogram(tmp_path, torch.tensor([math.nan, math.inf, -math.inf, 0.0, 2.0]))
    assert (found["nan"], found["zeros"], found["mean"], sum(found["counts"])) == (3, 1, 1.0, 2)
    nothing = histogram(tmp_path, torch.tensor([math.nan]))
    assert (nothing["counts"], nothing["edges"], nothing["min"], nothing["nan"]) == ([], [], None, 1)
    assert histogram(tmp_path, torch.zeros(0, 3))["counts"] == []


@pytest.mark.parametrize("values", [[3.0], [-1e308, 1e308], [1.7e308], [5e-324, 0.0], [2.0**60, 2.0**60]])
def test_ranges_of_any_width_have_edges_that_grow(tmp_path: Path, values: list[float]) -> None:
    found = histogram(tmp_path, torch.tensor(values, dtype=torch.float64))
    assert all(map(math.isfinite, found["edges"]))
    assert found["edges"] == sorted(found["edges"])
    assert sum(found["counts"]) == len(values)


def test_a_large_tensor_is_looked_at_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NUMBERS", 10_000)
    monkeypatch.setattr(module, "PIECE_NUMBERS", 500)
    found = histogram(tmp_path, torch.arange(1_000_000.0))
    assert (found["elements"], found["sampled"]) == (1_000_000, 10_000)
    assert (found["min"], found["max"]) == (0.0, 999_999.0)  # the first piece and the last
    assert found["mean"] == pytest.approx(500_000, rel=0.01)


def test_strided_tensors_are_counted_without_what_repeats(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    assert histogram(tmp_path, base.t())["counts"] == histogram(tmp_path, base)["counts"]
    assert histogram(tmp_path, base[:, ::2])["sampled"] == 6
    assert histogram(tmp_path, torch.arange(3.0).expand(1 << 40, 3))["sampled"] == 3


def test_never_more_than_a_piece_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    as_floats = module._finite
    monkeypatch.setattr(module, "PIECE_NUMBERS", 1000)
    monkeypatch.setattr(module, "_finite", lambda piece: looked_at.append(piece.numel()) or as_floats(piece))
    assert sum(histogram(tmp_path, torch.ones(25_500))["counts"]) == 25_500
    assert max(looked_at) == 1000
    assert sum(looked_at) == 2 * 25_500  # once for the range, once for the counts


def test_the_line_is_json_in_ascii_and_errors_are_named(tmp_path: Path) -> None:
    path = tmp_path / "é.pt"
    torch.save({"ü": torch.tensor([1.0, math.inf]), "c": torch.zeros(2, dtype=torch.complex64)}, path)
    line = histogram_line(str(path), "ü")
    assert line.isascii()
    assert json.loads(line)["nan"] == 1
    with pytest.raises(UnknownNameError):
        histogram_line(str(path), "u")
    with pytest.raises(ModelFileError, match="real numbers"):
        histogram_line(str(path), "c")
    with pytest.raises(ModelFileError):
        histogram_line(str(tmp_path / "none.pt"), "a")
