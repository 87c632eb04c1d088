"""Operators that no module runs, as of sizes that are asked for, make no module up."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._export.passes._node_metadata_hook import _EMPTY_NN_MODULE_STACK_KEY

from files.nets import Sized
from modulekg_widgets.engine.files import formats as _formats  # noqa: F401
from modulekg_widgets.engine.files.graph_building import NO_MODULE
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.source import open_source


def save_pt2(program: torch.export.ExportedProgram, path: Path) -> None:
    torch.export.save(program, path)


def save_onnx(program: torch.export.ExportedProgram, path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.onnx.export(program, (), path, dynamo=True, verbose=False, external_data=False)


def test_the_name_is_that_of_torch() -> None:
    assert NO_MODULE == _EMPTY_NN_MODULE_STACK_KEY


@pytest.mark.parametrize(("ending", "save"), [(".pt2", save_pt2), (".onnx", save_onnx)])
def test_an_operator_of_no_module_is_in_that_around_it(tmp_path: Path, ending: str, save: Callable) -> None:
    net = Sized().eval()
    path = tmp_path / f"net{ending}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = {0: torch.export.Dim("batch", min=2, max=64)}
        save(torch.export.export(net, (torch.zeros(2, 8),), dynamic_shapes=(batch,)), path)
    assert NO_MODULE.encode() in path.read_bytes()
    with open_source(path) as source:
        contents = read_contents(source)
    bodies = {"true_graph_0", "false_graph_0", "then_branch", "else_branch"}
    assert contents.graph is not None
    modules = {part.path for part in contents.modules} | {operator.module for operator in contents.graph.operators}
    assert modules - bodies <= {path for path, _ in net.named_modules()}
    asked = next(
        operator for operator in contents.graph.operators if "sym_size" in operator.op or operator.op == "Shape"
    )
    assert asked.module == ""
