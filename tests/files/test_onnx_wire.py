"""ONNX files made by hand: functions, bodies, sparse and typed tensors, and files that no exporter writes."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from files.nets import check_edges
from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.file_formats.format_tables import ONNX_DTYPES
from modulekg_widgets.engine.files.formats.onnx.onnx_file import read_onnx
from modulekg_widgets.engine.files.formats.onnx.onnx_wire import SMALL_MESSAGE_BYTES
from modulekg_widgets.engine.files.readers import READERS, read_contents
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import open_source

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

PADDING = "x" * (2 * SMALL_MESSAGE_BYTES)  # makes a message one whose fields are looked at one by one
ONE = np.float32([1, 2, 3])


def contents_of(path: Path) -> FileContents:
    assert READERS[".onnx"] is read_onnx
    with open_source(path) as source:
        return read_contents(source)


def value(name: str, shape: Any = (3,), dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes: list, tensors: tuple = (), functions: tuple = (), **graph: Any) -> Any:
    made = helper.make_graph(nodes, "g", [value("x")], [value("y")], list(tensors), **graph)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(made, functions=list(functions), opset_imports=opsets)


def saved(folder: Path, made: Any) -> FileContents:
    path = folder / "net.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return contents_of(path)


def relu(taken: str, given: str, name: str = "") -> Any:
    return helper.make_node("Relu", [taken], [given], name)


def refused(folder: Path, made: Any) -> str:
    with pytest.raises(ModelFileError) as error:
        saved(folder, made)
    assert "net.onnx" in str(error.value)
    return str(error.value)


def call(name: str, taken: str, given: str, **attributes: Any) -> Any:
    return helper.make_node(name, [taken], [given], domain="own", **attributes)


def function(name: str, nodes: list, attributes: tuple[str, ...] = ()) -> Any:
    return helper.make_function("own", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 20)], list(attributes))


def field(number: int, content: bytes) -> bytes:
    return numeral(number << 3 | 2) + numeral(len(content)) + content


def numeral(number: int) -> bytes:
    encoded = b""
    while number >= 128:
        encoded, number = encoded + bytes([number & 127 | 128]), number >> 7
    return encoded + bytes([number])


def raw_model(graph: bytes) -> bytes:
    return b"\x08\x0a" + field(8, b"\x10\x14") + field(7, graph)


def test_the_table_of_dtypes_is_complete() -> None:
    numbers = {number for name, number in TensorProto.DataType.items() if name != "UNDEFINED"}
    assert ONNX_DTYPES.keys() == numbers
    for number in numbers - {TensorProto.STRING}:
        word, bits = ONNX_DTYPES[number]
        dtype = helper.tensor_dtype_to_np_dtype(number)
        assert word.replace("_", "").replace("fn", "") == dtype.name.replace("_", "").replace("fn", "")
        assert bits == dtype.itemsize * 8 or word[-1].isdigit() or "float" in word


@pytest.mark.parametrize("padding", ["", PADDING])
def test_functions_are_modules_with_their_operators(tmp_path: Path, padding: str) -> None:
    twice = function("Twice", [relu("a", "m"), helper.make_node("LeakyRelu", ["m"], ["b"])], ("slope",))
    twice.node[1].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    nodes = [call("Twice", "x", "m", slope=0.5), call("Twice", "m", "y", slope=0.25)]
    nodes[0].name = nodes[1].name = "/block/call"
    nodes[0].doc_string = nodes[1].doc_string = padding
    contents = saved(tmp_path, model(nodes, functions=(twice,)))
    check_edges(contents)
    assert contents.graph is not None
    assert [(part.path, part.class_name) for part in contents.modules if part.class_name] == [
        ("block.call", "own.Twice"),
        ("block.call_1", "own.Twice"),
    ]
    assert [operator.op for operator in contents.graph.operators] == ["Relu", "LeakyRelu"] * 2
    assert [operator.module for operator in contents.graph.operators] == ["block.call"] * 2 + ["block.call_1"] * 2
    assert [operator.attributes.get("alpha") for operator in contents.graph.operators] == [None, 0.5, None, 0.25]
    assert contents.graph.outputs == ("y",)


def test_a_function_that_gives_what_it_takes(tmp_path: Path) -> None:
    same = helper.make_function("own", "Same", ["a"], ["a"], [], [helper.make_opsetid("", 20)])
    contents = saved(tmp_path, model([call("Same", "x", "m"), relu("m", "y")], functions=(same,)))
    check_edges(contents)
    assert contents.graph is not None
    assert contents.graph.operators[0].inputs == ("x",)


def test_functions_that_call_themselves_are_operators(tmp_path: Path) -> None:
    one, other = function("One", [call("Other", "a", "b")]), function("Other", [call("One", "a", "b")])
    contents = saved(tmp_path, model([call("One", "x", "y")], functions=(one, other)))
    check_edges(contents)
    assert contents.graph is not None
    assert [operator.op for operator in contents.graph.operators] == ["own.One"]


def test_functions_that_would_double_without_end(tmp_path: Path) -> None:
    functions = []
    for number in range(15):
        inner = [call(f"F{number + 1}", "a" if at == 0 else f"m{at}", f"m{at + 1}") for at in range(9)]
        functions.append(function(f"F{number}", [*inner, relu("m9", "b")]))
    start = time.process_time()
    contents = saved(tmp_path, model([call("F0", "x", "y")], functions=tuple(functions)))
    assert time.process_time() - start < 4
    check_edges(contents)
    assert contents.graph is not None
    assert 1_000 < len(contents.graph.operators) <= 20_001


@pytest.mark.parametrize("padding", ["", PADDING])
def test_bodies_may_use_names_again(tmp_path: Path, padding: str) -> None:
    def branch(op: str) -> Any:
        weight = numpy_helper.from_array(ONE, "w")
        node = helper.make_node(op, ["x", "w"], ["m"], "same")
        return helper.make_graph([node, relu("m", "given")], op, [], [value("given")], [weight])

    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch("Add"), else_branch=branch("Mul"))
    choice.doc_string = padding
    condition = numpy_helper.from_array(np.array(True), "c")
    contents = saved(tmp_path, model([choice], (condition,)))
    check_edges(contents)
    assert contents.graph is not None
    names = [tensor.name for tensor in contents.tensors]
    assert names == ["c", "w", "w_1"]
    content = (tmp_path / "net.onnx").read_bytes()
    for tensor in contents.tensors[1:]:
        assert tensor.offset is not None
        assert content[tensor.offset : tensor.offset + 12] == ONE.tobytes()
    mul, first, add, second, chosen = contents.graph.operators  # attributes stand in order of their names
    assert (mul.inputs, add.inputs) == (("x", "w"), ("x", "w_1"))
    assert chosen.inputs == ("c", *first.outputs, *second.outputs)
    assert [add.module, mul.module, chosen.module] == ["then_branch", "else_branch", ""]


def test_nodes_without_names_and_with_the_same(tmp_path: Path) -> None:
    nodes = [relu("x", "a"), relu("a", "b"), relu("b", "c", "n"), relu("c", "d", "n"), relu("d", "y", "n_1")]
    contents = saved(tmp_path, model(nodes))
    assert contents.graph is not None
    assert [operator.name for operator in contents.graph.operators] == ["Relu", "Relu_1", "n", "n_1", "n_1_1"]


@pytest.mark.parametrize("padding", ["", PADDING])
def test_constants_are_settings_where_they_are_small_and_else_tensors(tmp_path: Path, padding: str) -> None:
    large = np.arange(100, dtype=np.int64)
    small = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(np.float32([0.5, 2])))
    typed = helper.make_node("Constant", [], ["t"], value=helper.make_tensor("", TensorProto.INT64, [], [7]))
    weights = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(large))
    for node in (small, typed, weights):
        node.doc_string = padding
    contents = saved(tmp_path, model([small, typed, weights, helper.make_node("Max", ["s", "t", "w", "x"], ["y"])]))
    check_edges(contents)
    assert contents.graph is not None
    assert [operator.attributes for operator in contents.graph.operators] == [{"value": "[0.5, 2.0]"}, {"value": 7}, {}]
    (record,) = contents.tensors
    assert (record.name, record.role, record.shape, record.dtype) == ("w", "constant", (100,), "int64")
    content = (tmp_path / "net.onnx").read_bytes()
    assert record.offset is not None
    assert content[record.offset : record.offset + record.nbytes] == large.tobytes()


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("dtype", "numbers", "told"),
    [("FLOAT16", [1.0, 0.1], "[1.0, 0.0999755859375]"), ("BFLOAT16", [1.0, -2.5], "[1.0, -2.5]"),
     ("FLOAT8E4M3FN", [1.0, 448.0], "[1.0, 448.0]"), ("FLOAT8E5M2", [0.5, -2.0], "[0.5, -2.0]"),
     ("FLOAT8E4M3FNUZ", [1.0, -240.0], "[1.0, -240.0]"), ("FLOAT8E5M2FNUZ", [1.0, 0.0], "[1.0, 0.0]"),
     ("INT16", [1, -2], "[1, -2]"), ("INT4", [1, -2], "int4 of (2,)"), ("BOOL", [1, 0], "[True, False]")],
)  # fmt: skip
def test_small_constants_are_told_as_numbers(
    tmp_path: Path, raw: bool, dtype: str, numbers: list[float], told: str
) -> None:
    number = getattr(TensorProto, dtype)
    made = helper.make_tensor("c", number, [2], numbers)
    if raw:
        stored = numpy_helper.to_array(made)
        made = numpy_helper.from_array(stored, "c")
        assert made.raw_data
    node = helper.make_node("Constant", [], ["y"], value=made)
    graph = saved(tmp_path, model([node])).graph
    assert graph is not None
    assert graph.operators[0].attributes["value"] == told


def test_one_number_alone_is_told_as_such(tmp_path: Path) -> None:
    made = helper.make_tensor("c", TensorProto.BFLOAT16, [], [1.0])
    graph = saved(tmp_path, model([helper.make_node("Constant", [], ["y"], value=made)])).graph
    assert graph is not None
    assert graph.operators[0].attributes["value"] == 1.0


def test_tensors_of_typed_fields_have_an_offset_where_their_bytes_stand_as_they_are(tmp_path: Path) -> None:
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [20], [0.5] * 20)
    half = helper.make_tensor("half", TensorProto.FLOAT16, [2], [0.5, 1])
    words = helper.make_tensor("words", TensorProto.STRING, [2], ["left", "right"])
    packed = TensorProto(name="packed", data_type=TensorProto.INT4, dims=[3], raw_data=b"\x21\x03")
    indices = helper.make_tensor("", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1, 2]), indices, [9])
    made = model([relu("x", "y")], (typed, half, words, packed), sparse_initializer=[sparse])
    records = {tensor.name: tensor for tensor in saved(tmp_path, made).tensors}
    assert [(name, record.dtype, record.shape) for name, record in records.items()] == [
        ("typed", "float32", (20,)),
        ("half", "float16", (2,)),
        ("words", "string", (2,)),
        ("packed", "int4", (3,)),
        ("sparse", "float32", (9,)),
    ]
    assert [name for name, record in records.items() if record.offset is not None] == ["typed", "packed"]
    assert [name for name, record in records.items() if record.encoded is not None] == ["half", "words"]
    assert records["typed"].nbytes == 80
    assert records["packed"].nbytes == 2


def test_weights_take_no_memory(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.zeros(10_000_000, np.float32), "w")
    path = tmp_path / "net.onnx"
    path.write_bytes(model([relu("x", "y")], (weights,)).SerializeToString())
    contents_of(path)
    tracemalloc.start()
    (record,) = contents_of(path).tensors
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert record.nbytes == 40_000_000
    assert peak < 1_000_000


def test_ten_thousand_operators_in_a_second(tmp_path: Path) -> None:
    nodes = [relu(f"v{at}", f"v{at + 1}", f"/layers.{at // 10}/Relu") for at in range(9_999)]
    made = model([relu("x", "v0"), *nodes], value_info=[value(f"v{at}", ("n", 3)) for at in range(9_999)])
    contents = saved(tmp_path, made)
    start = time.process_time()
    contents = contents_of(tmp_path / "net.onnx")
    assert time.process_time() - start < 2  # half of it, on a machine that does nothing else
    assert contents.graph is not None
    assert len(contents.graph.operators) == 10_000
    assert contents.graph.values["v7"].shape == ("n", 3)


@pytest.mark.parametrize(("location", "file"), [("w", "w"), ("./w", "w"), ("sub/w", "sub/w"), ("./a/b/w", "a/b/w")])
def test_weights_in_the_folder_or_below_it_are_named(tmp_path: Path, location: str, file: str) -> None:
    contents = saved(tmp_path, model([relu("x", "y")], (external(location, offset="64"),)))
    assert [(tensor.file, tensor.offset, tensor.nbytes) for tensor in contents.tensors] == [(file, 64, 12)]
    assert f"weights lie in {file}," in contents.warnings[0]


@pytest.mark.parametrize("location", ["../w", "/etc/passwd", "a/../w", "..", "", "a\\w", "C:w", "a\0"])
def test_weights_out_of_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    assert "it may lead anywhere" in refused(tmp_path, model([relu("x", "y")], (external(location),)))


def test_weights_behind_a_link_are_refused(tmp_path: Path) -> None:
    os.symlink("/etc/hostname", tmp_path / "w")
    (tmp_path / "away").symlink_to(tmp_path.parent)
    for location in ("w", "./w", "away/w"):
        assert "is a link" in refused(tmp_path, model([relu("x", "y")], (external(location),)))


@pytest.mark.parametrize(
    ("key", "text"),
    [("offset", "-1"), ("offset", "1e9"), ("offset", "9" * 30), ("offset", ""), ("length", "13"), ("length", "٣")],
)
def test_weights_at_places_that_are_none(tmp_path: Path, key: str, text: str) -> None:
    refused(tmp_path, model([relu("x", "y")], (external("w", **{key: text}),)))


def test_constants_in_other_files_are_checked_as_well(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["y"], value=external("../w"))
    assert "it may lead anywhere" in refused(tmp_path, model([node]))


def external(location: str, **more: str) -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def test_forged_tensors(tmp_path: Path) -> None:
    short = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"1234")
    assert "its shape takes 12" in refused(tmp_path, model([], (short,)))
    for dims in ([-1], [1 << 40, 1 << 40], [1] * 100):
        assert "sizes that no tensor has" in refused(tmp_path, model([], (TensorProto(name="w", dims=dims),)))
    twice = numpy_helper.from_array(ONE, "w")
    assert "two tensors named w" in refused(tmp_path, model([], (twice, twice)))


FORGED: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no_graph": lambda: b"\x08\x0a" + field(8, b"\x10\x14"),
    "a_group": lambda: b"\x0b" * 90,
    "field_zero": lambda: b"\x02\x00",
    "a_length_beyond_the_end": lambda: raw_model(b"\x0a" + b"\xff" * 9 + b"\x01"),
    "a_number_without_end": lambda: b"\x08" + b"\xff" * 40,
    "graphs_in_graphs": lambda: raw_model(nested(60, PADDING)),
    "graphs_in_graphs_of_small_nodes": lambda: raw_model(nested(90, "")),
    "ten_million_nodes": lambda: raw_model(field(1, b"") * 10_000_000),
    "a_million_graphs": lambda: raw_model(field(1, field(4, b"If") + field(5, field(6, b"") * 1_000_000))),
    "a_million_dimensions": lambda: raw_model(field(13, field(2, field(1, field(2, field(1, b"") * 200_000))))),
    "a_name_of_a_megabyte": lambda: raw_model(field(1, field(4, b"X") + field(2, b"y" * 1_000_000)) * 100),
    "a_name_that_is_no_text": lambda: raw_model(field(1, field(4, b"X") + field(2, b"\xff\xfe"))),
    "a_node_of_two_megabytes": lambda: raw_model(field(1, field(4, b"X") + field(1, b"") * 1_000_000)),
    "numbers_one_by_one": lambda: raw_model(field(5, b"\x10\x01" + b"\x25\0\0\0\0" * 10_000_000)),
}


def nested(depth: int, padding: str) -> bytes:
    graph = b""
    for _ in range(depth):
        graph = field(1, field(4, b"If") + field(5, field(1, b"t") + field(6, graph)) + field(6, padding.encode()))
    return graph


@pytest.mark.parametrize("name", FORGED)
def test_forged_bytes_are_refused_at_once(tmp_path: Path, name: str) -> None:
    content = FORGED[name]()
    start = time.process_time()
    refused(tmp_path, content)
    assert time.process_time() - start < 4


def test_long_metadata_is_cut_and_does_not_count(tmp_path: Path) -> None:
    made = model([relu("x", "y")])
    helper.set_model_props(made, {"names": "é" * 600_000, "k" * 700_000: "v", "author": "him"})
    made.doc_string = "d" * 1_500_000
    told = saved(tmp_path, made).metadata
    assert told["names"] == "é" * 199 + "…"
    assert told["k" * 199 + "…"] == "v"
    assert told["author"] == "him"
    assert told["description"] == "d" * 199 + "…"


def test_metadata_is_told_in_short(tmp_path: Path) -> None:
    made = model([relu("x", "y")])
    made.producer_name, made.doc_string = "somebody", "long " * 1000
    helper.set_model_props(made, {"author": "him", "notes": "n" * 5000, "opset": "forged"})
    metadata = saved(tmp_path, made).metadata
    assert metadata["producer"] == "somebody"
    assert metadata["opset"] == "ai.onnx 20, own 1"
    assert metadata["author"] == "him"
    assert all(len(str(text)) <= 200 for text in metadata.values())


def test_lists_of_metadata_are_read_and_not_run(tmp_path: Path) -> None:
    node = relu("x", "y")
    for key, text in {"name_scopes": "['', 'a', exit(), 'op']", "class_hierarchy": "['Net', \"B\", 'op']"}.items():
        node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=text)
    contents = saved(tmp_path, model([node]))
    assert [(part.path, part.class_name) for part in contents.modules] == [("", "Net"), ("a", "B")]
