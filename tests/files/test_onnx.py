"""ONNX files that torch exports: tensors, modules and operators are those of the live model."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from files.nets import NETS, Repeats, changed, check_edges, check_tensors, class_name, outcomes, that_run
from modulekg_widgets.engine.errors import MissingPackageError
from modulekg_widgets.engine.files.formats.onnx.onnx_file import read_onnx
from modulekg_widgets.engine.files.readers import READERS, read_contents
from modulekg_widgets.engine.files.records import FileContents, ValueRecord
from modulekg_widgets.engine.files.source import open_source

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
EXPORTS = [(name, dynamo) for name in NETS for dynamo in (True, False) if dynamo or name != "branches"]


@dataclass(frozen=True)
class Exported:
    net: nn.Module
    path: Path
    contents: FileContents


def contents_of(path: Path) -> FileContents:
    assert READERS[".onnx"] is read_onnx
    with open_source(path) as source:
        return read_contents(source)


def export(net: nn.Module, arguments: tuple, path: Path, dynamo: bool, **options: object) -> FileContents:
    if dynamo:
        options = {"verbose": False, "external_data": False, "optimize": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, arguments, str(path), dynamo=dynamo, **options)  # type: ignore[arg-type]
    return contents_of(path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Exported]:
    made: dict[tuple[str, bool], Exported] = {}

    def get(name: str, dynamo: bool) -> Exported:
        if (name, dynamo) not in made:
            torch.manual_seed(0)
            build, shape = NETS[name]
            path = tmp_path_factory.mktemp("onnx") / f"{name}.onnx"
            net = build().eval()
            made[name, dynamo] = Exported(net, path, export(net, (torch.zeros(shape),), path, dynamo))
        return made[name, dynamo]

    return get


@pytest.mark.parametrize(("name", "dynamo"), EXPORTS)
@pytest.mark.slow
def test_every_edge_leads_somewhere(exported: Callable, name: str, dynamo: bool) -> None:
    contents = exported(name, dynamo).contents
    assert contents.format == "onnx"
    assert len(contents.graph.inputs) == len(contents.graph.outputs) == 1
    check_edges(contents)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit"])
def test_tensors_are_those_of_the_state_dict(exported: Callable, name: str) -> None:
    """All but the counts of batches, which no inference reads."""
    file = exported(name, True)
    state = file.net.state_dict()
    check_tensors(file.contents, state, file.path)
    unread = {key for key in state if key.endswith("num_batches_tracked")}
    assert {tensor.name for tensor in file.contents.tensors} == state.keys() - unread


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit"])
def test_the_older_exporter_folds_and_renames(exported: Callable, name: str) -> None:
    """It makes one weight of a convolution and its normalisation, under a name of its own; others keep theirs."""
    file = exported(name, False)
    state = file.net.state_dict()
    kept = [tensor for tensor in file.contents.tensors if tensor.name in state]
    check_tensors(FileContents("onnx", tuple(kept)), state, file.path)
    others = {tensor.name.partition("_")[0] for tensor in file.contents.tensors} - {
        key.partition("_")[0] for key in state
    }
    assert kept
    assert others <= {"onnx::Conv", "onnx::MatMul"}


@pytest.mark.parametrize("name", NETS)
def test_modules_have_their_paths_and_classes(exported: Callable, name: str) -> None:
    file = exported(name, True)
    live = dict(file.net.named_modules(remove_duplicate=False))
    told = {part.path: part.class_name for part in file.contents.modules}
    bodies = {"then_branch", "else_branch"} & told.keys()
    assert bool(bodies) == (name == "branches")
    assert {path: class_name(live[path]) for path in told.keys() - bodies} == {
        path: told[path] for path in told.keys() - bodies
    }
    # where code reads the weights of a module that it does not call, nothing but their names tells of it
    named_by_weights = {tensor.name.rpartition(".")[0] for tensor in file.contents.tensors} & live.keys()
    assert {operator.module for operator in file.contents.graph.operators} <= told.keys() | named_by_weights


def test_modules_that_run_are_there(exported: Callable) -> None:
    """All of them: dropout and functions that return what they get leave no operator, but resnet18 has none."""
    told = {part.path for part in exported("resnet18", True).contents.modules}
    assert told == that_run(NETS["resnet18"][0]().eval(), NETS["resnet18"][1])


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit", "shared"])
def test_names_of_the_older_exporters_nodes_tell_modules(exported: Callable, name: str) -> None:
    file = exported(name, False)
    live = {path for path, _ in file.net.named_modules(remove_duplicate=False)}
    told = {part.path for part in file.contents.modules}
    weights = {tensor.name.rpartition(".")[0] for tensor in file.contents.tensors if not tensor.name.startswith("onnx")}
    assert told <= live
    assert len(told) > len(live) // 2
    calling = {operator.module for operator in file.contents.graph.operators if operator.op in ("Gemm", "MatMul")}
    assert calling & weights
    repeated = [operator for operator in file.contents.graph.operators if operator.module == "act"]
    assert len(repeated) == (4 if name == "shared" else 0)


def test_an_operator_in_full(exported: Callable) -> None:
    contents = exported("resnet18", True).contents
    first = next(operator for operator in contents.graph.operators if operator.op == "Conv")
    assert first.module == "conv1"
    assert first.inputs[:2] == ("x", "conv1.weight")
    assert first.attributes["strides"] == "[2, 2]"
    assert first.attributes["group"] == 1
    assert first.source.startswith("conv.py:")
    assert contents.graph.values[first.outputs[0]] == ValueRecord((2, 64, 16, 16), "float32")
    assert contents.metadata["producer"] == f"pytorch {torch.__version__}"
    assert contents.metadata["opset"].startswith("ai.onnx ")


def test_shared_modules_keep_the_names_that_they_were_called_by(exported: Callable) -> None:
    file = exported("shared", True)
    state = {**file.net.state_dict(), "passing": file.net.passing}
    names = {tensor.name for tensor in file.contents.tensors}
    assert {"b.fc.weight", "tied.weight", "scale", "passing"} <= names
    assert not {"a.fc.weight", "items.0.fc.weight"} & names  # one name of each is left
    own = tuple(tensor for tensor in file.contents.tensors if tensor.name in state)
    check_tensors(FileContents("onnx", own), state, file.path)
    modules = [operator.module for operator in file.contents.graph.operators if operator.op == "Gemm"]
    assert modules == ["a.fc", "b.fc", "items.0.fc", "items.1.fc", "tied"]


def test_branches_come_before_what_chooses_between_them(exported: Callable) -> None:
    operators = exported("branches", True).contents.graph.operators
    by_op = {operator.op: operator for operator in operators}
    choice = by_op["If"]
    left, right = [operator for operator in operators if operator.op == "Gemm"]
    assert (left.module, right.module, choice.module) == ("then_branch", "else_branch", "")
    assert "left.weight" in left.inputs
    assert "right.weight" in right.inputs
    assert choice.inputs[1:] == (*left.outputs, *by_op["Add"].outputs)
    assert operators.index(choice) > operators.index(right) > operators.index(left)


def test_loops_take_what_their_bodies_take(tmp_path: Path) -> None:
    script = torch.jit.script(Repeats().eval())
    contents = export(script, (torch.zeros(2, 8), torch.tensor(3)), tmp_path / "loop.onnx", False)
    check_edges(contents)
    by_op = {operator.op: operator for operator in contents.graph.operators}
    step, loop = by_op["Gemm"], by_op["Loop"]
    assert step.module == "step"
    assert step.inputs[0] == contents.graph.inputs[0]  # what the loop begins with
    assert step.outputs[0] in loop.inputs
    assert by_op["Add"].module == "then_branch"
    assert by_op["Sub"].module == "else_branch"


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.slow
def test_sizes_that_are_not_fixed_are_texts(tmp_path: Path, dynamo: bool) -> None:
    batch = torch.export.Dim("batch")
    options = (
        {"dynamic_shapes": ({0: batch},)} if dynamo else {"dynamic_axes": {"x": {0: "batch"}}, "input_names": ["x"]}
    )
    contents = export(nn.Linear(8, 4).eval(), (torch.zeros(2, 8),), tmp_path / "dynamic.onnx", dynamo, **options)
    assert contents.graph is not None
    taken, given = contents.graph.inputs[0], contents.graph.outputs[0]
    assert contents.graph.values[taken] == ValueRecord(("batch", 8), "float32")
    assert contents.graph.values[given].shape in [("batch", 4), ("Gemmoutput_dim_0", 4)]


def test_optimised_exports_fold_normalisation(tmp_path: Path) -> None:
    """By default the exporter by torch.export folds it: weights keep names, operators those of the normalisation."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    contents = export(net, (torch.zeros(1, 3, 8, 8),), tmp_path / "folded.onnx", True, optimize=True)
    check_edges(contents)
    assert [operator.op for operator in contents.graph.operators] == ["Conv", "Relu"]
    assert "0.weight" in {tensor.name for tensor in contents.tensors}
    assert not any(tensor.name.startswith("1.running") for tensor in contents.tensors)


def test_weights_in_another_file_are_named_and_not_opened(tmp_path: Path) -> None:
    net = nn.Linear(80, 80).eval()
    path = tmp_path / "split.onnx"
    export(net, (torch.zeros(2, 80),), path, True, external_data=True)
    stored = (tmp_path / "split.onnx.data").read_bytes()
    (tmp_path / "split.onnx.data").unlink()
    contents = contents_of(path)
    by_name = {tensor.name: tensor for tensor in contents.tensors}
    assert {tensor.file for tensor in contents.tensors} == {"split.onnx.data"}
    for name, tensor in net.state_dict().items():
        record = by_name[name]
        assert record.offset is not None
        assert stored[record.offset : record.offset + record.nbytes] == tensor.numpy().tobytes()
    assert any("split.onnx.data" in warning for warning in contents.warnings)


def test_what_is_cut_off_or_changed_is_refused_or_read(exported: Callable, tmp_path: Path) -> None:
    content = exported("shared", True).path.read_bytes()
    forged = changed(content, len(content), 400, seed=1)
    assert outcomes(tmp_path / "forged.onnx", forged, contents_of) == {"read", "refused"}


def test_without_the_package_the_extra_is_named(exported: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    path = exported("shared", True).path
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"modulekg-widgets\[files\]"):
        contents_of(path)
