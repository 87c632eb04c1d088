"""The memory that a file takes in the kernel: no more than three times its header and a fixed amount, no weights."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

FIXED = 100 << 20  # bytes
TIMES = 3
MB = 1 << 20
PROGRAM = """
import sys
import modulekg_widgets as mk

def memory(kind):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))

def look(path):
    file = mk.open_file(path)
    return file, file.hierarchy(), str(file.hierarchy().fold()), file.graph

look(sys.argv[1])  # imports are paid
before = memory("VmRSS")
file, modules, text, graph = look(sys.argv[2])
print(len(file.contents.tensors), graph and len(graph), len(text), memory("VmHWM") - before)
"""


def write_safetensors(path: Path, count: int) -> int:
    """Experts of a hundred layers, with a hole for the weights; the bytes of its header."""
    entries = {}
    for at in range(count):
        layer, rest = divmod(at, 500)
        name = f"model.layers.{layer}.mlp.experts.{rest // 2}.{('up_proj', 'down_proj')[rest % 2]}.weight"
        entries[name] = {"dtype": "BF16", "shape": [64, 128], "data_offsets": [at * 16384, (at + 1) * 16384]}
    header = json.dumps(entries, separators=(",", ":")).encode()  # as the library writes it
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + count * 16384)
    return len(header)


def write_onnx(path: Path, count: int) -> int:
    """A chain of operators, with two hundred holes for weights; the bytes of all but those."""
    helper = pytest.importorskip("onnx").helper
    proto = pytest.importorskip("onnx").TensorProto
    weights = [f"layers.{at}.weight" for at in range(200)]
    nodes = [
        helper.make_node("MatMul", [f"v{at}", weights[at * 200 // count]], [f"v{at + 1}"], f"/layers.{at}/MatMul")
        for at in range(count)
    ]
    value = [helper.make_tensor_value_info(name, proto.FLOAT, ["n", 512]) for name in ("v0", f"v{count}")]
    graph = helper.make_graph(nodes, "chain", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    operators = model.graph.SerializeToString()
    model.ClearField("graph")
    heads = [
        proto(name=name, data_type=proto.FLOAT, dims=[512, 512]).SerializeToString() + b"\x4a" + varint(MB)
        for name in weights
    ]
    heads = [b"\x2a" + varint(len(head) + MB) + head for head in heads]
    before = model.SerializeToString() + b"\x3a" + varint(len(operators) + sum(len(head) + MB for head in heads))
    with open(path, "wb") as file:
        file.write(before + operators)
        for head in heads:
            file.write(head)
            file.truncate(file.seek(MB, 1))
    return len(before) + len(operators) + sum(map(len, heads))


def varint(number: int) -> bytes:
    """As protocol buffers write it: seven bits to a byte, the last ones first."""
    low = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(part | 128 for part in low[:-1]), low[-1]])


def write_checkpoint(path: Path, count: int) -> int:
    """Many small tensors; the bytes of its pickle and of the archive's directory."""
    torch.save({f"layers.{at // 2}.{('weight', 'bias')[at % 2]}": torch.zeros(4) for at in range(count)}, path)
    with zipfile.ZipFile(path) as archive:
        pickled = next(each.file_size for each in archive.infolist() if each.filename.endswith("data.pkl"))
        return pickled + path.stat().st_size - archive.start_dir


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
@pytest.mark.parametrize(
    ("ending", "write", "count"),
    [
        (".safetensors", write_safetensors, 50_000),
        (".onnx", write_onnx, 10_000),
        (".pth", write_checkpoint, 20_000),
    ],
)
@pytest.mark.slow
def test_a_large_file_takes_little_more_memory_than_its_header(
    tmp_path: Path, ending: str, write: Callable[[Path, int], int], count: int
) -> None:
    write(tmp_path / f"small{ending}", 20)
    header = write(tmp_path / f"large{ending}", count)
    command = [sys.executable, "-c", PROGRAM, *(str(tmp_path / f"{size}{ending}") for size in ("small", "large"))]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()
    tensors, operators, taken = told[0], told[1], int(told[3])
    assert (tensors, operators) == (("200", str(count + 2)) if ending == ".onnx" else (str(count), "None"))
    assert taken <= TIMES * header + FIXED, f"{taken / MB:,.0f} MB for a header of {header / MB:,.1f} MB"
