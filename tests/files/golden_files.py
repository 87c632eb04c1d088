"""Small files of every format, which both readers, of the kernel and of the page, have to read alike."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

import modulekg_widgets as mk
from files.nets import Branches, Lists, Repeats, Shared, Sized
from modulekg_widgets.engine.files import formats as _formats  # noqa: F401
from modulekg_widgets.engine.files.config_json import add_config
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import open_source

FOLDER = Path(__file__).resolve().parent / "golden"
EXTENSIONS = [".safetensors", ".gguf", ".onnx", ".pt", ".pth", ".pt2", ".safetensors.index.json", ".bin.index.json"]
SHARD = "model-0000{}-of-00003.safetensors"
_PATH = re.compile(r'File "(?:[^"\n]*/)?([^"/\n]+)"')


class Pictures(nn.Module):
    """Convolutions with a way around them, a buffer that counts, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.block = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.act = nn.GELU()
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.act(x + self.block(x))
        return self.head(x.mean((2, 3)))


PICTURE = (torch.zeros(2, 3, 8, 8),)
ROW = (torch.zeros(2, 8),)


def golden_paths() -> Iterator[Path]:
    """The files that are read; shards are read by their index."""
    for path in sorted(FOLDER.rglob("*")):
        if path.name.endswith(tuple(EXTENSIONS)) and not re.fullmatch(SHARD.format(r"\d"), path.name):
            yield path


def expected_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.expected.json")


def as_read(path: Path) -> Any:
    """What the reader tells of a file, as JSON has it."""
    with open_source(path) as source:
        contents: FileContents = add_config(read_contents(source), source)
    told = dataclasses.asdict(contents)
    for tensor in told["tensors"]:
        del tensor["encoded"]  # the page reads no values
    return json.loads(json.dumps(told, allow_nan=False))


def shown_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.shown.json")


def as_shown(path: Path) -> Any:
    """What the page gets of a file, without what each side words or numbers as it likes: digests, labels of folds."""
    payload = mk.ModelGraph(mk.open_file(path)).payload
    nodes, entities, classes = payload["nodes"], payload["entities"], payload["classes"]
    shown = {
        "title": payload["title"],
        "name": nodes["name"],
        "parent": nodes["parent"],
        "entity": first_places(nodes["entity"]),
        "class": [classes["name"][entities["class"][entity]] for entity in nodes["entity"]],
        "tensors": [sorted(entities["tensors"][entity]) for entity in nodes["entity"]],
        "columns": payload["columns"],
        "folds": sorted(fold[:3] for fold in payload["folds"]),
        "tied": sorted(payload["tied"]),
        "flow": payload["flow"],
        "results": (payload["value_names"] or {}).get("results", []),
        "file": payload["file"],
    }
    return json.loads(json.dumps(shown, allow_nan=False))


def first_places(values: list[int]) -> list[int]:
    """For each value the place of the first that is equal."""
    firsts: dict[int, int] = {}
    return [firsts.setdefault(value, place) for place, value in enumerate(values)]


def write_files(folder: Path) -> None:
    """Make all the files anew."""
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    for path in folder.rglob("*.*"):
        path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for make in (
            _safetensors,
            _sharded,
            _sharded_checkpoint,
            _gguf,
            _gguf_part,
            _gguf_of_others,
            _adapter,
            _exported,
            _onnx_of_before,
            _onnx_by_hand,
            _onnx_constants,
            _onnx_weights,
            _pickles,
            _scripts,
        ):
            make(folder)


def _safetensors(folder: Path) -> None:
    from safetensors.torch import save_file

    state = {name: tensor.contiguous() for name, tensor in Pictures().state_dict().items()}
    kinds = (torch.bool, torch.int8, torch.uint16, torch.bfloat16, torch.float8_e4m3fn, torch.complex64)
    state |= {f"kinds.{str(kind)[6:]}": torch.zeros(2, 3).to(kind) for kind in kinds}
    state |= {"empty": torch.zeros(0, 4), "scalar": torch.tensor(7), "naïve ☃": torch.zeros(1)}
    save_file(state, folder / "pictures.safetensors", {"format": "pt", "note": "ein Text “mit” Zeichen"})


def _sharded(folder: Path) -> None:
    """Three files, one of which is not there, and a tensor that stands in another one than the index says."""
    from safetensors.torch import save_file

    folder = folder / "sharded"
    folder.mkdir(exist_ok=True)
    layers = {f"model.layers.{at}.{part}": torch.zeros(3, 4) for at in range(4) for part in ("q.weight", "mlp.weight")}
    listed = {name: SHARD.format(1 + at % 3) for at, name in enumerate(layers)}
    for number in (1, 2):
        save_file({n: t for n, t in layers.items() if listed[n] == SHARD.format(number)}, folder / SHARD.format(number))
    listed["model.lost.weight"] = SHARD.format(1)
    listed[next(iter(listed))] = SHARD.format(2)
    index = {"metadata": {"total_size": 384, "total_parameters": None}, "weight_map": listed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    config = {"architectures": ["TinyForCausalLM"], "model_type": "tiny", "hidden_size": 4, "rope": {"theta": 1e4},
              "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "long": "x" * 300,
              "sizes": [64, 128.0, 0.5, 1e-7, 1e25, -0.0, 10**20], "mixed": [None, True, "a", "é" * 190, 2],
              "many": [0] * 17, "lists": [[1, 2]], "text_config": {"hidden_size": 8, "heads": [2], "deeper": {"a": 1}},
              "text_config.heads": "first", "id2label": {"0": "cat"}, "label2id": {f"l{at}": at for at in range(101)},
              "7": "of a list", "k" * 201: 1, "☃" * 150: "😀" * 150}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def _sharded_checkpoint(folder: Path) -> None:
    """Two checkpoints, of which one names a class that torch does not hold to be safe, and one that is not there."""
    folder = folder / "checkpoints"
    folder.mkdir(exist_ok=True)
    layers = {f"h.{at}.{part}.weight": torch.zeros(3, 4) for at in range(3) for part in ("attn", "mlp")}
    listed = {name: f"pytorch_model-0000{1 + at % 3}-of-00003.bin" for at, name in enumerate(layers)}
    for number, more in ((1, {}), (2, {"args": argparse.Namespace(lr=0.1)})):
        shard = f"pytorch_model-0000{number}-of-00003.bin"
        torch.save({name: layers[name] for name in layers if listed[name] == shard} | more, folder / shard)
    index = {"metadata": {"total_size": 288}, "weight_map": listed}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2))


def _gguf(folder: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_name("Tiny")
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"token {at}" for at in range(40)])
    writer.add_array("few", [0.1, 2.0, 1e-7, 1e17])
    writer.add_array("flags", [True, False])
    writer.add_array("texts", ["ä", "b"])
    writer.add_array("scores", [0.5] * 20)
    writer.add_uint64("large", 1 << 52)
    writer.add_int64("negative", -5)
    writer.add_bool("is_tiny", True)
    writer.add_tensor("token_embd.weight", np.zeros((40, 32), dtype=np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(32, dtype=np.float32))
    for kind in (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_K):
        block, nbytes = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor(f"blk.0.{kind.name}.weight", np.zeros((2, nbytes), dtype=np.uint8), raw_dtype=kind)
        assert block
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_part(folder: Path) -> None:
    """The second of three files of one model."""
    import gguf

    writer = gguf.GGUFWriter(folder / "part-00002-of-00003.gguf", "llama")
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 3)
    writer.add_int32("split.tensors.count", 3)
    writer.add_tensor("blk.1.attn_norm.weight", np.zeros(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_of_others(folder: Path) -> None:
    """Big-endian, with types by numbers that readers use differently, one of which has the bytes of MXFP4."""
    import struct

    def text(value: str) -> bytes:
        return struct.pack(">Q", len(value)) + value.encode()

    tensors = [("ternary", 36, 64), ("mx", 39, 64), ("other", 39, 32), ("new", 99, 16), ("plain", 0, 8)]
    starts = [0, 64, 128, 192, 224]
    head = b"GGUF" + struct.pack(">IQQ", 3, len(tensors), 1) + text("general.architecture") + struct.pack(">I", 8)
    head += text("bitnet")
    for (name, kind, size), start in zip(tensors, starts, strict=True):
        head += text(name) + struct.pack(">IQIQ", 1, size, kind, start)
    data = bytes(224) + struct.pack(">8f", *range(8))
    (folder / "others.gguf").write_bytes(head + bytes(-len(head) % 32) + data)


def _adapter(folder: Path) -> None:
    from safetensors.torch import save_file

    folder = folder / "adapter"
    folder.mkdir(exist_ok=True)
    layers = {f"base_model.model.{at}.q.lora_{part}.weight": torch.zeros(2, 3) for at in range(2) for part in "AB"}
    save_file(layers, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": "some/model", "r": 2, "target_modules": ["q"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def _exported(folder: Path) -> None:
    """By torch.export, and by the ONNX exporter that is built on it."""
    import onnx

    dynamic = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    for name, net, inputs, shapes in (
        ("pictures", Pictures(), PICTURE, dynamic),
        ("shared", Shared(), ROW, None),
        ("branches", Branches(), ROW, None),
        ("sized", Sized(), ROW, dynamic),
    ):
        program = torch.export.export(net.eval(), inputs, dynamic_shapes=shapes)
        _without_places(program.graph_module)
        torch.export.save(program, folder / f"{name}.pt2")
        model = torch.onnx.export(program, dynamo=True, verbose=False, optimize=name != "shared")
        assert model is not None
        beside = {"save_as_external_data": True, "location": f"{name}.data", "size_threshold": 100}
        onnx.save(model.model_proto, folder / f"{name}.onnx", **(beside if name == "shared" else {}))


def _without_places(module: torch.fx.GraphModule) -> None:
    """Leave out where in the file system the code lies."""
    for node in module.graph.nodes:
        if node.meta.get("stack_trace"):
            node.meta["stack_trace"] = _PATH.sub(r'File "/somewhere/\1"', node.meta["stack_trace"])
    for child in module.children():
        if isinstance(child, torch.fx.GraphModule):
            _without_places(child)


def _onnx_of_before(folder: Path) -> None:
    """By the exporter that is built on TorchScript: names of calls, and bodies of conditions and loops."""
    torch.onnx.export(Shared().eval(), ROW, folder / "shared_calls.onnx", dynamo=False)
    scripted = torch.jit.script(Repeats())
    torch.onnx.export(scripted, (*ROW, torch.tensor(3)), folder / "repeats.onnx", dynamo=False)


def _onnx_by_hand(folder: Path) -> None:
    """Local functions with attributes of their own, sparse tensors, small and large constants, names given twice."""
    import onnx
    from onnx import TensorProto, helper

    def tensor(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor(name, kind, shape, [1] * max(1, torch.Size(shape).numel()))

    value = helper.make_tensor_value_info
    text = onnx.TensorProto(name="text", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"])
    scale = helper.make_node("Mul", ["x", "w"], ["y"], name="times")
    power = helper.make_node("LeakyRelu", ["y"], ["z"])
    power.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Scaled", ["x", "w"], ["z"], [scale, power], opsets[:1], ["slope"])
    nodes = [
        helper.make_node("Constant", [], ["few"], value=tensor("c", TensorProto.FLOAT, 2)),
        helper.make_node("Constant", [], ["many"], name="many", value=tensor("c", TensorProto.INT64, 3, 4)),
        helper.make_node("Constant", [], ["typed"], value_floats=[0.1, 2.0, float("inf")]),
        helper.make_node("Scaled", ["a", "w"], ["b"], "first.call", domain="own", slope=0.2),
        helper.make_node("Scaled", ["b", "w"], ["c"], domain="own", slope=0.3),
        helper.make_node("Add", ["c", "few"], ["d"], name="add"),
        helper.make_node("Add", ["d", "", "s"], ["e"], name="add", axes=list(range(20)), mode=b"w\xffrd"),
    ]
    values = helper.make_tensor("s", TensorProto.FLOAT16, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [2], [0, 5]), [3, 2])
    graph = helper.make_graph(
        nodes, "by hand",
        [value("a", TensorProto.FLOAT, ["n", 2, None]), value("w", TensorProto.FLOAT, [2])],
        [value("e", TensorProto.FLOAT, None)],
        [tensor("w", TensorProto.FLOAT, 2), tensor("half", TensorProto.INT4, 3), text],
        value_info=[value("d", TensorProto.BFLOAT16, [2, "m"])],
        sparse_initializer=[sparse],
    )  # fmt: skip
    model = helper.make_model(graph, functions=[function], opset_imports=opsets, producer_name="hand", ir_version=10)
    model.metadata_props.add(key="author", value="x" * 500)
    (folder / "by_hand.onnx").write_bytes(model.SerializeToString())
    assert onnx.load(folder / "by_hand.onnx", load_external_data=False)


def _onnx_constants(folder: Path) -> None:
    """Numbers of few bits, as numbers and as bytes, and weights in a file of a folder below."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = []
    for kind in ("FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "INT4"):
        coded = helper.make_tensor(kind, getattr(TensorProto, kind), [2], [1.0, -2.0])
        raw = numpy_helper.from_array(numpy_helper.to_array(coded), kind)
        nodes.extend(
            helper.make_node("Constant", [], [f"{kind}_{way}"], value=tensor)
            for way, tensor in (("coded", coded), ("raw", raw))
        )
    weights = [
        TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
        for name in ("beside", "below")
    ]
    for tensor, location in zip(weights, ("./weights.data", "sub/weights.data"), strict=True):
        tensor.external_data.add(key="location", value=location)
        tensor.external_data.add(key="offset", value="64")
    nodes.append(helper.make_node("Add", ["beside", "below"], ["y"]))
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])]
    graph = helper.make_graph(nodes, "constants", [], given, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "constants.onnx").write_bytes(model.SerializeToString())
    assert onnx.load(folder / "constants.onnx", load_external_data=False)


def _onnx_weights(folder: Path) -> None:
    """A folded normalisation, weights in constants, quantised ones, sizes that no value has, and an empty branch."""
    from onnx import TensorProto, helper

    def tensor(name: str, kind: int, *shape: int) -> Any:
        return helper.make_tensor(name, kind, shape, [1] * max(1, torch.Size(shape).numel()))

    def scoped(node: Any, *scopes: str) -> Any:
        told = {
            "name_scopes": ["", *scopes, "call"],
            "class_hierarchy": ["Net", *(f"nn.{each}" for each in scopes), "op"],
        }
        for key, value in told.items():
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=str(value))
        return node

    value, node = helper.make_tensor_value_info, helper.make_node
    empty = helper.make_graph([], "empty", [], [value("bn", TensorProto.FLOAT, None)])
    full = helper.make_graph([node("Neg", ["bn"], ["minus"])], "full", [], [value("minus", TensorProto.FLOAT, None)])
    nodes = [
        scoped(node("Conv", ["x", "conv.weight", "conv.bias"], ["bn"], "conv"), "bn"),
        node("Constant", [], ["fc.w_0"], value=tensor("w", TensorProto.FLOAT, 4, 4)),
        node("Constant", [], ["table"], value=tensor("t", TensorProto.INT64, 3, 4)),
        scoped(node("If", ["flag"], ["chosen"], "choose", then_branch=empty, else_branch=full)),
        node("DynamicQuantizeLinear", ["chosen"], ["q", "q_scale", "q_zero"], "quantize"),
        node("MatMulInteger", ["q", "dense.weight_quantized", "q_zero", "dense.weight_zero_point"], ["i"], "multiply"),
        node("Cast", ["i"], ["f"], "cast", to=TensorProto.FLOAT),
        node("Mul", ["q_scale", "dense.weight_scale"], ["scale"], "scales"),
        node("Mul", ["f", "scale"], ["scaled"], "scaled"),
        node("Add", ["scaled", "dense.bias"], ["dense"], "add"),
        node("Gather", ["table_quantized", "at"], ["row"], "/embed/Gather"),
        node("DequantizeLinear", ["row", "table_scale"], ["embedded"], "/embed/DequantizeLinear"),
        node("Add", ["dense", "embedded"], ["sum"], "/model.1/Add"),
        node("Mul", ["sum", "/model.1/Constant_output_0"], ["most"], "/model.1/Mul"),
        node("MatMul", ["most", "fc.w_0"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes, "weights",
        [value("x", TensorProto.FLOAT, [-1, 3, 2**60, "n"]), value("at", TensorProto.INT64, []),
         value("flag", TensorProto.BOOL, [])],
        [value("y", TensorProto.FLOAT, [-1, 4])],
        [tensor("conv.weight", TensorProto.FLOAT, 4, 3, 1, 1), tensor("conv.bias", TensorProto.FLOAT, 4),
         tensor("dense.weight_quantized", TensorProto.INT8, 4, 4), tensor("dense.weight_zero_point", TensorProto.INT8),
         tensor("dense.weight_scale", TensorProto.FLOAT), tensor("dense.bias", TensorProto.FLOAT, 4),
         tensor("table_quantized", TensorProto.UINT8, 5, 4), tensor("table_scale", TensorProto.FLOAT),
         tensor("/model.1/Constant_output_0", TensorProto.FLOAT, 4)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (folder / "weights.onnx").write_bytes(model.SerializeToString())


def _pickles(folder: Path) -> None:
    net = Pictures()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    net(*PICTURE).sum().backward()
    optimizer.step()
    checkpoint = {
        "epoch": 3, "loss": 0.25, "best": [1.0, 2, "three", True], "none": None, "args": {"lr": 1e-3, "name": "it's"},
        "model": net.state_dict(), "optimizer": optimizer.state_dict(), 7: torch.arange(12.0).reshape(3, 4).t(),
        "views": [torch.zeros(10)[3:7], torch.zeros(4, dtype=torch.complex64).conj(), torch.zeros(2, 3).to_sparse()],
        "size": torch.Size([2, 3]), "device": torch.device("cuda", 1), "dtype": torch.float16, "many": list(range(30)),
    }  # fmt: skip
    torch.save(checkpoint, folder / "nested.pt")
    torch.save(net.state_dict(), folder / "state.pth")
    torch.save(torch.zeros(2, 3), folder / "alone.pt")
    plain = {
        "tensor": torch.arange(6.0).view(2, 3), "array": np.zeros((2, 3)), "number": np.float32(0.1),
        "whole": np.int64(5),         "text": "it's “☃”\n", "long": "é" * 1500, "large": 10**30,
        "floats": [1e-7, 1e20, 3.0], "none": [],
        "raw": b"ab", "set": frozenset([1]), 3: {"a": {}},
        "order": collections.OrderedDict(k=(1,), v=nn.Parameter(torch.zeros(2))),
    }  # fmt: skip
    for protocol in (0, 2, 5):
        (folder / f"plain_{protocol}.pt").write_bytes(pickle.dumps(plain, protocol))
    torch.save(net, folder / "whole.pth")
    old = {"net": net, "views": checkpoint["views"][:1]}
    with mock.patch("torch.serialization.get_source_lines_and_file", side_effect=OSError):  # which are of this computer
        torch.save(old, folder / "legacy.pth", _use_new_zipfile_serialization=False)


def _scripts(folder: Path) -> None:
    for name, script in (
        ("traced", torch.jit.trace(Shared().eval(), ROW)),
        ("scripted", torch.jit.script(Repeats())),
        ("lists", torch.jit.script(Lists())),
    ):
        path = folder / f"{name}.pt"
        torch.jit.save(script, path)
        _rewrite(path, lambda member: not member.endswith(".debug_pkl"))  # they name files of this computer


def _rewrite(path: Path, keeps: Callable[[str], bool]) -> None:
    """Write an archive of torch without some of its members."""
    reader = torch._C.PyTorchFileReader(str(path))
    members = {name: reader.get_record(name) for name in reader.get_all_records() if keeps(name)}
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, content in members.items():
        if name not in (".data/serialization_id", "version"):  # the writer adds its own
            writer.write_record(name, content, len(content))
    writer.write_end_of_file()
