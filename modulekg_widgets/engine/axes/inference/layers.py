"""The layers of a model as its data flow shows them: operators that multiply activations by a weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from modulekg_widgets.engine.axes.terms.algebra import ONE, Term
from modulekg_widgets.engine.axes.terms.call import Call
from modulekg_widgets.engine.operators import traits as kinds
from modulekg_widgets.engine.operators.arguments import effective_name
from modulekg_widgets.engine.operators.traits import (
    CONVOLUTION,
    EMBEDDING,
    LENGTH,
    LINEAR,
    RECURRENT,
    Traits,
    traits_of,
)
from modulekg_widgets.engine.tracing.dataflow import INPUT, DataNode, OperatorNode
from modulekg_widgets.engine.tracing.unregistered_tensors import BUFFER, PARAMETER

if TYPE_CHECKING:
    from modulekg_widgets.engine.axes.inference.inference import Inference

LayerMatch = tuple[str, DataNode, Term, Term]  # kind, weight, and the terms on both sides
Sources: TypeAlias = "tuple[Layer, ...]"
MAX_SOURCES = 8  # more layers than this behind a value are the residual stream, no projection of it


@dataclass(eq=False, slots=True)
class Layer:
    """A weight and the dimensions on both sides of it; `calls` are the operators that use it, in order."""

    kind: str
    weight: DataNode
    label: str  # the parameter's dotted name, of several the one in the module that made the call
    into: Term
    out: Term
    groups: int = 1
    name: str = ""
    calls: list[OperatorNode] = field(default_factory=list[OperatorNode])

    @property
    def depthwise(self) -> bool:
        """True if every channel is a group of its own."""
        return 1 < self.groups == self.into.size

    def __repr__(self) -> str:
        return f"<Layer {self.name}: {self.into!r} → {self.out!r}>"


class Layers:
    """All layers in the order in which they ran.

    A layer has the name of its module, or where a module has several that of its weight. With `buffers` weights are
    buffers of values, too, by which activations are multiplied: frozen ones and those of converters are kept so.
    """

    def __init__(self, inference: Inference, buffers: bool = False) -> None:
        self.inference = inference
        self._buffers = buffers
        self.at: dict[int, list[Layer]] = {}  # by the index of the operator
        self._every: dict[tuple[int, str], Layer] = {}
        self._traits = [traits_of(operator.overload) for operator in inference.graph.operators]
        values = inference.graph.values
        # what is made of parameters and constants alone: the parameter that it is a form of, or None
        self._bare: dict[int, DataNode | None] = {
            node.index: node if node.kind == PARAMETER or (buffers and may_be_weight(node)) else None
            for node in values
            if node.producer is None and node.kind != INPUT
        }
        for operator in inference.graph.operators:
            self._follow(operator)
        self._give_names()

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._every.values())

    def __len__(self) -> int:
        return len(self._every)

    def traits(self, operator: OperatorNode) -> Traits:
        """Returns the traits of an operator, or of the operator in its `like=`."""
        return self._traits[operator.index]

    def name(self, operator: OperatorNode) -> str:
        """The plain name of an operator, or of the one that it is like."""
        return effective_name(operator.overload)

    def call(self, operator: OperatorNode) -> Call:
        """An operator's call with its arguments by name."""
        inference = self.inference
        return Call(operator, inference.algebra, inference.dims, inference.roles)

    def is_activation(self, node: DataNode) -> bool:
        """True if a value depends on more than parameters and constants."""
        return node.index not in self._bare

    def owner(self, operator: OperatorNode) -> str:
        """The module of a normalisation: that of what it has learnt or counted, else the one that called it."""
        own = (node.label for node in self.call(operator).inputs[1:] if node.kind in (PARAMETER, BUFFER))
        return next((owner_and_attribute(label)[0] for label in own), operator.module)

    def sources(self) -> list[Sources | None]:
        """By the index of a value: the layers nearest above it; None where they are too many to be its projection."""
        every: list[Sources | None] = [()] * len(self.inference.graph.values)
        for operator in self.inference.graph.operators:
            own = self.at.get(operator.index)
            # a depthwise convolution projects nothing: its channels are those of its input
            found = tuple(own) if own and not own[0].depthwise else _merged([every[n.index] for n in operator.inputs])
            if found != ():
                for node in operator.outputs:
                    every[node.index] = found
        return every

    # ---------------------------------------------------------- following

    def _follow(self, operator: OperatorNode) -> None:
        traits = self._traits[operator.index]
        if traits.layer:
            found = self._FINDERS[traits.layer](self, self.call(operator))
            if self._buffers:
                found = [entry for entry in found if entry[1].is_parameter or self._carries(operator, *entry)]
            if found:
                self.at[operator.index] = [self._layer(operator, entry) for entry in found]
                return
        bare = self._bare
        for node in operator.inputs:
            if node.index not in bare:
                return
        kept = None
        if traits.moves or traits.pointwise or traits.normalizes == LENGTH:
            forms = [form for node in operator.inputs if (form := bare[node.index]) is not None]
            kept = max(forms, key=lambda form: (form.is_parameter, form.numel()), default=None)
        for node in operator.outputs:
            bare[node.index] = kept

    def _carries(self, operator: OperatorNode, kind: str, weight: DataNode, into: Term, out: Term) -> bool:
        """True if a buffer is a layer's weight: it multiplies activations, and is neither embedding nor depthwise."""
        call = self.call(operator)
        depthwise = kind == CONVOLUTION and call.has("groups") and 1 < call["groups"] == into.size
        return kind != EMBEDDING and not depthwise and any(map(self.is_activation, operator.inputs))

    def _layer(self, operator: OperatorNode, found: LayerMatch) -> Layer:
        kind, weight, into, out = found
        label = next((name for name in weight.names if owner_and_attribute(name)[0] == operator.module), weight.label)
        key = (weight.index, label)
        layer = self._every.get(key)
        if layer is None:
            call = self.call(operator)
            groups = call["groups"] if kind == CONVOLUTION and call.has("groups") else 1
            layer = self._every[key] = Layer(kind, weight, label, into, out, groups)
        layer.calls.append(operator)
        return layer

    def _give_names(self) -> None:
        owners: dict[str, int] = {}
        for layer in self:
            owner, _ = owner_and_attribute(layer.label)
            owners[owner] = owners.get(owner, 0) + 1
        for layer in self:
            owner, _ = owner_and_attribute(layer.label)
            layer.name = owner if owner and owners[owner] == 1 else layer.label

    def weight(self, node: DataNode) -> DataNode | None:
        """The parameter that a value is a form of."""
        return self._bare.get(node.index)

    def _dims(self, node: DataNode) -> list[Term]:
        return self.inference.dims(node)

    # ------------------------------------------------- one finder a family

    def _of_product(self, call: Call) -> list[LayerMatch]:
        left, right = call.inputs[-2:]
        if left.dim() < 2 or right.dim() < 2:
            return []
        forms = [(node, weight) for node in (right, left) if (weight := self.weight(node)) is not None]
        form, weight = max(forms, key=lambda each: each[1].is_parameter, default=(None, None))
        if form is None or weight is None:
            return []
        *_, rows, columns = self._dims(form)
        return [(LINEAR, weight, rows, columns) if form is right else (LINEAR, weight, columns, rows)]

    def _of_matrix_and_vector(self, call: Call) -> list[LayerMatch]:
        matrix, _ = call.inputs[-2:]
        weight = self.weight(matrix)
        out, into = self._dims(matrix)
        return [] if weight is None else [(LINEAR, weight, into, out)]

    def _of_linear(self, call: Call) -> list[LayerMatch]:
        node = call.inputs[1]
        weight, dims = self.weight(node), self._dims(node)
        return [] if weight is None else [(LINEAR, weight, dims[-1], dims[0] if len(dims) > 1 else ONE)]

    def _of_convolution(self, call: Call) -> list[LayerMatch]:
        x, node = call.inputs[:2]
        weight = self.weight(node)
        if weight is None or call.output.dim() != x.dim():
            return []
        channels = x.dim() - (node.dim() - 2) - 1
        return [(CONVOLUTION, weight, self._dims(x)[channels], self._dims(call.output)[channels])]

    def _of_bilinear(self, call: Call) -> list[LayerMatch]:
        node = call.inputs[1]
        weight, dims = self.weight(node), self._dims(node)
        return [] if weight is None else [(LINEAR, weight, dims[-2], dims[0])]

    def _of_embedding(self, call: Call) -> list[LayerMatch]:
        node = call.inputs[0]
        weight = self.weight(node)
        if weight is None or node.dim() != 2:
            return []
        rows, width = self._dims(node)
        return [(EMBEDDING, weight, rows, width)]

    def _of_recurrent(self, call: Call) -> list[LayerMatch]:
        found: list[LayerMatch] = []
        for node in call.inputs:
            weight = self.weight(node)
            if weight is not None and node.dim() == 2:
                out, into = self._dims(node)
                found.append((RECURRENT, weight, into, out))
        return found

    _FINDERS: ClassVar[dict[str, Callable[[Layers, Call], list[LayerMatch]]]] = {
        kinds.MATRIX_PRODUCT: _of_product,
        kinds.VECTOR_PRODUCT: _of_matrix_and_vector,
        LINEAR: _of_linear,
        CONVOLUTION: _of_convolution,
        kinds.BILINEAR: _of_bilinear,
        EMBEDDING: _of_embedding,
        RECURRENT: _of_recurrent,
    }


def may_be_weight(node: DataNode) -> bool:
    """True if a buffer can be the weight of a layer, by dtype and shape."""
    return node.is_buffer and node.dtype.is_floating_point and node.dim() > 1


def _merged(every: list[Sources | None]) -> Sources | None:
    found: Sources = ()
    for sources in every:
        if sources is None:
            return None
        if not found:
            found = sources
        elif sources and sources is not found:
            found = tuple(dict.fromkeys(found + sources))
    return found if len(found) <= MAX_SOURCES else None


def owner_and_attribute(name: str) -> tuple[str, str]:
    """`layer1.conv.weight` as its module and attribute; a parametrized tensor belongs to the module that has it."""
    owner, _, attribute = name.rpartition(".")
    if ".parametrizations." in f".{owner}":
        owner, _, attribute = f".{owner}".rpartition(".parametrizations.")
        owner = owner.removeprefix(".")
    return owner, attribute
