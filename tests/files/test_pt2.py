"""Archives of torch.export: tensors, modules and operators are those of the live model, and nothing is unpickled."""

from __future__ import annotations

import io
import json
import time
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._export.serde import schema
from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE, serialize

from files.nets import NETS, Inner, changed, check_edges, check_tensors, class_name, outcomes, that_run
from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.file_formats.format_tables import PT2_DTYPES, PT2_LAYOUTS, PT2_MEMORY_FORMATS
from modulekg_widgets.engine.files.formats.pt2 import is_pt2, read_pt2, size_text
from modulekg_widgets.engine.files.records import FileContents, ValueRecord
from modulekg_widgets.engine.files.source import open_source
from modulekg_widgets.engine.files.zip_archive import ZipArchive

PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"


@dataclass(frozen=True)
class Exported:
    net: nn.Module
    program: torch.export.ExportedProgram
    path: Path
    contents: FileContents


def contents_of(path: Path) -> FileContents:
    with open_source(path) as source:
        return read_pt2(ZipArchive(source), source)


def export(net: nn.Module, arguments: tuple, path: Path, **options: Any) -> Exported:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(net, arguments, **options)
    torch.export.save(program, path)
    return Exported(net, program, path, contents_of(path))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    made: dict[str, Exported] = {}

    def get(name: str) -> Exported:
        if name not in made:
            torch.manual_seed(0)
            build, shape = NETS[name]
            made[name] = export(build().eval(), (torch.zeros(shape),), tmp_path_factory.mktemp("pt2") / f"{name}.pt2")
        return made[name]

    return get


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def zipped(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(f"net/{name}", content)
    return written.getvalue()


def forged(exported: Exported, path: Path, member: str, forge: Callable[[Any], object]) -> FileContents:
    """What is read after something was changed in one of the JSON files."""
    parts = members(exported.path.read_bytes())
    told = json.loads(parts[member])
    forge(told)
    path.write_bytes(zipped({**parts, member: json.dumps(told).encode()}))
    return contents_of(path)


def test_the_tables_are_those_of_torch() -> None:
    assert {number: word for number, (word, _) in PT2_DTYPES.items()} == {
        int(number): str(dtype).removeprefix("torch.") for number, dtype in _SERIALIZE_TO_TORCH_DTYPE.items()
    }
    for word, size in PT2_DTYPES.values():
        assert getattr(torch, word).itemsize == size
    assert set(PT2_DTYPES) == set(map(int, schema.ScalarType)) - {0}
    assert set(PT2_LAYOUTS) == set(map(int, schema.Layout)) - {0}
    assert set(PT2_MEMORY_FORMATS) == set(map(int, schema.MemoryFormat)) - {0}
    assert all(hasattr(torch, word) for word in PT2_MEMORY_FORMATS.values())


@pytest.mark.parametrize("name", NETS)
@pytest.mark.slow
def test_every_edge_leads_somewhere(exported: Callable[[str], Exported], name: str) -> None:
    contents = exported(name).contents
    assert contents.format == "pt2"
    assert contents.graph is not None
    assert len(contents.graph.inputs) == len(contents.graph.outputs) == 1
    check_edges(contents)


@pytest.mark.parametrize("name", NETS)
def test_tensors_are_those_of_the_state_dict(exported: Callable[[str], Exported], name: str) -> None:
    file = exported(name)
    state = {**file.net.state_dict(), **file.program.constants}
    check_tensors(file.contents, state, file.path)
    assert {tensor.name for tensor in file.contents.tensors} == state.keys()
    assert all(tensor.offset is not None for tensor in file.contents.tensors)
    parameters = {key for key, _ in file.net.named_parameters(remove_duplicate=False)}
    assert {tensor.name for tensor in file.contents.tensors if tensor.role == "parameter"} == parameters


@pytest.mark.parametrize("name", NETS)
def test_modules_have_their_paths_and_classes(exported: Callable[[str], Exported], name: str) -> None:
    file = exported(name)
    live = dict(file.net.named_modules(remove_duplicate=False))
    told = {part.path: part.class_name for part in file.contents.modules}
    bodies = {"true_graph_0", "false_graph_0"} & told.keys()
    assert bool(bodies) == (name == "branches")
    assert told.keys() - bodies <= live.keys()
    assert {path: class_name(live[path]) for path, word in told.items() if word} == {
        path: word for path, word in told.items() if word
    }
    assert {operator.module for operator in file.contents.graph.operators} <= told.keys()


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_modules_that_run_are_there(exported: Callable[[str], Exported], name: str) -> None:
    told = {part.path for part in exported(name).contents.modules if part.class_name}
    assert told == that_run(NETS[name][0]().eval(), NETS[name][1])


def test_operators_are_those_of_the_program(exported: Callable[[str], Exported]) -> None:
    for name in ("resnet18", "vit", "shared"):
        file = exported(name)
        called = [str(node.target) for node in file.program.graph.nodes if node.op == "call_function"]
        operators = [operator.op for operator in file.contents.graph.operators]
        assert operators == [target for target in called if "getitem" not in target]


def test_an_operator_in_full(exported: Callable[[str], Exported]) -> None:
    contents = exported("resnet18").contents
    assert contents.graph is not None
    first = contents.graph.operators[0]
    assert first.op == "aten.conv2d.default"
    assert first.module == "conv1"
    assert first.inputs == ("x", "conv1.weight")
    assert first.attributes == {"stride": "[2, 2]", "padding": "[3, 3]"}
    assert first.source.startswith("conv.py:")
    assert contents.graph.values[first.outputs[0]] == ValueRecord((2, 64, 16, 16), "float32")
    assert contents.metadata["producer"] == f"torch {torch.__version__}"


def test_constants_and_buffers_have_their_roles(exported: Callable[[str], Exported]) -> None:
    roles = {tensor.name: tensor.role for tensor in exported("shared").contents.tensors}
    assert (roles["scale"], roles["passing"], roles["tied.weight"]) == ("buffer", "buffer", "parameter")
    assert [role for name, role in roles.items() if name.startswith("lifted_tensor")] == ["constant"]


def test_tied_weights_lie_in_one_place(exported: Callable[[str], Exported]) -> None:
    places = {tensor.name: tensor.offset for tensor in exported("shared").contents.tensors}
    assert places["a.fc.weight"] == places["b.fc.weight"]
    assert places["tied.weight"] == places["items.0.fc.weight"] != places["items.1.fc.weight"]


def test_branches_come_before_what_chooses_between_them(exported: Callable[[str], Exported]) -> None:
    contents = exported("branches").contents
    assert contents.graph is not None
    left, right = [operator for operator in contents.graph.operators if operator.op == "aten.linear.default"]
    choice = contents.graph.operators[-1]
    assert (left.module, right.module, choice.module) == ("true_graph_0", "false_graph_0", "")
    assert set(left.inputs) == {"x", "left.weight", "left.bias"}
    assert set(right.inputs) == {"x", "right.weight", "right.bias"}
    assert choice.op == "higher_order.cond"
    assert {*left.outputs} < {*choice.inputs}


class Pieces(nn.Module):
    """Lists of tensors, sizes that are computed, settings of many kinds."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pieces = torch.split(x, 2, dim=1)
        joined = torch.cat([*pieces, x.to(torch.float64).to(x.dtype)], dim=1)
        padded = torch.nn.functional.pad(joined, (1, 1), value=float("-inf")).to(memory_format=torch.contiguous_format)
        return padded, x.view(x.shape[0] * 2, 2), x[torch.tensor([0])]


def test_lists_and_sizes_that_are_not_fixed(tmp_path: Path) -> None:
    shapes = ({0: torch.export.Dim("batch", min=2, max=64)},)
    file = export(Pieces(), (torch.zeros(3, 4),), tmp_path / "pieces.pt2", dynamic_shapes=shapes)
    check_edges(file.contents)
    graph = file.contents.graph
    assert graph is not None
    by_op = {operator.op: operator for operator in graph.operators}
    symbol = graph.values["x"].shape[0]
    assert isinstance(symbol, str)
    assert graph.values["x"] == ValueRecord((symbol, 4), "float32")
    assert f"{symbol} from 2 to 64" in str(file.contents.metadata["dynamic_sizes"])
    split = by_op["aten.split.Tensor"]
    assert len(split.outputs) == 2
    assert by_op["aten.cat.default"].inputs[:2] == split.outputs
    assert by_op["aten.pad.default"].attributes == {"pad": "[1, 1]", "mode": "constant", "value": "-Infinity"}
    assert "float64" in [operator.attributes.get("dtype") for operator in graph.operators]
    sizes = by_op["aten.view.default"]
    assert sizes.inputs[1:] == by_op["_operator.mul"].outputs
    assert len(graph.outputs) == 3


def test_expressions_of_sizes_are_short() -> None:
    assert size_text("Symbol('s77', positive=True, integer=True)") == "s77"
    assert size_text("Mul(Integer(2), Symbol('s0', integer=True))") == "Mul(2, s0)"


def test_strides_are_told_where_weights_are_not_contiguous(tmp_path: Path) -> None:
    net = nn.Linear(3, 4, bias=False)
    net.weight = nn.Parameter(torch.arange(12.0).reshape(3, 4).t())
    file = export(net, (torch.zeros(2, 3),), tmp_path / "strided.pt2")
    (record,) = file.contents.tensors
    assert (record.shape, record.strides) == ((4, 3), (1, 4))
    assert record.offset is not None
    stored = torch.frombuffer(bytearray(file.path.read_bytes()[record.offset :][:48]), dtype=torch.float32)
    assert torch.equal(stored.as_strided(record.shape, record.strides), net.weight)


def test_the_layout_of_before(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    """Names and shapes come from the program alone, and the pickle beside it is named."""
    file = exported("shared")
    path = tmp_path / "before.pt2"
    parts = {
        "version": b"8.20",
        "serialized_exported_program.json": serialize(file.program).exported_program,
        "serialized_state_dict.pt": b"cos\nsystem\n(S'true'\ntR.",
        "serialized_constants.pt": b"",
    }
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    path.write_bytes(written.getvalue())
    contents = contents_of(path)
    check_edges(contents)
    state = {**file.net.state_dict(), **file.program.constants}
    check_tensors(contents, state, path)
    assert {tensor.name for tensor in contents.tensors} == state.keys()
    assert {tensor.offset for tensor in contents.tensors} == {None}
    assert contents.graph == file.contents.graph
    assert contents.modules == file.contents.modules
    assert any("serialized_state_dict.pt" in warning for warning in contents.warnings)


def test_pickles_are_named_and_left(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    file = exported("shared")
    assert any("data/sample_inputs/model.pt" in warning for warning in file.contents.warnings)

    def pickled(told: Any) -> None:
        told["config"]["scale"]["use_pickle"] = True

    contents = forged(file, tmp_path / "a.pt2", WEIGHTS, pickled)
    (scale,) = [tensor for tensor in contents.tensors if tensor.name == "scale"]
    assert scale.offset is None
    assert any("scale is stored as a pickle" in warning for warning in contents.warnings)


def test_several_programs_and_compressed_ones(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    parts = members(exported("shared").path.read_bytes())
    path = tmp_path / "a.pt2"
    path.write_bytes(zipped({"models/another.json": b"{}", **parts}, zipfile.ZIP_DEFLATED))
    contents = contents_of(path)
    assert contents.graph == exported("shared").contents.graph
    assert {tensor.offset for tensor in contents.tensors} == {None}
    assert "models/another.json" in contents.warnings[0]


def test_what_is_an_archive_of_torch_export(exported: Callable[[str], Exported], tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    parts = members(exported("shared").path.read_bytes())
    weights = {"data.pkl": b"", "data/0": b""}
    for content, known in ((parts, True), ({PROGRAM: b""}, True), ({"archive_format": b""}, True), (weights, False)):
        path.write_bytes(zipped(content))
        with open_source(path) as source:
            assert is_pt2(ZipArchive(source)) == known


def test_archives_without_a_program(tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(zipped({"archive_format": b"pt2", "data/aotinductor/model/x.so": b"\x7fELF"}))
    with pytest.raises(ModelFileError, match=r"x\.so"):
        contents_of(path)


def deep(told: Any) -> None:
    argument: Any = {"as_none": True}
    for _ in range(200):
        argument = {"as_string_to_argument": {"a": argument}}
    told["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = argument


def graphs(told: Any) -> None:
    graph: Any = {"nodes": []}
    for _ in range(60):
        called = {"name": "", "arg": {"as_graph": {"name": "g", "graph": graph}}}
        graph = {"nodes": [{"target": "t", "inputs": [called], "outputs": [], "metadata": {}}]}
    told["graph_module"]["graph"] = graph


def node(**more: Any) -> Callable[[Any], None]:
    return lambda told: told["graph_module"]["graph"]["nodes"][0].update(more)


def weight(**more: Any) -> Callable[[Any], None]:
    return lambda told: told["config"]["scale"]["tensor_meta"].update(more)


FORGED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "no_graph": (PROGRAM, lambda told: told.pop("graph_module")),
    "a_name_that_is_no_text": (PROGRAM, node(name=["x"])),
    "a_target_that_is_no_text": (PROGRAM, node(target=None)),
    "outputs_that_are_no_list": (PROGRAM, node(outputs="x")),
    "values_that_are_no_texts": (PROGRAM, node(outputs=[{"as_tensor": {"name": 7}}])),
    "metadata_that_are_no_texts": (PROGRAM, node(metadata={"nn_module_stack": 1})),
    "arguments_in_arguments": (PROGRAM, deep),
    "graphs_in_graphs": (PROGRAM, graphs),
    "a_name_of_a_megabyte": (PROGRAM, node(name="x" * 1_000_000)),
    "negative_sizes": (WEIGHTS, weight(sizes=[{"as_int": -8}])),
    "huge_sizes": (WEIGHTS, weight(sizes=[{"as_int": 1 << 50}] * 3)),
    "sizes_that_are_no_numbers": (WEIGHTS, weight(sizes=[{"as_int": 1e300}])),
    "sizes_that_are_not_fixed": (WEIGHTS, weight(sizes=[{"as_expr": {"expr_str": "s0"}}])),
    "more_than_is_stored": (WEIGHTS, weight(sizes=[{"as_int": 9}])),
    "strides_beyond_what_is_stored": (WEIGHTS, weight(strides=[{"as_int": 2}])),
    "an_offset_beyond_what_is_stored": (WEIGHTS, weight(storage_offset={"as_int": 1})),
    "an_offset_before_it": (WEIGHTS, weight(storage_offset={"as_int": -1})),
    "many_dimensions": (WEIGHTS, weight(sizes=[{"as_int": 1}] * 1000)),
    "a_place_outside": (WEIGHTS, lambda told: told["config"]["scale"].update(path_name="../../../etc/passwd")),
    "no_weight": (WEIGHTS, lambda told: told["config"]["scale"].update(path_name="weight_99")),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_programs_are_refused(exported: Callable[[str], Exported], tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"forged\.pt2"):
        forged(exported("shared"), tmp_path / "forged.pt2", *FORGED[name])


@pytest.mark.parametrize(
    "program",
    [
        b"[" * 5_000_000,
        b"[" * 900,
        b'{"a":' * 900,
        b"",
        b"\xff\xfe",
        b"NaN",
        b"[]",
        b"7," * 30_000_000,
        bytes(200 << 20),
    ],
    ids=["lists", "nested", "objects", "nothing", "no_text", "nan", "a_list", "numbers", "bomb"],
)
def test_forged_json_is_refused_at_once(tmp_path: Path, program: bytes) -> None:
    path = tmp_path / "forged.pt2"
    path.write_bytes(zipped({"archive_format": b"pt2", PROGRAM: program}, zipfile.ZIP_DEFLATED))
    start = time.process_time()
    with pytest.raises(ModelFileError):
        contents_of(path)
    assert time.process_time() - start < 2


def test_what_is_cut_off_or_changed_is_refused_or_read(tmp_path: Path) -> None:
    content = export(Inner().eval(), (torch.zeros(2, 8),), tmp_path / "inner.pt2").path.read_bytes()
    assert outcomes(tmp_path / "forged.pt2", changed(content, len(content), 400, seed=2), contents_of) == {
        "read",
        "refused",
    }
    parts = members(content)
    programs = changed(parts[PROGRAM], len(parts[PROGRAM]), 300, seed=3)
    archives = (zipped({**parts, PROGRAM: program}) for program in programs)
    assert outcomes(tmp_path / "forged.pt2", archives, contents_of) == {"read", "refused"}
