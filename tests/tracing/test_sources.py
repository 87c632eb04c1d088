"""Each call knows the module and the line that it came from, also when forward stops there."""

import contextlib
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from IPython.core.compilerop import CachingCompiler
from torch import nn
from torch.nn import functional as F

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.identity.classes import source_location

HERE = Path(__file__)
Tensor = torch.Tensor


def helper(x: Tensor) -> Tensor:
    return x.tanh()  # line: helper


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)  # line: linear
        y = F.relu(y)  # line: relu
        y = helper(y)
        return self.act(
            y + x,  # line: add
        )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.Sequential(nn.LayerNorm(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x).sum()  # line: sum


def line_of(mark: str) -> int:
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# line: {mark}"))


def test_module_and_line_of_every_call() -> None:
    graph = mk.trace(Net(), torch.randn(2, 4))
    found = [(operator.name, operator.module, operator.source.line) for operator in graph.operators]
    expected = []
    for block in ("blocks.0", "blocks.1"):
        expected += [
            ("aten::t", f"{block}.linear", line_of("linear")),
            ("aten::addmm", f"{block}.linear", line_of("linear")),
            ("aten::relu", block, line_of("relu")),
            ("aten::tanh", block, line_of("helper")),
            ("aten::add", block, line_of("add")),
            ("aten::gelu", f"{block}.act", inspect.getsourcelines(Block.forward)[1] + 4),
        ]
    assert found[:-2] == expected
    assert found[-2:] == [("aten::native_layer_norm", "norm.0", line_of("sum")), ("aten::sum", "", line_of("sum"))]
    assert {operator.source.file for operator in graph.operators} == {str(HERE)}
    assert str(graph.operators[0].source) == f"tracing/test_sources.py:{line_of('linear')}"
    assert graph.operators[2].where == f"aten::relu in blocks.0, tracing/test_sources.py:{line_of('relu')}"


def test_a_model_of_torch_alone_has_lines_of_torch() -> None:
    graph = mk.trace(nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 4))
    assert {str(operator.source).partition(":")[0] for operator in graph.operators} == {"torch/nn/modules/linear.py"}


def stopping(x: Tensor, module: nn.Module) -> Tensor:
    return module.inner(x * 2)


class Stops(nn.Module):
    def __init__(self, error: type[BaseException] | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        if self.error is not None:
            raise self.error("on purpose")  # line: raise
        return self.linear(x)  # line: misfit


def test_where_forward_stops() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Lambda(lambda module, x: stopping(x, module), inner=Stops()))
    with unchanged(model), pytest.raises(TraceError) as caught:
        mk.trace(model, torch.zeros(2, 4))
    message = str(caught.value)
    assert f"in '1.inner.linear' at tracing/test_sources.py:{line_of('misfit')}" in message
    assert "RuntimeError: " in message
    assert "(2x4 and 3x3)" in message
    assert "Its inputs were input [2, 4]" in message
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("error", [ValueError, AssertionError, StopIteration, KeyError, MemoryError])
def test_an_error_of_the_users(error: type[Exception]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Stops(error))
    with unchanged(model), pytest.raises(TraceError) as caught:
        mk.trace(model, torch.zeros(2, 4))
    assert f"in '1' at tracing/test_sources.py:{line_of('raise')}" in str(caught.value)
    assert f"{error.__name__}: " in str(caught.value)


def test_the_graph_until_there() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Stops(ValueError), nn.Linear(4, 4))
    with pytest.raises(TraceError) as caught:
        mk.trace(model, torch.zeros(2, 4))
    graph = caught.value.graph
    assert isinstance(graph, mk.DataflowGraph)
    assert [operator.name for operator in graph.operators] == ["aten::t", "aten::addmm", "aten::relu"]
    assert isinstance(graph.error, ValueError)
    assert repr(graph).endswith("stopped by ValueError>")
    assert graph.modules["1"].outputs == graph.operators[-1].outputs
    assert [len(graph.modules[path].calls) for path in ("", "2", "3")] == [1, 1, 0]
    assert graph.modules["2"].inputs == graph.modules["1"].outputs
    assert graph.modules["2"].outputs == []
    assert graph.outputs == []
    assert graph.flops().total > 0
    assert "after aten::relu in 1" in str(caught.value)


def test_an_error_that_the_model_catches() -> None:
    """The modules that raised are left as if they had returned: what follows belongs to their caller."""

    def forward(module: nn.Module, x: Tensor) -> Tensor:
        with contextlib.suppress(ValueError):
            module.stops(x)
        return module.linear(x) + 1

    model = nn.Sequential(Lambda(forward, stops=nn.Sequential(Stops(ValueError)), linear=nn.Linear(4, 4)))
    graph = mk.trace(model, torch.zeros(2, 4))
    assert graph.traced_on == "meta"
    assert [operator.module for operator in graph.operators] == ["0.linear", "0.linear", "0"]
    assert [call.end for call in graph.modules["0.stops.0"].calls] == [0]


def test_no_warning_when_forward_stops(recwarn: pytest.WarningsRecorder) -> None:
    with contextlib.suppress(TraceError):
        mk.trace(nn.Sequential(Stops(ValueError)), torch.zeros(2, 4))
    assert [str(warning.message) for warning in recwarn] == []


CELL = """class Net(nn.Module):
    def forward(self, x):
        return x.flip(1)
"""


def test_a_line_of_a_notebook_is_named_by_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that Python knows it by has a number for a name."""
    compiler = CachingCompiler()
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    names: dict[str, Any] = {"nn": nn}
    exec(compile(CELL, compiler.cache(CELL, 7), "exec"), names)
    graph = mk.trace(names["Net"](), torch.zeros(2, 4))
    assert [str(operator.source) for operator in graph.operators] == ["In[7]:3"]
    assert source_location(names["Net"]) == "In[7]:2"
    assert source_location(nn.Linear) == f"torch/nn/modules/linear.py:{nn.Linear.__init__.__code__.co_firstlineno}"
