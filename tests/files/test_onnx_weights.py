"""Weights of ONNX files: which operators they draw into their modules, which tensors count, and their values."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from files.golden_files import FOLDER
from modulekg_widgets.engine.files.compare.comparison import FileDiff
from modulekg_widgets.engine.files.model_file import ModelFile

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WEIGHT = np.arange(4096, dtype=np.float32).reshape(64, 64)


class Folded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.relu(self.bn1(self.conv1(x))).mean((2, 3)))


class Borrowed(nn.Module):
    """A linear layer that is never called: its weights are read by the code around it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(nn.functional.linear(x, self.fc.weight, self.fc.bias))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.act, self.head = nn.Embedding(6, 4), nn.ReLU(), nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.embed(x)))


def exported(net: nn.Module, taken: torch.Tensor, path: Path, **options: Any) -> ModelFile:
    pytest.importorskip("onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), (taken,), str(path), verbose=False, dynamo=True, external_data=False, **options)
    return mk.open_file(path)


def modules(file: ModelFile) -> list[tuple[str, str]]:
    assert file.contents.graph is not None
    return [(each.op, each.module) for each in file.contents.graph.operators]


def paths(file: ModelFile) -> set[str]:
    return {each.path for each in file.hierarchy()}


def hand_made(path: Path, nodes: list, tensors: list = (), **values: Any) -> ModelFile:  # type: ignore[assignment]
    value = helper.make_tensor_value_info
    shape = values.get("shape", [1, 64])
    taken, given = ([value(name, TensorProto.FLOAT, shape)] for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", taken, given, list(tensors))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
    return mk.open_file(path)


def parameters(file: ModelFile) -> int:
    return file.hierarchy().root.parameters


def compared(left: ModelFile, right: ModelFile | nn.Module) -> FileDiff:
    found = mk.diff(left, right, weights=True)
    assert isinstance(found, FileDiff)
    return found


@pytest.mark.slow
def test_a_folded_convolution_has_its_operator_and_the_normalisation_none(tmp_path: Path) -> None:
    file = exported(Folded(), torch.zeros(1, 3, 8, 8), tmp_path / "folded.onnx")
    assert modules(file) == [("Conv", "conv1"), ("Relu", "relu"), ("ReduceMean", ""), ("Gemm", "fc")]
    assert paths(file) == {"", "conv1", "relu", "fc"}
    flow = mk.ModelGraph(file).payload["flow"]
    h = file.hierarchy()
    first = flow["steps"]["call"][0]
    assert flow["calls"]["node"][first] == h.find("conv1")
    assert flow["calls"]["inputs"][first] == [flow["inputs"][0][1]]


@pytest.mark.slow
def test_weights_that_the_code_around_reads_draw_its_operator(tmp_path: Path) -> None:
    file = exported(Borrowed(), torch.zeros(2, 4), tmp_path / "borrowed.onnx")
    assert modules(file) == [("Gemm", "fc"), ("Relu", "act")]


@pytest.mark.slow
def test_tied_weights_draw_nothing(tmp_path: Path) -> None:
    file = exported(Tied(), torch.zeros(2, 3, dtype=torch.long), tmp_path / "tied.onnx")
    told = modules(file)
    assert told[0] == ("Gather", "embed")
    assert told[-1] == ("MatMul", "head")


def test_weights_that_several_modules_share_draw_nothing() -> None:
    from modulekg_widgets.engine.files.formats.onnx.onnx_modules import ModuleSource, assign_modules_by_weights
    from modulekg_widgets.engine.files.records import OperatorRecord, TensorRecord

    weight = TensorRecord("shared.weight", (4, 4), "float32", 64)
    operators = [OperatorRecord(f"op {at}", "MatMul", path, ("x", "shared.weight"), (f"y{at}",))
                 for at, path in enumerate(("encoder", "decoder"))]  # fmt: skip
    told = [ModuleSource.EXPLICIT] * 2
    assert [each.module for each in assign_modules_by_weights(operators, told, [weight], ["y1"])] == [
        "encoder",
        "decoder",
    ]
    assert [each.module for each in assign_modules_by_weights(operators[:1], told[:1], [weight], [])] == ["shared"]
    enclosing = assign_modules_by_weights(operators[:1], [ModuleSource.ENCLOSING], [weight], [])
    assert [each.module for each in enclosing] == ["encoder"]


def test_weights_count_wherever_they_are_kept(tmp_path: Path) -> None:
    multiply = helper.make_node("MatMul", ["x", "w"], ["y"])
    weight = numpy_helper.from_array(WEIGHT, "w")
    typed = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], WEIGHT.ravel())
    constant = helper.make_node("Constant", [], ["w"], value=weight)
    files = [
        hand_made(tmp_path / "raw.onnx", [multiply], [weight]),
        hand_made(tmp_path / "typed.onnx", [multiply], [typed]),
        hand_made(tmp_path / "constant.onnx", [constant, multiply]),
    ]
    assert [parameters(file) for file in files] == [4096] * 3
    for one in files:
        assert torch.equal(one.tensor("w"), torch.from_numpy(WEIGHT))
        assert all(compared(one, other).identical for other in files), one


def test_masks_and_indices_in_constants_do_not_count(tmp_path: Path) -> None:
    table = numpy_helper.from_array(np.arange(64), "t")
    mask = numpy_helper.from_array(np.ones((64, 64), bool), "m")
    nodes = [
        helper.make_node("Constant", [], ["table"], value=table),
        helper.make_node("Constant", [], ["mask"], value=mask),
        helper.make_node("Gather", ["x", "table"], ["g"], axis=1),
        helper.make_node("Where", ["mask", "g", "x"], ["y"]),
    ]
    file = hand_made(tmp_path / "indices.onnx", nodes)
    assert parameters(file) == 0
    assert {each.role for each in file.contents.tensors} == {"constant"}


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.slow
def test_int8_weights_count_and_their_scales_do_not(tmp_path: Path, dynamo: bool) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    plain, small = tmp_path / "f32.onnx", tmp_path / "int8.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), (torch.randn(1, 64),), str(plain), dynamo=dynamo, verbose=False)
        quantization.quantize_dynamic(plain, small)
    file = mk.open_file(small)
    count = sum(each.numel() for each in net.parameters())
    assert (parameters(mk.open_file(plain)), parameters(file)) == (count, count)
    assert {path for op, path in modules(file) if op == "MatMulInteger"} == {"0", "2"}
    assert compared(file, mk.open_file(small)).identical


def test_quantised_weights_are_told_by_the_operators_that_read_them(tmp_path: Path) -> None:
    def tensor(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor(name, kind, shape, [1] * max(1, int(np.prod(shape))))

    names = ["x_scale", "x_zero", "a.w", "a.w_scale", "a.w_zero", "y_scale", "y_zero", "a.bias"]
    quantized = helper.make_node("QLinearConv", ["x", *names], ["c"])
    turned = helper.make_node("Transpose", ["b.w"], ["t"])
    back = helper.make_node("DequantizeLinear", ["t", "b.scale", ""], ["d"])
    product = helper.make_node("MatMul", ["c", "d"], ["y"])
    tensors = [
        *(tensor(name, TensorProto.FLOAT) for name in ("x_scale", "a.w_scale", "y_scale")),
        *(tensor(name, TensorProto.UINT8) for name in ("x_zero", "a.w_zero", "y_zero")),
        tensor("a.w", TensorProto.INT8, 4, 3, 3, 3), tensor("a.bias", TensorProto.INT32, 4),
        tensor("b.w", TensorProto.UINT8, 5, 7), tensor("b.scale", TensorProto.FLOAT, 5),
        tensor("unread", TensorProto.INT8, 9),
    ]  # fmt: skip
    file = hand_made(tmp_path / "q.onnx", [quantized, turned, back, product], tensors)
    assert parameters(file) == 4 * 27 + 4 + 35
    assert {each.name for each in file.contents.tensors if each.role == "buffer"} == {*names, "b.scale"} - {
        "a.w", "a.bias"
    }  # fmt: skip
    assert dict(modules(file)) == {"QLinearConv": "a", "Transpose": "b", "DequantizeLinear": "b", "MatMul": ""}


TYPED = {
    "FLOAT": 1.5, "DOUBLE": 2.5, "INT8": -3, "UINT8": 200, "INT16": -300, "UINT16": 60_000, "INT32": -70_000,
    "INT64": -(1 << 40), "UINT32": 4_000_000_000, "UINT64": 1 << 60, "BOOL": 1, "FLOAT16": 1.5, "BFLOAT16": -2.0,
    "FLOAT8E4M3FN": 1.5, "COMPLEX64": 1 + 2j, "COMPLEX128": 1 - 2j,
}  # fmt: skip


@pytest.mark.parametrize("shape", [[], [3], [40, 2]], ids=str)
def test_numbers_in_lists_of_their_type_are_those_of_raw_bytes(tmp_path: Path, shape: list[int]) -> None:
    count = int(np.prod(shape))
    typed = [helper.make_tensor(kind, getattr(TensorProto, kind), shape, [value] * count)
             for kind, value in TYPED.items()]  # fmt: skip
    raw = [numpy_helper.from_array(numpy_helper.to_array(each), each.name) for each in typed]
    relu = helper.make_node("Relu", ["x"], ["y"])
    one, other = hand_made(tmp_path / "typed.onnx", [relu], typed), hand_made(tmp_path / "raw.onnx", [relu], raw)
    assert compared(one, other).identical, str(compared(one, other))
    for kind, value in TYPED.items():
        assert one.tensor(kind).shape == torch.Size(shape)
        assert one.tensor(kind).flatten()[0].item() == value, kind


def test_numbers_that_are_fewer_than_a_shape_takes_are_an_error(tmp_path: Path) -> None:
    forged = TensorProto(name="w", data_type=TensorProto.INT8, dims=[40], int32_data=[1] * 39)
    file = hand_made(tmp_path / "forged.onnx", [helper.make_node("Relu", ["x"], ["y"])], [forged])
    with pytest.raises(mk.ModelFileError, match="39 numbers"):
        file.tensor("w")


def test_what_cannot_be_read_is_the_same_in_a_copy(tmp_path: Path) -> None:
    packed = helper.make_tensor("w", TensorProto.INT4, [40, 2], [3] * 80)
    relu = helper.make_node("Relu", ["x"], ["y"])
    file = hand_made(tmp_path / "a.onnx", [relu], [packed])
    shutil.copy(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert compared(file, file).identical
    assert compared(file, mk.open_file(tmp_path / "b.onnx")).identical
    packed.int32_data[0] = 5
    changed = hand_made(tmp_path / "c.onnx", [relu], [packed])
    assert compared(file, changed).counts == {"unread": 1}
    sparse = {"x": torch.eye(3).to_sparse(), "y": torch.zeros(3, dtype=torch.complex64).conj()}
    for name in ("s.pt", "t.pt"):
        torch.save(sparse, tmp_path / name)
    shutil.copy(tmp_path / "s.pt", tmp_path / "u.pt")
    assert compared(mk.open_file(tmp_path / "s.pt"), mk.open_file(tmp_path / "u.pt")).identical


def test_weights_that_lie_elsewhere_and_are_gone_are_those_of_the_file_itself(tmp_path: Path) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="gone.data")
    file = hand_made(tmp_path / "a.onnx", [helper.make_node("Relu", ["x"], ["y"])], [weight])
    assert compared(file, mk.open_file(tmp_path / "a.onnx")).identical
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "a.onnx", tmp_path / "other")
    assert compared(file, mk.open_file(tmp_path / "other" / "a.onnx")).counts == {"unread": 1}


@pytest.mark.parametrize("size", [-1, -(1 << 40), 1 << 60])
def test_sizes_that_no_value_has_are_not_fixed(tmp_path: Path, size: int) -> None:
    weight = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    file = hand_made(tmp_path / "size.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [weight], shape=[size, 3])
    assert file.graph is not None
    assert [edge["shape"] for *_, edge in file.graph.edges(data=True)] == [("?", 3)] * 2
    assert mk.ModelGraph(file).payload["flow"]["shapes"] == [["?", 3]]


def test_names_of_values_are_no_paths_and_empty_bodies_no_modules() -> None:
    file = mk.open_file(FOLDER / "weights.onnx")
    assert paths(file) == {"", "conv", "dense", "embed", "else_branch", "fc", "model", "model.1"}
    assert parameters(file) == 12 + 4 + 16 + 4 + 20 + 4 + 16
    assert {path for op, path in modules(file) if op in ("MatMulInteger", "Cast", "Mul", "Add")} == {"dense", "model.1"}


def test_modules_without_weights_are_called_by_their_operators(tmp_path: Path) -> None:
    names = ["/0/Relu", "/1/Sigmoid", "/2/Relu", "/3/Relu", "/4/Erf", "/4/Add", "/4/Mul", "/4/Erf_1"]
    nodes = []
    for at, name in enumerate(names):
        op = name.rpartition("/")[2].partition("_")[0]
        given = ["y" if at == len(names) - 1 else f"v{at + 1}"]
        taken = [f"v{at}" if at else "x"]
        nodes.append(helper.make_node(op, taken * (2 if op in ("Add", "Mul") else 1), given, name))
    payload = mk.ModelGraph(hand_made(tmp_path / "names.onnx", nodes)).payload
    classes = [payload["classes"]["name"][each] for each in payload["entities"]["class"]]
    shown = [classes[each] for each in payload["nodes"]["entity"]][1:]
    assert shown == ["Relu", "Sigmoid", "Relu", "Relu", "Erf, Add, +1"]
    assert [fold[:3] for fold in payload["folds"]] == [[3, 2, "exact"]]


def test_the_older_exporters_weights_of_folded_layers_are_called_by_their_operator(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "onnx::MatMul_7"], ["y"], "/fc/MatMul")]
    file = hand_made(tmp_path / "renamed.onnx", nodes, [numpy_helper.from_array(WEIGHT, "onnx::MatMul_7")])
    assert [type(module).__name__ for _, module in file.skeleton().named_modules()][1:] == ["MatMul"]
    assert parameters(file) == WEIGHT.size
