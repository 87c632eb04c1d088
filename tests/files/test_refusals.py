"""Files that are no models, or not whole: the message says what they are and what to do."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import MissingPackageError


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(mk.ModelFileError) as error:
        mk.open_file(path)
    assert path.name in str(error.value)
    return str(error.value)


PAGE, TEXT, UNPACK = "is a web page and not a model: download it again", "is a text", "unpack it"
INSTEAD = {
    "a.safetensors": (b"\n\n<!DOCTYPE html><html>", PAGE),
    "a.gguf": (b"\xef\xbb\xbf<html lang=en>", PAGE),
    "b.pt": (b"<!-- x --><html>", PAGE),
    "c.pt": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "is a text in XML"),
    "d.safetensors": (b'{"error":"Repository not found"}', TEXT),
    "e.gguf": (b'{"message":"Bad credentials"}', TEXT),
    "f.bin": (b"Not Found", "is a text and not a model, as servers send errors ('Not Found')"),
    "g.pth": (b"Access to model x is restricted.\nYou must be authenticated.", TEXT),
    "h.onnx": (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n", "run git lfs pull"),
    "i.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n", "run git lfs pull"),
    "j.gguf": (bytes(5_000), "download has not been finished"),
    "k.safetensors": (bytes(5_000), "download has not been finished"),
    "l.pth.tar": (gzip.compress(b"x" * 300), UNPACK),
    "model.safetensors.incomplete": (b"\x09\0\0\0\0\0\0\0{}", "a download that has not been finished"),
    "model.gguf.part": (b"abc\0\xff", "a download that has not been finished"),
}


@pytest.mark.parametrize("name", INSTEAD)
def test_what_stands_in_the_place_of_a_model_is_named(tmp_path: Path, name: str) -> None:
    content, told = INSTEAD[name]
    assert told in refused(tmp_path / name, content)


def test_an_archive_of_tar_is_to_be_unpacked(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    assert UNPACK in refused(tmp_path / "model.pth.tar", packed.getvalue())


def test_what_only_begins_so_is_read(tmp_path: Path) -> None:
    """Of a header of 123 bytes the first one is that of a brace, and 559,903 begin as gzip does."""
    from safetensors.torch import save

    for length in (123, 0x088B1F):
        content = save({"w": torch.zeros(2)})
        header = content[8 : 8 + int.from_bytes(content[:8], "little")].rstrip()
        longer = length.to_bytes(8, "little") + header.ljust(length) + bytes(8)
        (tmp_path / "a.safetensors").write_bytes(longer)
        assert len(mk.open_file(tmp_path / "a.safetensors").tensors()) == 1


def state() -> dict[str, torch.Tensor]:
    return nn.Linear(64, 64).state_dict()


def safetensors(path: Path) -> None:
    from safetensors.torch import save_file

    save_file(state(), path)


def gguf(path: Path) -> None:
    package = pytest.importorskip("gguf")
    writer = package.GGUFWriter(path, "llama")
    for name, tensor in state().items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def onnx(path: Path) -> None:
    package = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    value = [helper.make_tensor_value_info(name, 1, [1, 64]) for name in "xy"]
    weight = numpy_helper.from_array(state()["weight"].numpy(), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", value[:1], value[1:], [weight])
    package.save(helper.make_model(graph), path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "a.safetensors": safetensors,
    "a.gguf": gguf,
    "a.onnx": onnx,
    "a.pt": lambda path: torch.save(state(), path),
    "a.pth": lambda path: torch.save(state(), path, _use_new_zipfile_serialization=False),
    "a.jit": lambda path: torch.jit.save(torch.jit.trace(nn.Linear(64, 64), torch.zeros(1, 64)), path),
    "a.pt2": lambda path: torch.export.save(torch.export.export(nn.Linear(64, 64), (torch.zeros(1, 64),)), path),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_cut_off_is_to_be_got_again(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    for length in (20, 40, len(content) // 3, len(content) // 2, len(content) - 8):
        told = refused(tmp_path / f"cut_{name}", content[:length])
        assert "cut off" in told, (length, told)
        assert "download or copy it again" in told, (length, told)


def test_an_archive_of_torch_package_is_named(tmp_path: Path) -> None:
    from torch.package.package_exporter import PackageExporter

    path = tmp_path / "model.pt"
    with PackageExporter(str(path)) as exporter:
        exporter.extern("torch.**")
        exporter.save_pickle("model", "model.pkl", nn.Linear(2, 2))
    assert "torch.package.PackageImporter" in refused(path, path.read_bytes())


@pytest.mark.parametrize("ending", ["jit", "pth.tar", "pt.tar"])
def test_more_endings_are_those_of_torch(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"checkpoint.{ending}"
    torch.save({"state_dict": state(), "epoch": 3}, path)
    file = mk.open_file(path)
    assert (file.format, len(file.tensors())) == ("checkpoint", 2)
    if ending != "jit":
        torch.save(state(), path, _use_new_zipfile_serialization=False)
        assert mk.open_file(path).format == "checkpoint"


@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_an_adapter_says_which_model_it_is_for(tmp_path: Path, ending: str) -> None:
    name = "base_model.model.q.lora_A.weight"
    if ending == "safetensors":
        from safetensors.torch import save_file

        save_file({name: torch.zeros(4, 8)}, tmp_path / "adapter_model.safetensors")
    else:
        torch.save({name: torch.zeros(4, 8)}, tmp_path / "adapter_model.bin")
    (tmp_path / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "some/model", "r": 4, "target_modules": ["q"]}'
    )
    file = mk.open_file(tmp_path)
    assert (file.title, file.metadata["r"]) == ("LORA", 4)
    assert "an adapter of some/model" in file.warnings[0]
    assert file.hierarchy().root.parameters == 32


def test_a_folder_names_the_models_that_are_in_it(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "best.pt")
    with pytest.raises(mk.ModelFileError, match=r"best\.pt: pass the path of one"):
        mk.open_file(tmp_path)


def test_every_error_is_one_of_model_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    onnx(tmp_path / "a.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(mk.ModelFileError) as error:
        mk.open_file(tmp_path / "a.onnx")
    assert isinstance(error.value, MissingPackageError)
    assert isinstance(error.value, mk.ModuleKGError)
    for path in (tmp_path / "none.pt", tmp_path, 3, b"\0", None):
        with pytest.raises(mk.ModelFileError):
            mk.open_file(path)  # type: ignore[arg-type]
