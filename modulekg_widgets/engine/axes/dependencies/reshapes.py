"""Which operators merge or split channels, or ask for a number of them, and the layers whose channels run through."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from modulekg_widgets.engine.axes.algebra import ATOM, Term, atoms, find, flat
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.dependencies.channels import branches
from modulekg_widgets.engine.axes.dependencies.views import ReshapeDependency
from modulekg_widgets.engine.axes.layers import Layer, Layers
from modulekg_widgets.engine.axes.literal_sizes import literal_sizes
from modulekg_widgets.engine.operators.traits import MATMUL, VIEW
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode


def reshape_dependency(axes: Axes) -> ReshapeDependency:
    """The operators that make one dimension of several or several of one where a layer's channels are among them.

    And those of which the code has the number of channels as a number, as `x.view(2, 8, 4, 16)`.
    """
    layers = Layers(axes.inference)
    sources = layers.sources()
    channels = {atom for layer in layers for atom in atoms(layer.out) if atom.size > 1}
    found: list[tuple[str, tuple[str, ...]]] = []
    inside = set(_inside_products(layers))
    for operator in layers.inference.graph.operators:
        if not layers.traits(operator).reshapes or operator in inside:
            continue
        source = layers.call(operator).inputs[0]
        if layers.is_activation(source):
            changed = _reshaped(layers, source, operator.outputs[0]) & channels
            above = sources[source.index] if changed else ()
            if above is None:  # the residual stream: what has its axes and ran before
                above = tuple(layer for layer in layers if layer.calls[0].index < operator.index)
            names = tuple(layer.name for layer in above if _runs_along(layer, changed))
            if names:
                found.append((operator.outputs[0].name, names))
    return ReshapeDependency(tuple(found))


def _inside_products(layers: Layers) -> Iterator[OperatorNode]:
    """The reshapes that torch itself makes of a `matmul`: what is expanded before the product, and what comes of it."""
    for operator in layers.inference.graph.operators:
        if operator.name == "aten::_unsafe_view" and _maker(operator, MATMUL):
            yield operator
        elif operator.name in MATMUL:
            for operand in operator.inputs:
                view = operand.producer
                if view is not None and view.name in VIEW:
                    whole = _maker(view, {"aten::clone"}) or view
                    if _maker(whole, {"aten::expand"}):
                        yield view


def _maker(operator: OperatorNode, names: Collection[str]) -> OperatorNode | None:
    """The operator that made what this one takes, if it is one of these."""
    maker = operator.inputs[0].producer if operator.inputs else None
    return maker if maker is not None and maker.name in names else None


def _reshaped(layers: Layers, source: DataNode, result: DataNode) -> set[Term]:
    """The axes of the dimensions that do not come out as they went in, and of those whose size stands in the code."""
    before, after = (layers.inference.dims(node) for node in (source, result))
    whole = {_written(term) for term in after}
    changed = {atom for term in before if _written(term) not in whole for atom in atoms(term)}
    literal = literal_sizes(result.producer, result.shape) if result.producer is not None else []
    return changed.union(*(atoms(after[at]) for at in literal))


def _written(term: Term) -> object:
    term = find(term)
    return term if term.kind == ATOM else (term.kind, *map(_written, flat(term)))


def _runs_along(layer: Layer, changed: set[Term]) -> bool:
    return any(part and (part <= changed or part >= changed) for part in branches(layer.out))
