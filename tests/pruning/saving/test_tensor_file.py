"""Our safetensors are the library's: each reads what the other writes, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.saving.tensor_file import FORMAT_NAMES, TensorWrite, open_tensors, write_tensors


def samples() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    found = {f"of {name}": torch.randint(0, 2, (3, 5)).to(dtype) for dtype, name in FORMAT_NAMES.items()}
    found["scalar"] = torch.tensor(7)
    found["empty"] = torch.empty(0, 4)
    found["transposed"] = torch.rand(4, 6).T
    found["channels last"] = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    found["expanded"] = torch.rand(1, 4).expand(3, 4)
    found["odd bits"] = torch.tensor([float("nan"), -0.0, float("inf")])
    found["conjugate"] = torch.rand(3, dtype=torch.complex64).conj()
    return found


def write(tensors: dict[str, torch.Tensor], path: Path) -> None:
    with path.open("wb") as file:
        every = [
            TensorWrite(name, tuple(each.shape), each.dtype, lambda each=each: each) for name, each in tensors.items()
        ]
        write_tensors(file, every, {"format": "pt"})


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = (each.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(one, other)


def test_the_library_reads_ours(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    write(samples(), tmp_path / "ours")
    found = library.load_file(tmp_path / "ours")
    assert found.keys() == samples().keys()
    assert all(each.dtype == found[name].dtype and each.shape == found[name].shape for name, each in samples().items())
    assert all(same(each, found[name]) for name, each in samples().items())


def test_we_read_the_librarys(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    library.save_file({name: each.clone().contiguous() for name, each in samples().items()}, tmp_path / "theirs")
    with open_tensors(tmp_path / "theirs") as file:
        assert file.stored.keys() == samples().keys()
        assert all(same(each, file.read(name)) for name, each in samples().items())


def test_a_dtype_that_the_format_has_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(mk.ModuleKGError, match="complex128"):
        write({"x": torch.zeros(2, dtype=torch.complex128)}, tmp_path / "x")


def test_what_changes_while_it_is_written_is_noticed(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file, pytest.raises(mk.ModuleKGError, match="changed"):
        write_tensors(file, [TensorWrite("x", (3,), torch.float32, lambda: torch.zeros(4))], {})


def test_tensors_stand_where_a_mapped_file_is_as_fast_as_memory(tmp_path: Path) -> None:
    """At multiples of 64 bytes, wherever sizes allow it: kernels give other last bits elsewhere."""
    sizes = {"bias": 3, "weight": 64, "table": 128, "odd": 5}
    write({name: torch.rand(size) for name, size in sizes.items()}, tmp_path / "file")
    with open_tensors(tmp_path / "file") as file:
        starts = {name: stored.start for name, stored in file.stored.items()}
    assert starts["weight"] % 64 == starts["table"] % 64 == 0
    assert min(starts.values()) % 64 == 0
    assert max(starts, key=starts.__getitem__) in ("bias", "odd")
