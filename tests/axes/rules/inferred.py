"""What the rules find on an example: the graph of the call alone, and its terms in writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from axes.rules.harness import Example
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.terms.algebra import ATOM, PRODUCT, Term, atoms, find, flattened_parts
from modulekg_widgets.engine.operators.recorded_call import nodes_in
from modulekg_widgets.engine.torch_runtime.pytree import tensors, with_tensors
from modulekg_widgets.engine.tracing.dataflow import INPUT, RESULT, DataNode, OperatorNode, Storage


class _Calls(nn.Module):
    """Calls the operator of an example."""

    def __init__(self, of: Example) -> None:
        super().__init__()
        self.example = (of,)

    def forward(self, *inputs: torch.Tensor) -> Any:
        (of,) = self.example
        given = {id(own): other for own, other in zip(of.inputs, inputs, strict=True)}
        args, kwargs = with_tensors((of.args, of.kwargs), lambda t: given[id(t)])
        return of.overload(*args, **kwargs)


def has_kernel(overload: Any, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)


def is_recorded_whole(of: Example) -> bool:
    """Whether a trace meets the operator itself: it is not taken apart before, and it runs here."""
    return of.run is None and not has_kernel(of.overload, "CompositeImplicitAutograd")


def graph_of(of: Example) -> DataflowGraph:
    """The graph of the call alone: traced where a trace meets the operator, else put together by hand."""
    if not of.title and not is_recorded_whole(of):
        return _by_hand(of)
    graph = mk.trace(_Calls(of), tuple(of.inputs))
    if of.title:
        return graph
    first, *rest = graph.operators
    # some views are detached in the same call
    assert first.overload is of.overload
    assert {operator.name for operator in rest} <= {"aten::detach"}
    return graph


def _by_hand(of: Example) -> DataflowGraph:
    graph = DataflowGraph(_Calls(of))
    nodes: dict[int, DataNode] = {}

    def node(tensor: torch.Tensor) -> DataNode:
        if id(tensor) not in nodes:
            kind = INPUT if operator is None else RESULT
            nodes[id(tensor)] = DataNode(graph, tensor, kind, Storage(), f"tensor_{len(nodes)}")
        return nodes[id(tensor)]

    operator = None
    args, kwargs = with_tensors((of.args, of.kwargs), node)
    graph.inputs = list(nodes.values())
    every = [part for _, t in tensors((of.args, of.kwargs)) for part in [nodes[id(t)]]]
    operator = OperatorNode(graph, 0, of.overload, args, kwargs, every, "", None)
    results = of.result(of.inputs)
    kept = [t for _, t in tensors(results)]  # alive, so that no id comes twice
    operator.result = with_tensors(results, node)
    operator.outputs = graph.outputs = [nodes[id(t)] for t in kept]
    for given in graph.inputs:
        given.consumers.append(operator)
    for made in graph.outputs:
        made.producer, made.is_output = operator, True
    graph.operators.append(operator)
    return graph


class Inferred:
    """The terms of one example, free wherever the rule leaves them free."""

    def __init__(self, of: Example) -> None:
        self.example = of
        self.graph = graph_of(of)
        self.axes: Axes = self.graph.free_axes(inputs=True, outputs=True)
        self.inputs = self.graph.inputs
        self.results = self.graph.outputs if of.title else nodes_in(self.graph.operators[0].result)

    @cached_property
    def free(self) -> list[Term]:
        """The free atoms, in the order in which they are written."""
        every = [atom for node in (*self.inputs, *self.results) for term in self.dims(node) for atom in atoms(term)]
        return [atom for atom in dict.fromkeys(every) if atom.size > 1 and atom.frozen is None]

    def dims(self, node: DataNode) -> list[Term]:
        return [find(term) for term in self.axes.inference.dims(node)]

    def reasons(self) -> Iterator[str]:
        for node in (*self.inputs, *self.results):
            for term in self.dims(node):
                yield from (atom.frozen.text for atom in atoms(term) if atom.frozen is not None)

    @property
    def compared(self) -> list[DataNode]:
        """The nodes of `values_after`."""
        return [*self.results[: self.example.values], *self.inputs] if self.example.values != 0 else []

    def __str__(self) -> str:
        names = {atom: chr(ord("a") + at) for at, atom in enumerate(self.free)}
        sides = [
            ", ".join(" ".join(_written(term, names) for term in self.dims(node)) or "()" for node in side)
            for side in (self.inputs, self.results)
        ]
        return f"{sides[0]} -> {sides[1] or 'none'}".strip()


def _written(term: Term, names: Mapping[Term, str]) -> str:
    term = find(term)
    if term.kind == ATOM:
        if term.size == 1:
            return "1"
        return ("~" if term.filler is not None and term in names else "") + names.get(term, ".")
    parts = [_written(part, names) for part in flattened_parts(term)]
    return f"({' '.join(parts)})" if term.kind == PRODUCT else f"({'+'.join(parts)})"
