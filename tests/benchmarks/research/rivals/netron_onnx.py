"""Netron: a page for files; the model becomes one by torch.onnx.export."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.netron_page import SERVER
from benchmarks.research.rivals.tool import Args, Tool, elements, program
from browser.lab import free_port


def prepare() -> object:
    import onnxscript
    import torch.onnx

    return onnxscript, torch.onnx


def make(model: nn.Module, args: Args, file: Path) -> Path:
    import torch

    path = file.with_suffix(".onnx")
    with redirect_stdout(StringIO()):
        torch.onnx.export(model, args, path, dynamo=True, verbose=False)
    return path


def drawn(file: Path) -> Drawing:
    """The file's nodes, each a box by its operator; what an export has folded away is in neither."""
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    known = {value.name for value in (*graph.value_info, *graph.input, *graph.output)}
    makers = {name: f"{place}" for place, node in enumerate(graph.node) for name in node.output}
    makers |= {value.name: value.name for value in graph.input}
    names = {f"{place}": node.op_type for place, node in enumerate(graph.node)}
    arrows = {
        (makers[name], f"{place}"): name in known
        for place, node in enumerate(graph.node)
        for name in node.input
        if name in makers
    }
    return Drawing(names, frozenset(arrows), share(arrows.values()))


@contextmanager
def served(file: Path) -> Iterator[str]:
    port = free_port()
    with program([sys.executable, "-c", SERVER, str(file), str(port)], port):
        yield f"http://127.0.0.1:{port}"


TOOL = Tool(
    name="Netron",
    package="netron",
    call="torch.onnx.export(model, args, path); netron.start(path)",
    prepare=prepare,
    make=make,
    served=served,
    drawn=drawn,
    boxes=elements("body.default #target .node"),  # before, it lays them out unseen
)
