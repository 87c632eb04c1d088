"""What masks ask of the axes, and what of it can be done: an index goes when masks zero it before every reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from modulekg_widgets.engine.axes.cut_analysis import Keeps
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers
from modulekg_widgets.engine.axes.inference.liveness import live_operators
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.axes.terms.expression import kept
from modulekg_widgets.engine.pruning.nni.mask_files import INPUT, MaskReading, TensorMask
from modulekg_widgets.engine.pruning.nni.mask_sides import Flags, Side, through_groups, whole_indices
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

Tensor = torch.Tensor
Zeros = dict[Term, Flags]  # of an axis the indices that are zeroed


@dataclass(frozen=True, slots=True)
class Ask:
    """What one mask asks of one dimension."""

    name: str  # the layer, or the tensor where it is none
    module: str
    target: str
    node: DataNode
    side: Side | int  # of a layer's weight, else the dimension
    layer: Layer | None
    term: Term
    alive: Flags = field(repr=False)  # the positions that it leaves
    zeros: Zeros = field(repr=False)  # the indices that it zeroes in all their positions
    gates: tuple[OperatorNode, ...] = field(default=(), repr=False)  # that multiply what flows by the tensor


class MaskAgreement:
    """What the masks ask for, and what of it goes: `keeps` has the indices that stay of each axis that loses some."""

    def __init__(self, reading: MaskReading, conv_prune_dim: int | None) -> None:
        self.reading = reading
        self.axes = reading.axes
        self.layers = reading.layers
        self.conv_prune_dim = conv_prune_dim
        self.asks = list(_asks(reading, conv_prune_dim))
        self.asked: Zeros = {}
        for ask in self.asks:
            _add(self.asked, ask.zeros)
        read = _Ways(self).read
        self.keeps: Keeps = {}
        for atom, asked in self.asked.items():
            goes = asked & ~read.get(atom, np.zeros(atom.size, dtype=bool))
            if atom.frozen is None and goes.any():
                self.keeps[atom] = ~goes

    @property
    def emptied(self) -> list[Term]:
        """The axes that would lose all of their indices."""
        return [atom for atom, keep in self.keeps.items() if not keep.any()]

    def goes(self, ask: Ask) -> Flags:
        """The positions that go of the dimension that an ask is about."""
        return ~kept(ask.term, self.keeps)

    def given_up(self, ask: Ask) -> Flags:
        """The positions that a mask zeroes and that stay."""
        return ~ask.alive & ~self.goes(ask)

    def fixed(self, mask: TensorMask) -> Tensor:
        """A given mask without what is given up; a bias follows its weight."""
        back = torch.zeros_like(mask.keep)
        for ask in self._by_node.get(mask.node, ()):
            if ask.layer is not None:
                back |= self.reading.sides[ask.layer].spread(self.given_up(ask), ask.side)  # type: ignore[arg-type]
            elif (ask.module, ask.target) == (mask.module, mask.target):  # not the masks of others on it
                back.index_fill_(ask.side, _where(self.given_up(ask)), True)  # type: ignore[arg-type]
        keep = mask.keep | back
        for at, term in enumerate(self.axes.inference.dims(mask.node)):
            stays = torch.from_numpy(kept(term, self.keeps)).reshape([-1 if at == i else 1 for i in range(keep.dim())])
            keep &= stays | mask.keep  # what goes along one dimension does not come back along another
        if keep.dim() == 1 and mask.node not in self._by_node:
            for ask in self.asks:
                if ask.module == mask.module and ask.side in ("out", 0) and ask.term.size == len(keep):
                    keep[_where(self.given_up(ask))] = True
                    keep[_where(~ask.alive & self.goes(ask))] = False
        return keep

    @cached_property
    def _by_node(self) -> dict[DataNode, list[Ask]]:
        found: dict[DataNode, list[Ask]] = defaultdict(list)
        for ask in self.asks:
            found[ask.node].append(ask)
        return found


def _add(zeros: Zeros, more: Zeros) -> None:
    for atom, flags in more.items():
        before = zeros.get(atom)
        zeros[atom] = flags if before is None else before | flags


def _where(flags: Flags) -> Tensor:
    return torch.from_numpy(np.flatnonzero(flags))


# --------------------------------------------------------------------- asks


def _asks(reading: MaskReading, conv_prune_dim: int | None) -> Iterator[Ask]:
    weights = {layer.weight for layer in reading.sides}
    given = {mask.node: mask for mask in reversed(reading.masks)}
    sides: list[Side] = [side for side, dim in (("out", 0), ("into", 1)) if conv_prune_dim in (dim, None)]  # type: ignore
    for layer, parts in reading.sides.items():
        keep = reading.keep.get(layer.weight)
        for side in sides if keep is not None else ():
            term, alive = parts.term(side), parts.alive(keep, side)  # type: ignore[arg-type]
            if not alive.all():
                zeros = whole_indices(term, alive)
                first = given[layer.weight]
                yield Ask(layer.name, first.module, first.target, layer.weight, side, layer, term, alive, zeros)
    for mask in reading.masks:
        gates = () if mask.node in weights or mask.on_value else tuple(_scaled_by(mask.node, reading.layers))
        if not (gates or mask.on_value):
            continue  # a bias, say: it follows the weight
        name = mask.module if mask.target == "weight" else mask.name
        for dim, term in enumerate(reading.axes.inference.dims(mask.node)):
            gone = mask.slices.get(dim)
            if gone:
                alive = np.ones(term.size, dtype=bool)
                alive[gone] = False
                zeros = whole_indices(term, alive)
                yield Ask(name, mask.module, mask.target, mask.node, dim, None, term, alive, zeros, gates)


def _scaled_by(node: DataNode, layers: Layers) -> Iterator[OperatorNode]:
    """The operators that multiply what flows by a parameter, as gains of norms do."""
    waiting, seen = [node], {node}
    while waiting:
        form = waiting.pop()
        for operator in form.consumers:
            traits = layers.traits(operator)
            if traits.scales:
                if layers.call(operator).get("weight") is form:
                    yield operator
            elif any(layers.is_activation(other) for other in operator.inputs):
                if traits.multiplies:
                    yield operator
            elif traits.keeps_zero or traits.moves:
                waiting += [out for out in operator.outputs if out not in seen]
                seen.update(operator.outputs)


# --------------------------------------------------------------------- ways


@dataclass(slots=True)
class _Crossing:
    """What an operator with weights does to the axes: it reads some, makes some, and keeps some apart by groups."""

    reads: Zeros = field(default_factory=dict)  # with the indices that the weights ignore
    makes: Zeros = field(default_factory=dict)  # with the indices that the weights leave zero
    apart: frozenset[Term] = frozenset()


class _Ways:
    """Follow the asked indices from the layers that make them; `read` are those that arrive at a reader."""

    def __init__(self, agreement: MaskAgreement) -> None:
        self.layers = agreement.layers
        self.sides = agreement.reading.sides
        self.inference = agreement.axes.inference
        self.asked = set(agreement.asked)
        self.by_layer: dict[tuple[Layer, Side | int], Zeros] = {}
        self.gates: dict[int, Zeros] = defaultdict(dict)  # by operator: what it zeroes of all that goes through
        self.closed: dict[int, Zeros] = defaultdict(dict)  # by value: what a mask on it zeroes
        self.at_readers: dict[tuple[int, int], Zeros] = defaultdict(dict)  # by value and operator that reads it
        for ask in agreement.asks:
            self._place(ask)
        self.read: Zeros = {}
        self.open: dict[int, Zeros] = {}  # by value: the indices that arrive there
        live = live_operators(agreement.axes.graph)
        for operator in agreement.axes.graph.operators:
            if operator in live:
                self._cross(operator)

    def _place(self, ask: Ask) -> None:
        """Note what a mask zeroes at the value where it does so."""
        if ask.layer is not None:
            self.by_layer[ask.layer, ask.side] = ask.zeros
            apart = through_groups(self.sides[ask.layer])
            zeros = {atom: flags for atom, flags in ask.zeros.items() if atom in apart}
            for operator in ask.layer.calls if zeros else ():
                _add(self.gates[operator.index], zeros)
        elif ask.gates:
            for operator in ask.gates:
                _add(self.gates[operator.index], ask.zeros)
        elif ask.target.startswith(INPUT):
            for operator in self.inference.graph.modules[ask.module].operators:
                _add(self.at_readers[ask.node.index, operator.index], ask.zeros)
        else:
            _add(self.closed[ask.node.index], ask.zeros)

    def _cross(self, operator: OperatorNode) -> None:
        coming: Zeros = {}
        for node in operator.inputs:
            doors = self.at_readers.get((node.index, operator.index), {})
            _add(coming, _without(self.open.get(node.index, {}), doors))
        layers = self.layers.at.get(operator.index, ())
        if not coming and not layers:
            return
        crossing = self._crossing(layers)
        going: set[Term] = set()
        for node in operator.outputs:
            inside = self._asked_in(node)
            going |= inside
            found: Zeros = {}
            for atom in inside:
                if atom in crossing.makes:
                    _add(found, {atom: ~crossing.makes[atom]})
                if atom in coming and (atom not in crossing.makes or atom in crossing.apart):
                    _add(found, {atom: coming[atom]})
            found = _without(found, self.gates.get(operator.index, {}))
            if node.previous is not None:
                _add(found, self.open.get(node.previous.index, {}))
            self.open[node.index] = _without(found, self.closed.get(node.index, {}))
        for atom, flags in coming.items():
            if atom in crossing.apart:
                continue
            if atom in crossing.reads:
                _add(self.read, {atom: flags & ~crossing.reads[atom]})
            elif atom not in going and not self.layers.traits(operator).moves:
                _add(self.read, {atom: flags})

    def _crossing(self, layers: Iterable[Layer]) -> _Crossing:
        crossing = _Crossing()
        for layer in layers:
            sides = self.sides.get(layer)
            apart = frozenset() if sides is None else through_groups(sides)
            crossing.apart |= apart
            ends: tuple[tuple[Zeros, Term, Side], ...]
            ends = (crossing.reads, layer.into, "into"), (crossing.makes, layer.out, "out")
            for table, term, side in ends:
                zeros = self.by_layer.get((layer, side), {})
                for atom in self.asked.intersection(atoms(term)) - apart:
                    flags = zeros.get(atom, np.zeros(atom.size, dtype=bool))
                    # several weights at one operator: zero is what all of them leave zero
                    table[atom] = table[atom] & flags if atom in table else flags
        return crossing

    def _asked_in(self, node: DataNode) -> set[Term]:
        return {atom for term in self.inference.dims(node) for atom in atoms(term)} & self.asked


def _without(zeros: Zeros, closed: Zeros) -> Zeros:
    if not closed:
        return zeros
    found = {atom: flags & ~closed[atom] if atom in closed else flags for atom, flags in zeros.items()}
    return {atom: flags for atom, flags in found.items() if flags.any()}
