"""Module lists that belong to an axis, as the experts in a `ModuleList` to the rows of their router.

Code selects an element by its number, which it compares with the router's choice. Candidates are found by their length,
and proved as axes are: permuting rows and elements together must leave the outputs unchanged.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import torch
from torch import nn

from modulekg_widgets.engine.axes.inference.inference import ListsOfDimensions
from modulekg_widgets.engine.axes.proof.list_proof import ListProof, Lists
from modulekg_widgets.engine.axes.proof.operator_proofs import ProvableAxes
from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, find, flattened_parts
from modulekg_widgets.engine.errors import TraceError
from modulekg_widgets.engine.torch_runtime.modules import IndexedChildren, index_prefix
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleNode

log = logging.getLogger("modulekg_widgets")
MAX_PARAMETERS = 300_000_000  # of a model that is run in float64 for the proof


def infer_axes(graph: Dataflow, free_inputs: bool = False, free_outputs: bool = False) -> ProvableAxes:
    """The axes of a traced model, with the lists of modules that go with them."""
    axes = ProvableAxes(graph, free_inputs, free_outputs)
    likely = _candidates(axes)
    while likely:
        found = ProvableAxes(graph, free_inputs, free_outputs, likely)
        proved = _proved_dimensions(found, likely)
        if proved == likely:
            return found
        likely = proved
    return axes


def _candidates(axes: ProvableAxes) -> ListsOfDimensions:
    """The dimensions of weights that may be of a router, each with the lists that are as long."""
    graph = axes.graph
    lists = [each for path, node in graph.modules.items() if (each := _alternatives(graph, path, node)) is not None]
    if not lists or not _can_be_proved(graph):
        return {}
    found: dict[tuple[str, int], tuple[IndexedChildren, ...]] = {}
    for each in lists:
        for dimension in _routers(axes, each.path, len(graph.modules[each.path].sub_modules)):
            found[dimension] = (*found.get(dimension, ()), each)
    return found


def _can_be_proved(graph: Dataflow) -> bool:
    held = [node for node in dict.fromkeys(graph.state.values()) if node.tensor is not None]
    return sum(node.numel() for node in held) <= MAX_PARAMETERS and not any(node.tensor.is_meta for node in held)  # type: ignore[union-attr]


def _alternatives(graph: Dataflow, path: str, node: ModuleNode) -> IndexedChildren | None:
    """Returns a list of parallel modules of one class with own weights, of which none feeds another; else None."""
    prefix = index_prefix(node.sub_modules) if isinstance(node.module, nn.ModuleList | nn.ModuleDict) else None
    elements = list(node.sub_modules.values())
    if prefix is None or len(elements) < 2 or len({id(element.module) for element in elements}) < len(elements):
        return None
    called = [element for element in elements if element.calls]
    if len({type(element.module) for element in elements}) > 1 or not called or _is_chain(called):
        return None
    modules = IndexedChildren(path, prefix)
    return modules if _have_like_weights(graph, modules, len(elements)) else None


def _have_like_weights(graph: Dataflow, modules: IndexedChildren, count: int) -> bool:
    """True if all elements of a list have tensors of the same names and shapes, and share none."""
    found: list[dict[str, tuple[int, ...]]] = [{} for _ in range(count)]
    for node in dict.fromkeys(graph.state.values()):
        own = [place for name in node.names if (place := modules.split(name)) is not None]
        if own and (len(own) < len(node.names) or len({number for number, _ in own}) > 1):
            return False
        for number, name in own:
            found[number][name] = node.shape
    return bool(found[0]) and all(weights == found[0] for weights in found)


def _is_chain(called: list[ModuleNode]) -> bool:
    return any(set(one.outputs) & set(other.inputs) for one, other in itertools.pairwise(called))


def _routers(axes: ProvableAxes, path: str, count: int) -> list[tuple[str, int]]:
    """The dimensions of that size from which code picks single indices, in the module with the list or around that."""
    around = [path.rpartition(".")[0], path.rpartition(".")[0].rpartition(".")[0]]
    for home in dict.fromkeys(around):
        prefix = f"{home}." if home else ""
        nodes = [
            node for node in dict.fromkeys(axes.graph.state.values())
            if node.is_parameter and node.label.startswith(prefix) and not node.label.startswith(f"{path}.")
        ]  # fmt: skip
        found = dict(reversed(list(_selected_dimensions(axes, nodes, count))))
        if found:
            return list(found.values())
    return []


def _selected_dimensions(
    axes: ProvableAxes, nodes: list[DataNode], count: int
) -> Iterator[tuple[Term, tuple[str, int]]]:
    for node in nodes:
        for at, term in enumerate(map(find, axes.inference.dims(node)[:2])):  # kernels come behind these
            is_frozen = term.kind == ATOM and term.frozen is not None and term.frozen.operator is not None
            is_apart = term.kind == SUM and all(part.size == 1 for part in flattened_parts(term))
            if term.size == count and (is_frozen or is_apart):
                yield term, (node.label, at)


def _proved_dimensions(axes: ProvableAxes, likely: ListsOfDimensions) -> ListsOfDimensions:
    """Returns the dimensions that are proved to be permutable together with their lists."""
    terms = {dimension: axes.term(*dimension) for dimension in likely}
    asked = {axes.of(term): term.lists for term in terms.values() if term.kind == ATOM and term.lists}
    found = _prove_lists({axis: lists for axis, lists in asked.items() if axis.frozen is None}, axes)
    return {
        dimension: kept for dimension, term in terms.items()
        if (kept := tuple(each for each in likely[dimension] if each in found.get(axes.of(term), ())))
    }  # fmt: skip


def _prove_lists(asked: Lists, axes: ProvableAxes) -> Lists:
    for dtype in (torch.float64, torch.float32):  # some kernels exist for lower precision only
        try:
            return ListProof(axes, dtype).prove(asked)
        except TraceError as error:
            log.debug("no list of modules is proved to go with an axis: %s", error)
    return {}
