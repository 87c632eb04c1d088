"""A tensor whose name is no path belongs to the module that alone reads it, in every view and comparison."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

import modulekg_widgets as mk
from modulekg_widgets.engine.files.compare.comparison import FileDiff
from modulekg_widgets.engine.files.model_file import ModelFile
from modulekg_widgets.engine.files.records import (
    FileContents,
    FileModuleRecord,
    OperatorGraph,
    OperatorRecord,
    TensorRecord,
)
from modulekg_widgets.engine.files.tensor_owners import renumber_names, tensor_owners


def record(name: str, role: str | None = None) -> TensorRecord:
    return TensorRecord(name, (2, 3), "float32", 24, role=role)


def contents(
    *tensors: TensorRecord, reads: Iterable[tuple[str, str]] = (), modules: Iterable[str] = ()
) -> FileContents:
    """`reads`: modules, and the tensors that operators read in them, in turn."""
    operators = tuple(
        OperatorRecord(f"op {at}", "Add", module, ("x", *names.split()), (f"y{at}",))
        for at, (module, names) in enumerate(reads)
    )
    graph = OperatorGraph(operators, ("x",), (f"y{len(operators) - 1}",)) if operators else None
    return FileContents("test", tensors, modules=tuple(map(FileModuleRecord, modules)), graph=graph)


def owned(made: FileContents) -> list[tuple[str, str]]:
    return [(path, name) for path, name, _ in tensor_owners(made)]


def test_what_one_module_reads_is_of_it() -> None:
    made = contents(
        record("onnx::Conv_1"), record("both"), record("unread"), record("roots"), record("b.weight"),
        reads=[("a.c", "onnx::Conv_1 both"), ("b", "both b.weight"), ("", "roots"), ("a.c", "onnx::Conv_1 roots")],
    )  # fmt: skip
    assert owned(made) == [("a.c", "onnx::Conv_1"), ("", "both"), ("", "unread"), ("", "roots"), ("b", "weight")]


def test_a_name_with_a_path_stays_wherever_it_is_read() -> None:
    made = contents(record("a.weight"), record(".odd"), reads=[("b", "a.weight")])
    assert owned(made) == [("a", "weight"), ("", ".odd")]


@pytest.mark.parametrize(
    ("role", "path"), [("parameter", ""), ("buffer", ""), ("constant", "inner"), (None, "inner")], ids=str
)
def test_what_is_told_to_be_of_the_root_stays_there(role: str | None, path: str) -> None:
    assert owned(contents(record("scale", role), reads=[("inner", "scale")])) == [(path, "scale")]


def test_constants_are_last_and_go_by_paths_that_there_are() -> None:
    made = contents(
        *(record(name, "constant") for name in ("a.in", "a.b.in", "/x.0/out", "q.alone", "w.one", "d.e.in", "ab.in")),
        record("a.b.c.weight"),
        reads=[("m", "/x.0/out a.in"), ("d.e.still", "")],
        modules=["w", "a-", "abc"],
    )  # fmt: skip
    assert owned(made) == [
        ("a.b.c", "weight"), ("a", "in"), ("a.b", "in"), ("m", "/x.0/out"), ("", "q.alone"), ("w", "one"),
        ("d.e", "in"), ("", "ab.in"),
    ]  # fmt: skip


def test_no_tensor_takes_the_place_of_another() -> None:
    made = contents(record("weight"), record("a.weight"), reads=[("a", "weight a.weight")])
    assert owned(made) == [("", "weight"), ("a", "weight")]
    assert ModelFile("x", made, 0).hierarchy().root.parameters == 12


def test_paths_of_many_parts_take_no_more_than_their_length() -> None:
    deep = ".".join("a" * 200_000)
    made = contents(*(record(f"{deep}.{at}") for at in range(20)), record(f"{deep[:200_001]}.c", "constant"))
    tracemalloc.start()
    began = time.perf_counter()
    found = owned(made)
    taken, peak = time.perf_counter() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[-1] == (deep[:200_001], "c")
    assert taken < 1
    assert peak < 100 << 20


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, ModelFile]:
    """By torch's older exporter, which folds a normalisation into a weight of a name without a path."""
    pytest.importorskip("onnx")
    net = trained()
    path = tmp_path_factory.mktemp("owners") / "resnet18.onnx"
    export(net, torch.zeros(1, 3, 32, 32), path)
    return net, mk.open_file(path)


def trained() -> nn.Module:
    """With a bias of each normalisation that no other has: the exporter writes equal tensors once."""
    torch.manual_seed(0)
    net = resnet18().eval()
    for each in net.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.normal_(each.bias)
    return net


def export(net: nn.Module, taken: torch.Tensor, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (taken,), str(path), dynamo=False)


def test_layers_have_the_bytes_of_their_folded_weights(exported: tuple[nn.Module, ModelFile]) -> None:
    net, file = exported
    payload = mk.ModelGraph(file).payload
    h = file.hierarchy()
    convolutions = {path: each for path, each in net.named_modules() if isinstance(each, nn.Conv2d)}
    assert len(convolutions) == 20
    for path, each in convolutions.items():
        node = h.find(path)
        assert node is not None, path
        # the normalisation gives it a bias
        assert payload["columns"]["bytes"][node] == 4 * (each.weight.numel() + each.out_channels), path
    at = {name: payload["columns"]["bytes"][h.find(name) or 0] for name in ("layer1", "layer2", "layer3", "layer4")}
    inside = {name: sum(4 * (c.weight.numel() + c.out_channels) for p, c in convolutions.items() if p.startswith(name))
              for name in at}  # fmt: skip
    assert at == inside


def test_layers_of_other_widths_are_not_identical(exported: tuple[nn.Module, ModelFile]) -> None:
    payload = mk.ModelGraph(exported[1]).payload
    h = exported[1].hierarchy()
    entities = [payload["nodes"]["entity"][h.find(f"layer{number}") or 0] for number in (2, 3, 4)]
    assert len(set(entities)) == 3


def test_the_root_and_the_flow_have_them_where_they_are(exported: tuple[nn.Module, ModelFile]) -> None:
    payload = mk.ModelGraph(exported[1]).payload
    h, file, flow = exported[1].hierarchy(), payload["file"]["tensors"], payload["flow"]["tensors"]
    conv = h.find("layer2.0.conv1")
    here = [at for at, node in enumerate(file["node"]) if node == conv]
    assert 0 not in file["node"]
    assert [file["node"], len(here)] == [flow["node"], 2]
    names = [flow["attributes"][flow["name"][at]] for at in here]
    entity = payload["entities"]["tensors"][payload["nodes"]["entity"][conv]]
    assert names == [file["name"][at] for at in here] == [name for name, _, _ in entity]
    assert exported[1].tensor(names[0]).shape == (128, 64, 3, 3)


def test_comparisons_tell_the_module_that_a_folded_weight_is_of(
    exported: tuple[nn.Module, ModelFile], tmp_path: Path
) -> None:
    wider = trained()
    wider.get_submodule("layer4.1").conv2 = nn.Conv2d(512, 512, 1)
    export(wider, torch.zeros(1, 3, 32, 32), tmp_path / "wider.onnx")
    assert compared(exported[1], exported[1]).structure.identical
    found = compared(exported[1], mk.open_file(tmp_path / "wider.onnx")).structure
    assert not found.identical
    assert "layer4.1.conv2" in str(found)
    assert "layer3" not in str(found)  # though the exporter counts on, and gives other names


def test_names_to_compare_have_numbers_of_their_module() -> None:
    made = contents(
        *map(record, ("Conv_7", "Conv_8", "a.Conv_1", "val_3", "9", "root_1", "b.fc_2", "Conv_11")),
        reads=[("a", "Conv_7 Conv_8 val_3 9"), ("b", "Conv_11")],
    )
    assert [(path, name) for path, name, _ in renumber_names(tensor_owners(made))] == [
        ("a", "Conv"), ("a", "Conv_2"), ("a", "Conv_1"), ("a", "val"), ("a", ""), ("", "root_1"), ("b", "fc_2"),
        ("b", "Conv"),
    ]  # fmt: skip


def compared(left: ModelFile, right: ModelFile | nn.Module) -> FileDiff:
    found = mk.diff(left, right)
    assert isinstance(found, FileDiff)
    return found


class Passing(nn.Module):
    """The root has a tensor that another module alone reads."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.inner = Scaled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, self.scale)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * scale


def test_a_live_model_says_where_its_tensors_are(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    net = Passing().eval()
    export(net, torch.zeros(1, 2), tmp_path / "passing.onnx")
    file = mk.open_file(tmp_path / "passing.onnx")
    assert ("inner", "scale") in owned(file.contents)
    assert compared(file, net).structure.identical
