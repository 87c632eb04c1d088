"""The members of an axis that count for its importance: weights and gains, but no biases or tables.

Weights that produce or read an axis count, and so do the gains of normalizations on it. Biases,
position tables and class tokens do not: they only shift an index. It is decided by the data flow,
never by names. `members="weights"` is the default of `L1` and `L2`, `members="all"` counts everything.
An axis with none of these is scored by all its members.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from modulekg_widgets.engine.axes.axis import Axes, ListElements
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.deprecation import DEPRECATED, Deprecation, ModuleKGDeprecationWarning
from modulekg_widgets.engine.errors import UnknownNameError, closest_match_hint, printable
from modulekg_widgets.engine.operators import traits as kinds
from modulekg_widgets.engine.tracing.dataflow import INPUT, DataNode, OperatorNode

Value = TypeVar("Value")
WeightDim = tuple[DataNode, int]
WEIGHTS_ONLY, ALL_MEMBERS = "weights", "all"
_VOTES = Deprecation("votes=", "0.2.0", "0.4.0", "members= of mk.pruning.L1 and mk.pruning.L2")
DEPRECATED.append(_VOTES)


def check_members(members: str, votes: str | None = None) -> str:
    """The argument itself, or `votes`, its deprecated name; raises `UnknownNameError` for an unknown choice."""
    if votes is not None:
        warnings.warn(str(_VOTES), ModuleKGDeprecationWarning, stacklevel=3)
        members = votes
    if members not in (WEIGHTS_ONLY, ALL_MEMBERS):
        raise UnknownNameError(
            f"members={printable(str(members))!r}: {closest_match_hint(str(members), (WEIGHTS_ONLY, ALL_MEMBERS))}"
        )
    return members


def members_by_atoms(
    axes: Axes, terms: Iterable[Term], weights: Mapping[DataNode, Value], members: str = WEIGHTS_ONLY
) -> Iterator[tuple[list[Term], dict[DataNode, Value]]]:
    """Pairs of atoms and the parameters that score them; atoms without scoring weights use all."""
    every = list(dict.fromkeys(map(find, terms)))
    having = scoring_weights(axes) if members == WEIGHTS_ONLY else set()
    voting = {node: values for node, values in weights.items() if node in having}
    voted = {atom for node in voting for term in axes.inference.dims(node) for atom in atoms(term)}
    for some, who in (([term for term in every if term in voted], voting),
                      ([term for term in every if term not in voted], dict(weights))):  # fmt: skip
        if some:
            yield some, who


def scoring_weights(axes: Axes) -> set[DataNode]:
    """The weights of layers and their source parameters, tables that data look up, and gains.

    What votes in one element of a list, as in an expert, does so in all: not every one need have got data.
    """
    layers = Layers(axes.inference, buffers=True)
    depends = _input_dependent_values(axes)
    weights = set(_gains(axes, layers))
    for operator in axes.graph.operators:
        for weight in _weights_on_data_path(operator, layers, depends):
            weights.update(_source_parameters(weight, layers))
        weights.update(
            layer.weight for layer in layers.at.get(operator.index, ()) if layer.weight in axes.weight_buffers
        )
    for _, nodes in ListElements(axes).parallel_tensors():
        weights.update(nodes if not weights.isdisjoint(nodes) else ())
    return weights


def weights_along(axes: Axes) -> Counter[Term]:
    """The number of weight dimensions along each atom, without gains and added parameters."""
    having = scoring_weights(axes)
    every = {layer.weight for layer in Layers(axes.inference, buffers=True)} & having
    dims = (term for weight in every for term in axes.inference.dims(weight))
    return Counter(atom for term in dims for atom in dict.fromkeys(atoms(term)))


def _weights_on_data_path(operator: OperatorNode, layers: Layers, depends: set[int]) -> Iterator[DataNode]:
    """The weight operands through which an operator passes input-dependent values."""
    traits = layers.traits(operator)
    if not any(node.index in depends for node in operator.inputs):
        return  # a table that no data look up, as one of positions, is the same whatever comes in
    if traits.index and operator.inputs and not layers.is_activation(operator.inputs[0]):
        yield operator.inputs[0]
    for layer in layers.at.get(operator.index, ()):
        yield from _weight_operands(layer, operator, layers)


def _input_dependent_values(axes: Axes) -> set[int]:
    """The indices of the values that depend on an input."""
    dependent = {node.index for node in axes.graph.values if node.kind == INPUT}
    for operator in axes.graph.operators:
        if any(node.index in dependent for node in operator.inputs):
            dependent.update(node.index for node in operator.outputs)
    return dependent


def _weight_operands(layer: Layer, operator: OperatorNode, layers: Layers) -> Iterator[DataNode]:
    """The operands of an operator that are a layer's weight, or a view of it."""
    return (node for node in operator.inputs if layers.weight(node) is layer.weight and node.dim() > 1)


def _source_parameters(node: DataNode, layers: Layers) -> Iterator[DataNode]:
    """The parameters that a value is computed from."""
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
    """The parameters that scale a normalization, or that multiply a value elementwise."""
    return _gains(axes, Layers(axes.inference, buffers=True))


def _gains(axes: Axes, layers: Layers) -> list[DataNode]:
    gains_of_layers: dict[DataNode, None] = {}
    for operator in axes.graph.operators:
        gain = None
        traits = layers.traits(operator)
        if traits.scales:
            gain = layers.call(operator).get("weight")
        elif traits.multiplies:
            learnt = [node for node in operator.inputs if not layers.is_activation(node)]
            gain = learnt[0] if len(learnt) == 1 < len(operator.inputs) else None
        own = None if gain is None else _source_parameter(gain, layers)
        if own is not None:
            gains_of_layers[own] = None
    return list(gains_of_layers)


def _source_parameter(node: DataNode, layers: Layers) -> DataNode | None:
    """The parameter that a value is a view or a copy of; None if it was computed."""
    while not node.is_parameter:
        operator = node.producer
        if operator is None or len(operator.inputs) != 1 or not _only_moves_elements(operator, layers):
            return None
        node = operator.inputs[0]
    return node


def _only_moves_elements(operator: OperatorNode, layers: Layers) -> bool:
    traits = layers.traits(operator)
    return traits.copies or traits.moves


# ------------------------------------------------------------------- readers


def reading_dims(axes: Axes) -> set[WeightDim]:
    """The weight dimensions through which layers read their input."""
    layers = Layers(axes.inference, buffers=True)
    dims: set[WeightDim] = set()
    for layer in layers:
        for operator in layer.calls:
            for form in _weight_operands(layer, operator, layers):
                dims.update((layer.weight, at) for at in _reading_dims_of(layer, form, operator, layers))
    return dims


def _reading_dims_of(layer: Layer, form: DataNode, operator: OperatorNode, layers: Layers) -> Sequence[int]:
    dims = layers.inference.dims(layer.weight)
    into, out = set(atoms(layer.into)), set(atoms(layer.out))
    able = [at for at, term in enumerate(dims) if not into.isdisjoint(atoms(term))]
    alone = [at for at in able if out.isdisjoint(atoms(dims[at]))]
    if alone:
        return alone
    # what it reads and what it makes are one axis, as on a residual stream: here the place tells
    at = _operand_reading_dim(layers.traits(operator).layer, form, operator, layers)
    moved = None if at is None else _weight_dim_of(form, at, layer.weight, layers)
    return [moved] if moved in able and not layer.depthwise else []


def _operand_reading_dim(kind: str, form: DataNode, operator: OperatorNode, layers: Layers) -> int | None:
    if kind == kinds.CONVOLUTION:
        call = layers.call(operator)
        return 0 if call.has("transposed") and call["transposed"] else 1
    if kind == kinds.MATRIX_PRODUCT:
        return form.dim() - (2 if form is operator.inputs[-1] else 1)
    return None if kind == kinds.EMBEDDING else form.dim() - 1


def _weight_dim_of(form: DataNode, at: int, weight: DataNode, layers: Layers) -> int | None:
    """The weight dimension that is dimension `at` of a view of it; None if the view changes more than order."""
    while form is not weight:
        operator = form.producer
        if operator is None or not _only_moves_elements(operator, layers):
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
