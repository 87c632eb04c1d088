"""Checkpoints of torch.distributed.checkpoint: folders and shards are read by their metadata, which is not loaded."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_saver import save

import modulekg_widgets as mk

SHARD = "__0_0.distcp"
pytestmark = pytest.mark.filterwarnings("ignore")


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def saved(folder: Path, state: dict[str, Any]) -> Path:
    save(state, checkpoint_id=folder)
    return folder


def divided(folder: Path, parts: dict[str, list[tuple[str, tuple[int, ...], torch.Tensor]]], shape: torch.Size) -> Path:
    """A checkpoint of several ranks: by tensor the file, the place and the numbers of each part."""
    folder.mkdir()
    tensors, stored, content = {}, {}, {}
    for name, pieces in parts.items():
        chunks = [ChunkStorageMetadata(torch.Size(place), each.shape) for _, place, each in pieces]
        tensors[name] = TensorStorageMetadata(TensorProperties(dtype=pieces[0][2].dtype), shape, chunks)
        for at, (file, place, each) in enumerate(pieces):
            stream = io.BytesIO()
            torch.save(each, stream)
            begun = content.setdefault(file, bytearray())
            stored[MetadataIndex(name, torch.Size(place), at)] = _StorageInfo(file, len(begun), stream.tell())
            begun += stream.getvalue()
    for file, written in content.items():
        (folder / file).write_bytes(written)
    (folder / ".metadata").write_bytes(pickle.dumps(Metadata(tensors, storage_data=stored)))
    return folder


@pytest.mark.parametrize("opened", ["", SHARD, ".metadata"])
def test_all_tensors_of_a_checkpoint_are_read(tmp_path: Path, opened: str) -> None:
    model = net()
    folder = saved(tmp_path / "step-100", {"model": model.state_dict(), "step": 100})
    file = mk.open_file(folder / opened if opened else folder)
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    assert (file.format, file.title, file.warnings) == ("dcp", "step-100", ())
    assert {each.name: each.shape for each in file.contents.tensors} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }
    assert all(torch.equal(file.tensor(name), tensor) for name, tensor in state.items())
    assert mk.diff(file, model, weights=True).counts == {"renamed": 4}
    assert mk.diff(file, mk.open_file(folder), weights=True).identical
    assert mk.ModelGraph(file).payload["columns"]["params"][0] == sum(each.numel() for each in model.parameters())


def test_the_state_of_an_optimizer_is_not_counted(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.rand(1, 4)).sum().backward()
    optimizer.step()
    count = sum(each.numel() for each in model.parameters())
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert mk.open_file(saved(tmp_path / "both", whole)).hierarchy().root.parameters == count
    assert mk.open_file(saved(tmp_path / "alone", optimizer.state_dict())).hierarchy().root.parameters == 0
    named = {"state": {"state": torch.zeros(3)}, "w": torch.zeros(2)}  # no optimizer's
    assert mk.open_file(saved(tmp_path / "named", named)).hierarchy().root.parameters == 5


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_several_ranks_make_one_tensor(tmp_path: Path, dim: int) -> None:
    whole = torch.arange(28.0).reshape(7, 4)
    one, other = whole.split([4, 3], 0) if dim == 0 else whole.split([1, 3], 1)
    begin = (4, 0) if dim == 0 else (0, 1)
    pieces = [("__0_0.distcp", (0, 0), one.contiguous()), ("__1_0.distcp", begin, other.contiguous())]
    folder = divided(tmp_path / "ranks", {"w": pieces}, whole.shape)
    file, shard = mk.open_file(folder), mk.open_file(folder / "__1_0.distcp")
    assert torch.equal(file.tensor("w"), whole)
    assert torch.equal(shard.tensor("w"), whole)
    assert not file.warnings
    assert "this is one of 2 files" in shard.warnings[0]
    (folder / "__1_0.distcp").unlink()
    file = mk.open_file(folder)
    assert "__1_0.distcp" in file.warnings[0]
    with pytest.raises(mk.ModelFileError):
        file.tensor("w")


def test_a_shard_has_the_tensors_that_lie_in_it(tmp_path: Path) -> None:
    parts = {name: [(f"__{at}_0.distcp", (0,), torch.full((3,), float(at)))] for at, name in enumerate("ab")}
    folder = divided(tmp_path / "ranks", parts, torch.Size([3]))
    shard = mk.open_file(folder / "__1_0.distcp")
    assert list(shard.tensors().name) == ["b"]
    assert shard.tensor("b").tolist() == [1, 1, 1]
    assert "1 other tensors lie in the others: open the folder" in shard.warnings[0]


def test_shards_without_metadata_are_refused_by_name(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step", {"model": net().state_dict()})
    (folder / ".metadata").unlink()
    shutil.copy(folder / SHARD, tmp_path / "renamed.pt")
    for path in (folder, folder / SHARD):
        with pytest.raises(mk.ModelFileError, match=r"shard.*torch\.distributed\.checkpoint.*\.metadata"):
            mk.open_file(path)
    with pytest.raises(mk.ModelFileError, match="several archives in a row"):
        mk.open_file(tmp_path / "renamed.pt")


def test_another_shard_than_the_metadata_names_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step", {"model": net().state_dict()})
    shutil.copy(folder / SHARD, folder / "__9_9.distcp")
    with pytest.raises(mk.ModelFileError, match="has no tensors in the"):
        mk.open_file(folder / "__9_9.distcp")


class Runs:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch ran",)


def test_metadata_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = saved(tmp_path / "step", {"model": net().state_dict()})
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.planner_data = Runs()
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    file = mk.open_file(folder)
    assert len(file.tensors()) == 4
    assert "do not load it" in file.warnings[0]
    assert not (tmp_path / "ran").exists()


class GetsAttribute:
    """What calls `getattr(owner, name)` when it is loaded."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return getattr, (self.owner, self.name)


def as_python_3_11_0_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of enumerations are pickled as calls of `getattr`, as Python 3.11.0 to 3.11.3 do."""
    monkeypatch.setattr(
        _MEM_FORMAT_ENCODING, "__reduce_ex__", lambda self, protocol: (getattr, (type(self), self.name))
    )


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last, torch.preserve_format])
def test_metadata_of_early_python_3_11_has_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_format: torch.memory_format
) -> None:
    as_python_3_11_0_writes_them(monkeypatch)
    folder = saved(tmp_path / "step", {"model": net().state_dict()})
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for each in metadata.state_dict_metadata.values():
        each.properties.memory_format = memory_format
    content = pickle.dumps(metadata)
    assert b"getattr" in content
    (folder / ".metadata").write_bytes(content)
    file = mk.open_file(folder)
    assert not file.warnings
    assert "builtins.getattr" not in file.contents.classes


@pytest.mark.parametrize(
    "planned",
    [
        GetsAttribute(_MEM_FORMAT_ENCODING, "mro"),
        GetsAttribute(_MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST, "value"),
        GetsAttribute(Metadata, "TORCH_CHANNELS_LAST"),
        [getattr],
        {"a": getattr},
    ],
)
def test_another_use_of_getattr_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: Any) -> None:
    as_python_3_11_0_writes_them(monkeypatch)
    folder = saved(tmp_path / "step", {"model": net().state_dict()})
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.planner_data = planned
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    assert "builtins.getattr" in mk.open_file(folder).warnings[0]


@pytest.mark.parametrize("place", ["../other.pt", "/etc/passwd", "a\\b"])
def test_metadata_that_leads_elsewhere_is_refused(tmp_path: Path, place: str) -> None:
    tmp_path.joinpath("other.pt").write_bytes(b"x" * 99)
    chunk = ChunkStorageMetadata(torch.Size([0]), torch.Size([3]))
    tensors: dict[str, Any] = {
        "w": TensorStorageMetadata(TensorProperties(dtype=torch.float32), torch.Size([3]), [chunk])
    }
    stored = {MetadataIndex("w", torch.Size([0]), 0): _StorageInfo(place, 0, 9)}
    (tmp_path / "step").mkdir()
    (tmp_path / "step" / ".metadata").write_bytes(pickle.dumps(Metadata(tensors, storage_data=stored)))
    with pytest.raises(mk.ModelFileError, match="not a file of its folder"):
        mk.open_file(tmp_path / "step")


FORGED: dict[str, Any] = {
    "no metadata": {"a": 1},
    "a text": "text",
    "no tensors": Metadata([], storage_data={}),  # type: ignore[arg-type]
    "a name that is none": Metadata({3: BytesStorageMetadata()}, storage_data={}),  # type: ignore[dict-item]
    "a size that is none": Metadata(
        {"w": TensorStorageMetadata(TensorProperties(dtype=torch.float32), "x", [])},  # type: ignore[arg-type]
        storage_data={},
    ),
    "a dtype that is none": Metadata(
        {"w": TensorStorageMetadata(3, torch.Size([1]), [])},  # type: ignore[arg-type]
        storage_data={},
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_metadata_is_refused(tmp_path: Path, case: str) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(FORGED[case]))
    with pytest.raises(mk.ModelFileError):
        mk.open_file(tmp_path)


def test_parts_that_are_others_are_an_error(tmp_path: Path) -> None:
    one, other = [("__0_0.distcp", (0,), torch.zeros(3))], [("__0_0.distcp", (0,), torch.ones(3))]
    folder = divided(tmp_path / "ranks", {"a": one, "b": other}, torch.Size([3]))
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.state_dict_metadata["a"].chunks[0].sizes = torch.Size([2])
    metadata.state_dict_metadata["a"].size = torch.Size([2])
    metadata.state_dict_metadata["b"].size = torch.Size([1 << 40])  # which is not allocated
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    file = mk.open_file(folder)
    for name in "ab":
        with pytest.raises(mk.ModelFileError):
            file.tensor(name)
