"""Modules in modules, as deep as Python lets the plain model run: hearing of the calls needs no more depth."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks


def nested(depth: int) -> nn.Module:
    net: nn.Module = nn.Linear(2, 2)
    for _ in range(depth):
        net = nn.Sequential(net)
    return net


def deepest_plain() -> int:
    """How deep a model may be for `model(x)` to run here, to the next ten."""
    depth = 10
    with torch.no_grad():
        while True:
            try:
                nested(depth + 10)(torch.ones(1, 2))
            except RecursionError:
                return depth
            depth += 10


def test_what_runs_is_traced_however_deep_its_modules_lie() -> None:
    depth, limit = deepest_plain(), sys.getrecursionlimit()
    model, x = nested(depth), torch.ones(1, 2)
    graph = mk.trace(model, args=(x,))
    assert [operator.name for operator in graph.operators] == ["aten::t", "aten::addmm"]
    widget = mk.ModelGraph(model, args=(x,))
    assert widget.payload["error"] is None
    assert len(widget.payload["flow"]["calls"]["node"]) == depth + 1
    assert sys.getrecursionlimit() == limit


def test_a_model_without_end_still_stops_and_the_limit_is_put_back() -> None:
    class Endless(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self(x)

    limit = sys.getrecursionlimit()
    with pytest.raises(TraceError, match="RecursionError"):
        mk.trace(Endless(), args=(torch.ones(1, 2),))
    assert sys.getrecursionlimit() == limit


def test_a_limit_that_the_model_sets_itself_is_left_alone() -> None:
    limit = sys.getrecursionlimit()
    try:
        with module_call_hooks([], lambda *_: None, lambda *_: None):
            with module_call_hooks([], lambda *_: None, lambda *_: None):
                assert sys.getrecursionlimit() == 2 * limit
            assert sys.getrecursionlimit() == 2 * limit
            sys.setrecursionlimit(3 * limit)
        assert sys.getrecursionlimit() == 3 * limit
    finally:
        sys.setrecursionlimit(limit)
