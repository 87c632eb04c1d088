"""safetensors, one file and several: what the reader tells is what the library wrote."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModelFileError

safetensors = pytest.importorskip("safetensors.torch")


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "embed.weight": torch.rand(7, 4),
        "layers.0.norm.weight": torch.rand(4).bfloat16(),
        "layers.10.norm.weight": torch.rand(4).half(),
        "layers.2.norm.weight": torch.rand(4).double(),
        "position": torch.arange(5),
        "mask": torch.tensor([True, False]),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "eighths": torch.rand(3, 2).to(torch.float8_e4m3fn),
    }


def sharded(folder: Path, parts: int = 3) -> Path:
    """An index and its files, as transformers writes them."""
    weight_map: dict[str, str] = {}
    for part in range(parts):
        name = f"model-{part + 1:05d}-of-{parts:05d}.safetensors"
        own = {key: value for at, (key, value) in enumerate(tensors().items()) if at % parts == part}
        safetensors.save_file(own, folder / name)
        weight_map |= dict.fromkeys(own, name)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 12}, "weight_map": weight_map}))
    return path


def check(file: mk.ModelFile) -> None:
    table = file.tensors().set_index("name")
    assert set(table.index) == tensors().keys()
    for name, tensor in tensors().items():
        row = table.loc[name]
        assert row["shape"] == tuple(tensor.shape)
        assert row["dtype"] == str(tensor.dtype).removeprefix("torch.")
        assert row["bytes"] == tensor.nbytes
        found = file.tensor(name)
        assert found.dtype is tensor.dtype
        assert torch.equal(found.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_one_file(tmp_path: Path) -> None:
    safetensors.save_file(tensors(), tmp_path / "model.safetensors", metadata={"format": "pt"})
    file = mk.open_file(tmp_path / "model.safetensors")
    assert file.format == "safetensors"
    assert file.metadata == {"format": "pt"}
    assert file.graph is None
    assert file.warnings == ()
    check(file)


def test_several_files_are_one_model(tmp_path: Path) -> None:
    file = mk.open_file(sharded(tmp_path))
    check(file)
    assert list(file.tensors()["name"]) != sorted(tensors())  # the order of the index
    assert file.metadata["total_size"] == 12
    assert repr(mk.open_file(tmp_path)) == repr(file)  # the folder leads to the index


def test_siblings_that_are_numbered_stand_in_the_order_of_numbers(tmp_path: Path) -> None:
    file = mk.open_file(sharded(tmp_path))
    paths = [record.path for record in file.hierarchy()]
    assert [path for path in paths if path.startswith("layers.") and path.count(".") == 1] == [
        "layers.0",
        "layers.2",
        "layers.10",
    ]


def test_a_file_of_the_index_that_is_not_there_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    file = mk.open_file(path)
    assert len(file.tensors()) == 6
    assert "model-00002-of-00003.safetensors" in file.warnings[0]


def test_an_index_that_does_not_agree_with_its_files_is_told(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    index = json.loads(path.read_text())
    index["weight_map"]["ghost"] = "model-00001-of-00003.safetensors"
    index["weight_map"]["scalar"] = "model-00002-of-00003.safetensors"
    del index["weight_map"]["mask"]
    path.write_text(json.dumps(index))
    file = mk.open_file(path)
    told = " ".join(file.warnings)
    assert "ghost" in told
    assert "scalar" in told
    assert "mask" in told
    check(file)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "..\\x.safetensors", "..", "", "c:x", "a\0b"])
def test_an_index_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    safetensors.save_file(tensors(), tmp_path / "other.safetensors")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(ModelFileError, match="not a file of its folder"):
        mk.open_file(inner / "model.safetensors.index.json")


def test_an_index_leads_through_no_link(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    shard = tmp_path / "model-00001-of-00003.safetensors"
    shard.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", shard)
    with pytest.raises(ModelFileError, match="is a link"):
        mk.open_file(path)


def test_a_tensor_that_stands_in_two_files_is_refused(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    safetensors.save_file(tensors(), tmp_path / "model-00001-of-00003.safetensors")
    with pytest.raises(ModelFileError, match="stands in"):
        mk.open_file(path)


def header_of(content: bytes, text: str) -> bytes:
    data = content[8 + int.from_bytes(content[:8], "little") :]
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"x": 1}',
        '{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        '{"x": {"dtype": "F32", "shape": [1e3], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "x": {}}',
        '{"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "y": {"dtype": "U8", "data_offsets": [0, 4]}}',
        '{"x": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}',
        "[" * 100_000,
        '{"x": ' * 50_000,
    ],
)
def test_a_forged_header_is_refused(tmp_path: Path, text: str) -> None:
    safetensors.save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    (tmp_path / "x.safetensors").write_bytes(header_of((tmp_path / "x.safetensors").read_bytes(), text))
    with pytest.raises(ModelFileError, match=r"x\.safetensors"):
        mk.open_file(tmp_path / "x.safetensors")


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.save_file(tensors(), path)
    whole = path.read_bytes()
    draws = random.Random(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        content = bytearray(whole)
        if draws.random() < 0.3:
            del content[draws.randrange(len(content)) :]
        for _ in range(draws.randrange(4)):
            if content:
                content[draws.randrange(min(len(content), 900))] = draws.randrange(256)
        path.write_bytes(content)
        try:
            file = mk.open_file(path)
            file.hierarchy()
            outcomes["read"] += 1
        except ModelFileError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes


def test_a_tensor_is_read_from_the_file_and_changes_do_not_go_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.save_file(tensors(), path)
    before = path.read_bytes()
    file = mk.open_file(path)
    found = file.tensor("embed.weight")
    found.zero_()
    assert path.read_bytes() == before
    assert file.tensor("embed.weight").abs().sum() > 0


def test_a_file_that_changed_since_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.save_file(tensors(), path)
    file = mk.open_file(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ModelFileError, match="another size"):
        file.tensor("embed.weight")


def test_a_config_beside_it_gives_title_and_sizes(tmp_path: Path) -> None:
    safetensors.save_model(nn.Linear(2, 2), str(tmp_path / "model.safetensors"))
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "nested": {"a": 1}, "auto_map": ["x.py"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    file = mk.open_file(tmp_path / "model.safetensors")
    assert file.title == "LlamaForCausalLM"
    assert file.hierarchy().root.class_name == "LlamaForCausalLM"
    assert file.metadata["hidden_size"] == 64
    (tmp_path / "config.json").write_text("[" * 10_000)
    file = mk.open_file(tmp_path / "model.safetensors")
    assert "config.json" in file.warnings[0]
    assert file.title == "model.safetensors"


def test_a_name_of_thousands_of_parts_is_shown(tmp_path: Path) -> None:
    safetensors.save_file({"a." * 4_000 + "weight": torch.zeros(2, 2)}, tmp_path / "deep.safetensors")
    file = mk.open_file(tmp_path / "deep.safetensors")
    assert len(file.hierarchy()) < 1_000
    assert file.hierarchy().root.parameters == 4
    assert len(repr(file.hierarchy().fold())) < 200
    safetensors.save_file({"a." * 200_000 + "weight": torch.zeros(2, 2)}, tmp_path / "deeper.safetensors")
    with pytest.raises(ModelFileError, match="400,006 characters"):
        mk.open_file(tmp_path / "deeper.safetensors")


def test_what_is_no_model_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file"):
        mk.open_file(tmp_path / "absent.safetensors")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelFileError, match="an unsupported format"):
        mk.open_file(tmp_path / "notes.txt")
    with pytest.raises(ModelFileError, match="has none of"):
        mk.open_file(tmp_path)
    with pytest.raises(ModelFileError):
        mk.open_file(3.5)  # type: ignore[arg-type]
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(ModelFileError, match="not a regular file"):
        mk.open_file(tmp_path / "pipe.safetensors")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"", "empty"),
    ],
)
@pytest.mark.parametrize("name", ["m.safetensors", "m.pth", "m.onnx", "m.gguf", "model.safetensors.index.json"])
def test_a_download_that_went_wrong_is_named(name: str, content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=told):
        mk.open_file(tmp_path / name)


def test_a_path_in_the_place_of_a_model_leads_to_open_file() -> None:
    for call in (lambda: mk.hierarchy("x.pth"), lambda: mk.diff("a.pth", "b.pth"), lambda: mk.ModelGraph(Path("x"))):
        with pytest.raises(mk.ModuleKGError, match="open_file"):
            call()
