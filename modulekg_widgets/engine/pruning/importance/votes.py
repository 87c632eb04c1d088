"""Who has a say on an axis: the weights that make or read it and the gains on it, not what is only added or joined.

A bias, a table of positions and a class token shift what an index holds; what the index carries is made and read by
weights. All of it goes by the data flow, nothing by names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from modulekg_widgets.engine.axes.axis import Axes, ListElements
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.errors import UnknownNameError, nearest, shown
from modulekg_widgets.engine.operators import traits as kinds
from modulekg_widgets.engine.tracing.dataflow import INPUT, DataNode, OperatorNode

Given = TypeVar("Given")
Place = tuple[DataNode, int]
WEIGHTS, ALL = "weights", "all"


def check_votes(votes: str) -> str:
    """The same; raises `UnknownNameError` for what is no choice of voters."""
    if votes not in (WEIGHTS, ALL):
        raise UnknownNameError(f"votes={shown(str(votes))!r}: {nearest(str(votes), (WEIGHTS, ALL))}")
    return votes


def electorates(
    axes: Axes, terms: Iterable[Term], given: Mapping[DataNode, Given], votes: str = WEIGHTS
) -> Iterator[tuple[list[Term], dict[DataNode, Given]]]:
    """Which of the `given` parameters judge which atoms; an atom that no voter runs along is judged by all."""
    every = list(dict.fromkeys(map(find, terms)))
    having = voters(axes) if votes == WEIGHTS else set()
    voting = {node: values for node, values in given.items() if node in having}
    voted = {atom for node in voting for term in axes.inference.dims(node) for atom in atoms(term)}
    for some, who in (([term for term in every if term in voted], voting),
                      ([term for term in every if term not in voted], dict(given))):  # fmt: skip
        if some:
            yield some, who


def voters(axes: Axes) -> set[DataNode]:
    """The weights of layers, all parameters that one is computed from, tables that data look up, and gains.

    What votes in one element of a list, as in an expert, does so in all: not every one need have got data.
    """
    layers = Layers(axes.inference, buffers=True)
    depends = _depending_on_data(axes)
    found = set(_gains(axes, layers))
    for operator in axes.graph.operators:
        for weight in _weights_used(operator, layers, depends):
            found.update(_parameters_behind(weight, layers))
        found.update(layer.weight for layer in layers.at.get(operator.index, ()) if layer.weight in axes.weight_buffers)
    for _, nodes in ListElements(axes).alike():
        found.update(nodes if not found.isdisjoint(nodes) else ())
    return found


def weights_along(axes: Axes) -> Counter[Term]:
    """Per atom the number of dimensions of weights that run along it; gains and what is only added are none."""
    having = voters(axes)
    every = {layer.weight for layer in Layers(axes.inference, buffers=True)} & having
    dims = (term for weight in every for term in axes.inference.dims(weight))
    return Counter(atom for term in dims for atom in dict.fromkeys(atoms(term)))


def _weights_used(operator: OperatorNode, layers: Layers, depends: set[int]) -> Iterator[DataNode]:
    """The forms of parameters across which an operator carries what depends on data."""
    traits = layers.traits(operator)
    if not any(node.index in depends for node in operator.inputs):
        return  # a table that no data look up, as one of positions, is the same whatever comes in
    if traits.index and operator.inputs and not layers.is_activation(operator.inputs[0]):
        yield operator.inputs[0]
    for layer in layers.at.get(operator.index, ()):
        yield from _forms(layer, operator, layers)


def _depending_on_data(axes: Axes) -> set[int]:
    """The indices of the values that come of an input's numbers."""
    found = {node.index for node in axes.graph.values if node.kind == INPUT}
    for operator in axes.graph.operators:
        if any(node.index in found for node in operator.inputs):
            found.update(node.index for node in operator.outputs)
    return found


def _forms(layer: Layer, operator: OperatorNode, layers: Layers) -> Iterator[DataNode]:
    """The values among an operator's inputs that are a layer's weight."""
    return (node for node in operator.inputs if layers.weight(node) is layer.weight and node.dim() > 1)


def _parameters_behind(node: DataNode, layers: Layers) -> Iterator[DataNode]:
    """The parameters that a value is computed from, and from nothing else."""
    seen, queue = {node}, [node]
    while queue:
        value = queue.pop()
        if value.is_parameter:
            yield value
        operator = value.producer
        for each in operator.inputs if operator is not None else ():
            if each not in seen and not layers.is_activation(each):
                seen.add(each)
                queue.append(each)


# --------------------------------------------------------------------- gains


def gains(axes: Axes) -> list[DataNode]:
    """The parameters that normalisations scale with, or that a value is multiplied with element by element."""
    return _gains(axes, Layers(axes.inference, buffers=True))


def _gains(axes: Axes, layers: Layers) -> list[DataNode]:
    found: dict[DataNode, None] = {}
    for operator in axes.graph.operators:
        gain = None
        traits = layers.traits(operator)
        if traits.scales:
            gain = layers.call(operator).get("weight")
        elif traits.multiplies:
            learnt = [node for node in operator.inputs if not layers.is_activation(node)]
            gain = learnt[0] if len(learnt) == 1 < len(operator.inputs) else None
        own = None if gain is None else _copied(gain, layers)
        if own is not None:
            found[own] = None
    return list(found)


def _copied(node: DataNode, layers: Layers) -> DataNode | None:
    """The parameter that a value is a view or a copy of; None for what was computed."""
    while not node.is_parameter:
        operator = node.producer
        if operator is None or len(operator.inputs) != 1 or not _moves_only(operator, layers):
            return None
        node = operator.inputs[0]
    return node


def _moves_only(operator: OperatorNode, layers: Layers) -> bool:
    traits = layers.traits(operator)
    return traits.copies or traits.moves


# ------------------------------------------------------------------- readers


def reading_places(axes: Axes) -> set[Place]:
    """The dimensions of weights through which layers read what they are given."""
    layers = Layers(axes.inference, buffers=True)
    found: set[Place] = set()
    for layer in layers:
        for operator in layer.calls:
            for form in _forms(layer, operator, layers):
                found.update((layer.weight, at) for at in _read(layer, form, operator, layers))
    return found


def _read(layer: Layer, form: DataNode, operator: OperatorNode, layers: Layers) -> Sequence[int]:
    dims = layers.inference.dims(layer.weight)
    into, out = set(atoms(layer.into)), set(atoms(layer.out))
    able = [at for at, term in enumerate(dims) if not into.isdisjoint(atoms(term))]
    alone = [at for at in able if out.isdisjoint(atoms(dims[at]))]
    if alone:
        return alone
    # what it reads and what it makes are one axis, as on a residual stream: here the place tells
    at = _place_read(layers.traits(operator).layer, form, operator, layers)
    moved = None if at is None else _place_before(form, at, layer.weight, layers)
    return [moved] if moved in able and not layer.depthwise else []


def _place_read(kind: str, form: DataNode, operator: OperatorNode, layers: Layers) -> int | None:
    if kind == kinds.CONVOLUTION:
        call = layers.call(operator)
        return 0 if call.has("transposed") and call["transposed"] else 1
    if kind == kinds.MATRIX_PRODUCT:
        return form.dim() - (2 if form is operator.inputs[-1] else 1)
    return None if kind == kinds.EMBEDDING else form.dim() - 1


def _place_before(form: DataNode, at: int, weight: DataNode, layers: Layers) -> int | None:
    """The dimension of a weight that is dimension `at` of a form of it; None where more than order was changed."""
    while form is not weight:
        operator = form.producer
        if operator is None or not _moves_only(operator, layers):
            return None
        before = next((node for node in operator.inputs if layers.weight(node) is weight), None)
        if before is None or sorted(before.shape) != sorted(form.shape):
            return None
        if layers.traits(operator).reorders:
            if before.dim() != 2:
                return None
            at = 1 - at
        form = before
    return at
