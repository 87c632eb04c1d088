"""A trace whose axes are proved, and slices in a form that is easy to write down."""

from __future__ import annotations

from typing import Any

from torch import nn

import modulekg_widgets as mk

Slices = dict[str, dict[int, list[int]]]


def proved(model: nn.Module, *args: Any, unknown: tuple[str, ...] = (), **kwargs: Any) -> mk.DataflowGraph:
    """The graph of a model whose free axes are permutation-equivariant, with exactly these unknown operators."""
    graph = mk.trace(model.eval(), args, kwargs)
    assert {u.operator for u in graph.unknown} == set(unknown)
    proof = graph.axes.verify()
    assert proof.ok, str(proof)
    assert proof.error < 1e-9
    return graph


def slices(graph: mk.DataflowGraph, name: str, index: list[int], dim: int = 0) -> Slices:
    """What goes from the parameters and buffers with these positions."""
    return graph.cut_analysis(name, index=index, dim=dim).parameters


def frozen(graph: mk.DataflowGraph, name: str, dim: int) -> str:
    """The reason why a dimension is frozen; it must be."""
    reason = graph.axes[name, dim].frozen
    assert reason is not None, f"{name}[{dim}] is free"
    return reason
