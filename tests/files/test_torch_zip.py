"""What torch.save, torch.jit.save and pickle write of live values is read back: names, shapes, types and every byte."""

from __future__ import annotations

import argparse
import collections
import pickle
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk
from files.nets import Lists
from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.formats.pickle import torch_checkpoint
from modulekg_widgets.engine.files.formats.pickle.torch_names import SAFE_GLOBALS, SCRIPT_TYPES
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.records import FileContents, TensorRecord
from modulekg_widgets.engine.files.source import open_source

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
LEGACY = {"_use_new_zipfile_serialization": False}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.arange(3))
        self.register_buffer("mask", torch.ones(2, dtype=torch.bool), persistent=False)
        self.blocks = nn.ModuleList([nn.ReLU(), nn.BatchNorm1d(4)])
        self.rate, self.kernel, self.kind = 0.5, (3, 3), "wide"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks[1](self.embed(x)))


def contents(path: Path) -> FileContents:
    with open_source(path) as source:
        return read_contents(source)


def saved(value: Any, path: Path, **options: Any) -> FileContents:
    torch.save(value, path, **options)
    return contents(path)


def values(record: TensorRecord, path: Path, dtype: torch.dtype) -> torch.Tensor:
    """The tensor at (offset, strides) of the file."""
    assert record.offset is not None
    if 0 in record.shape:
        return torch.empty(record.shape, dtype=dtype)
    strides = record.strides if record.strides is not None else torch.empty(record.shape, device="meta").stride()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(record.shape, strides, strict=True))
    with path.open("rb") as file:
        file.seek(record.offset)
        content = bytearray(file.read(extent * dtype.itemsize))
    return torch.frombuffer(content, dtype=dtype).as_strided(record.shape, strides)


def check(found: FileContents, state: dict[str, torch.Tensor], path: Path, exact: bool = True) -> None:
    records = {record.name: record for record in found.tensors}
    assert records.keys() == state.keys() if exact else records.keys() >= state.keys()
    for name, tensor in state.items():
        record = records[name]
        assert record.shape == tuple(tensor.shape), name
        assert record.dtype == str(tensor.dtype).removeprefix("torch."), name
        assert record.nbytes == tensor.numel() * tensor.element_size(), name
        assert (record.strides is None) == tensor.is_contiguous(), name
        live = tensor.detach().contiguous().flatten().view(torch.uint8)
        assert torch.equal(values(record, path, tensor.dtype).contiguous().flatten().view(torch.uint8), live), name


def state_of_many_kinds() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    base = torch.rand(6, 8)
    state = {
        "base": base,
        "transposed": base.t(),
        "column": base[:, 2],
        "part": base[2:5, 1:7],
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "one": torch.rand(1, 3, 1),
        "complex": torch.rand(3, dtype=torch.complex64),
    }
    for dtype in ("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool"):
        state[dtype] = torch.arange(5).to(getattr(torch, dtype))
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        state[dtype] = torch.rand(3, 2).to(getattr(torch, dtype))
    return state


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_tensors_of_every_kind(tmp_path: Path, options: dict[str, Any], protocol: int) -> None:
    state, path = state_of_many_kinds(), tmp_path / "x.pt"
    found = saved(state, path, pickle_protocol=protocol, **options)
    check(found, state, path)
    assert found.format == "checkpoint"
    assert found.warnings == ()
    offsets = {record.name: record.offset for record in found.tensors}
    assert offsets["base"] == offsets["transposed"]
    assert offsets["column"] == (offsets["base"] or 0) + 8


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_a_checkpoint_with_an_optimizer(tmp_path: Path, options: dict[str, Any]) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    checkpoint = {
        "epoch": 3, "best": np.float64(0.75), "note": None, "sizes": [1, 2], "model": net.state_dict(),
        "optimizer": optimizer.state_dict(), "args": argparse.Namespace(lr=0.1), "device": torch.device("cuda", 1),
    }  # fmt: skip
    path = tmp_path / "x.ckpt"
    found = saved(checkpoint, path, **options)
    expected = {f"model.{name}": tensor for name, tensor in net.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        expected |= {f"optimizer.state.{index}.{name}": tensor for name, tensor in state.items()}
    check(found, expected, path)
    assert found.metadata["epoch"] == 3
    assert found.metadata["best"] == 0.75
    assert found.metadata["note"] is None
    assert found.metadata["sizes"] == "[1, 2]"
    assert found.metadata["args.lr"] == 0.1
    assert found.metadata["device"] == "cuda:1"
    assert "argparse.Namespace" in found.classes
    assert "argparse.Namespace" in found.warnings[0]


def save_plainly(protocol: int) -> Callable[[Any, Path], Any]:
    return lambda value, path: path.write_bytes(pickle.dumps(value, protocol))


WAYS: dict[str, tuple[str, Callable[[Any, Path], Any]]] = {
    "zip": ("x.pth", torch.save),
    "legacy": ("x.pth", lambda value, path: torch.save(value, path, **LEGACY)),
    **{f"pickle {protocol}": ("x.pkl", save_plainly(protocol)) for protocol in (0, 2, 4, 5)},
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: torchvision.models.resnet18(num_classes=2),
    "transformer": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
    "recurrent": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "tied": Tied,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", MODELS)
def test_whole_modules(tmp_path: Path, kind: str, way: str) -> None:
    net = MODELS[kind]()
    name, save = WAYS[way]
    path = tmp_path / name
    save(net, path)
    found = contents(path)
    own = dict(net.named_parameters(remove_duplicate=False)) | dict(net.named_buffers(remove_duplicate=False))
    records = {record.name: record for record in found.tensors}
    assert {name: (record.shape, record.dtype) for name, record in records.items()} == {
        name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in own.items()
    }
    for name, record in records.items():
        assert record.role == ("parameter" if isinstance(own[name], nn.Parameter) else "buffer")
    modules = {module.path: module for module in found.modules}
    assert {path: part.class_name for path, part in modules.items()} == {
        path: f"{type(module).__module__}.{type(module).__name__}" for path, module in net.named_modules()
    }
    assert found.title == type(net).__name__
    if not way.startswith("pickle"):
        check(found, own, path)


def test_settings_are_the_plain_attributes_of_a_module(tmp_path: Path) -> None:
    found = saved(Tied(), tmp_path / "x.pt")
    modules = {module.path: module.settings for module in found.modules}
    assert modules[""] == {"rate": 0.5, "kernel": "(3, 3)", "kind": "wide"}
    assert modules["embed"]["num_embeddings"] == 5
    assert modules["embed"]["padding_idx"] is None
    records = {record.name: record for record in found.tensors}
    assert records["embed.weight"].offset == records["head.weight"].offset


def test_tensors_that_are_not_stored_as_they_are(tmp_path: Path) -> None:
    eye = torch.eye(3)
    state = {
        "sparse": eye.to_sparse(),
        "compressed": eye.to_sparse_csr(),
        "meta": torch.empty(2, 5, device="meta"),
        "conjugate": torch.rand(2, dtype=torch.complex64).conj(),
        "array": np.ones((2, 3), dtype=np.int16),
        "buffer": nn.Buffer(torch.ones(2)),
        "parameter": nn.Parameter(torch.ones(2)),
        "quantized": torch.quantize_per_tensor(eye, 0.1, 0, torch.quint8),
        "channels": torch.quantize_per_channel(eye, torch.ones(3), torch.zeros(3), 0, torch.qint8),
        "storage": torch.ones(2).untyped_storage(),
        "nested": [{"deep": (eye[0],)}],
    }
    for options in ({}, {"pickle_protocol": 5}):
        records = {record.name: record for record in saved(state, tmp_path / "x.pt", **options).tensors}
        told = {name: (record.shape, record.dtype, record.role) for name, record in records.items()}
        assert told == {
            "sparse": ((3, 3), "float32", None),
            "compressed": ((3, 3), "float32", None),
            "meta": ((2, 5), "float32", None),
            "conjugate": ((2,), "complex64", None),
            "array": ((2, 3), "int16", None),
            "buffer": ((2,), "float32", "buffer"),
            "parameter": ((2,), "float32", "parameter"),
            "quantized": ((3, 3), "quint8", None),
            "channels": ((3, 3), "qint8", None),
            "storage": ((8,), "uint8", None),
            "nested.0.deep.0": ((3,), "float32", None),
        }
        without = {name for name, record in records.items() if record.offset is None}
        assert without == {"sparse", "compressed", "meta", "conjugate", "array"}
        assert records["sparse"].nbytes == 2 * 3 * 8 + 3 * 4
        assert records["meta"].nbytes == 0
        assert records["array"].nbytes == 12


@pytest.mark.parametrize("how", ["script", "trace"])
def test_scripted_and_traced_modules(tmp_path: Path, how: str) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())).eval()
    scripted = torch.jit.script(net) if how == "script" else torch.jit.trace(net, torch.rand(1, 3, 8, 8))
    path = tmp_path / "x.pt"
    torch.jit.save(scripted, str(path))
    found = contents(path)
    assert found.format == "torchscript"
    check(found, net.state_dict(), path)
    roles = {record.name: record.role for record in found.tensors}
    assert roles == dict.fromkeys(net.state_dict(), "buffer") | dict.fromkeys(dict(net.named_parameters()), "parameter")
    classes = {module.path: module.class_name for module in found.modules}
    assert classes == {
        path: f"{type(module).__module__}.{type(module).__name__}" for path, module in net.named_modules()
    }
    if how == "script":
        settings = {module.path: module.settings for module in found.modules}
        assert settings["1"] == {
            "num_features": 4, "eps": 1e-5, "momentum": 0.1, "affine": True, "track_running_stats": True,
        }  # fmt: skip
    assert "torch.jit.load" in found.warnings[0]
    assert not any("__torch__" in name for name in found.classes)


def test_constants_and_values_of_scripted_modules(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sizes = [1, 2]
            self.parts = [torch.ones(2), torch.zeros(3)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.parts[0] + len(self.sizes)

    path = tmp_path / "x.pt"
    torch.jit.save(torch.jit.script(Odd()), str(path))
    found = contents(path)
    assert {record.name: record.shape for record in found.tensors} == {"parts.0": (2,), "parts.1": (3,)}
    table = torch.arange(6)
    torch.jit.save(torch.jit.trace(lambda x: x + table, torch.ones(6)), str(path))
    (constant,) = contents(path).tensors
    assert (constant.name, constant.shape, constant.role) == ("CONSTANTS.c0", (6,), "constant")
    assert torch.equal(values(constant, path, torch.int64), table)


def test_lists_of_scripted_modules_are_no_code_that_loading_would_run(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.jit.save(torch.jit.script(Lists()), str(path))
    found = contents(path)
    assert "torch.jit._pickle.build_intlist" in found.classes
    assert found.warnings == (torch_checkpoint.SCRIPT_WARNING,)
    for name in ("torch.jit._pickle\nbuild_intlist", "torch.jit._pickle\nos.system"):  # elsewhere they are code
        (tmp_path / "x.pkl").write_bytes(b"\x80\x02c" + name.encode() + b"\n]\x85R.")
        assert name.replace("\n", ".") in contents(tmp_path / "x.pkl").warnings[0]


def test_types_of_scripted_values_are_those_that_torch_knows() -> None:
    import torch.jit._pickle as known

    own = {name for name in vars(known) if name.startswith(("build_", "restore_"))}
    assert {f"torch.jit._pickle.{name}" for name in own} == SCRIPT_TYPES


def test_torch_export_is_read_from_the_same_extension(tmp_path: Path) -> None:
    net = nn.Linear(2, 3)
    path = tmp_path / "x.pt"
    with path.open("wb") as file:
        torch.export.save(torch.export.export(net, (torch.rand(1, 2),)), file)
    found = contents(path)
    assert found.graph is not None
    assert {record.name for record in found.tensors} == {"weight", "bias"}


def test_one_tensor_alone_has_a_name(tmp_path: Path) -> None:
    (record,) = saved(torch.rand(2), tmp_path / "x.pt").tensors
    assert record.name == "tensor"


def test_names_that_two_tensors_have_are_told_apart(tmp_path: Path) -> None:
    found = saved({"a.b": torch.ones(1), "a": {"b": torch.ones(2)}}, tmp_path / "x.pt")
    assert [record.shape for record in found.tensors] == [(1,), (2,)]
    assert len({record.name for record in found.tensors}) == 2


def test_bytes_of_the_other_order_are_not_offered_as_they_are(tmp_path: Path) -> None:
    saved({"w": torch.ones(2)}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as old, zipfile.ZipFile(tmp_path / "y.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"big" if name.endswith("byteorder") else old.read(name))
    (record,) = contents(tmp_path / "y.pt").tensors
    assert (record.shape, record.offset) == ((2,), None)


def test_what_torch_holds_to_be_safe_is_known() -> None:
    unpickler = pytest.importorskip("torch._weights_only_unpickler")
    theirs = set(unpickler._get_allowed_globals())
    assert theirs <= SAFE_GLOBALS
    assert all(not hasattr(torch, name.rpartition(".")[2]) for name in SAFE_GLOBALS - theirs if name.count(".") == 1)


def test_a_checkpoint_that_torch_loads_safely_has_no_warning(tmp_path: Path) -> None:
    state = collections.OrderedDict(a=torch.ones(2), b=nn.Parameter(torch.ones(1)), c={1, 2}, d=b"x", e=1j)
    found = saved(state, tmp_path / "x.pt")
    torch.load(tmp_path / "x.pt", weights_only=True)
    assert found.warnings == ()


@pytest.mark.parametrize("name", ["x.pt", "x.bin", "x"])
def test_other_files_have_named_errors(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    for content in (
        b"",
        b"P",
        b"<html>",
        (tmp_path / "other.npz").read_bytes(),
        b"version https://git-lfs.com/spec/v1\n",
    ):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"x"):
            contents(path)
    path.write_bytes((tmp_path / "other.npz").read_bytes())
    with pytest.raises(ModelFileError, match=r"without data.pkl.*a.npy"):
        contents(path)


def test_many_tensors_take_two_seconds_for_fifty_thousand(tmp_path: Path) -> None:
    state = {f"layers.{number // 9}.w{number % 9}": torch.zeros(1) for number in range(15_000)}
    path = tmp_path / "x.pt"
    torch.save(state, path)
    started = time.process_time()
    with open_source(path) as source:
        found = torch_checkpoint.read_any_pickle(source)
    taken = time.process_time() - started
    assert len(found.tensors) == 15_000
    assert taken < 1.5  # 0.4 on a machine that does nothing else


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters(), amsgrad=True)
    net(torch.rand(1, 8)).sum().backward()
    optimizer.step()
    return net, optimizer


NET, OPTIMIZER = trained()
NAMED = {name: {"exp_avg": each.detach().clone()} for name, each in NET.named_parameters()}
WITH_OPTIMIZER = {
    "beside the model": ({"model": NET.state_dict(), "optimizer": OPTIMIZER.state_dict()}, 72),
    "in a list": ({"state_dict": NET.state_dict(), "optimizer_states": [OPTIMIZER.state_dict()]}, 72),
    "alone": (OPTIMIZER.state_dict(), 0),
    "as objects": ({"net": NET, "optimizer": OPTIMIZER}, 72),
    "by names": ({"model": NET.state_dict(), "optim": {"state": NAMED, "param_groups": [{"lr": 1.0}]}}, 72),
    "none": ({"state": NET.state_dict(), "groups": []}, 72),
}


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
@pytest.mark.parametrize("case", WITH_OPTIMIZER)
def test_what_an_optimizer_remembers_is_no_parameter(tmp_path: Path, case: str, options: dict[str, Any]) -> None:
    state, count = WITH_OPTIMIZER[case]
    torch.save(state, tmp_path / "x.pt", **options)
    file = mk.open_file(tmp_path / "x.pt")
    assert file.hierarchy().root.parameters == count
    payload = mk.ModelGraph(file).payload
    assert payload["columns"]["params"][0] == count
    assert payload["columns"]["bytes"][0] == sum(each.nbytes for each in unique(file))


def unique(file: mk.ModelFile) -> list[TensorRecord]:
    return list({(each.offset, each.shape): each for each in file.contents.tensors}.values())
