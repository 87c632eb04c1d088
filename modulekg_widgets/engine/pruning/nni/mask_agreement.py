"""Agreement of masks along the axes: an index is removed if it is masked before every reader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.inference.layers import Layer, Layers
from modulekg_widgets.engine.axes.inference.liveness import live_operators
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms
from modulekg_widgets.engine.axes.terms.term_positions import keep_mask
from modulekg_widgets.engine.pruning.nni.mask_files import INPUT, MaskReading, TensorMask
from modulekg_widgets.engine.pruning.nni.weight_channels import Flags, Side, grouped_axes, masked_indices
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

Tensor = torch.Tensor
Zeros = dict[Term, Flags]  # of an axis the indices that are zeroed


@dataclass(frozen=True, slots=True)
class MaskRequest:
    """The request of one mask for one dimension."""

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
    """The requests of masks, and in `keeps` the remaining indices of each axis that loses some."""

    def __init__(self, reading: MaskReading, conv_prune_dim: int | None) -> None:
        self.reading = reading
        self.axes = reading.axes
        self.layers = reading.layers
        self.conv_prune_dim = conv_prune_dim
        self.requests = list(_mask_requests(reading, conv_prune_dim))
        self.requested_zeros: Zeros = {}
        for request in self.requests:
            _merge_zeros(self.requested_zeros, request.zeros)
        read = _MaskPropagation(self).zeros_at_readers
        self.keeps: KeepMasks = {}
        for atom, asked in self.requested_zeros.items():
            removed = asked & ~read.get(atom, np.zeros(atom.size, dtype=bool))
            if atom.frozen is None and removed.any():
                self.keeps[atom] = ~removed

    @property
    def emptied_axes(self) -> list[Term]:
        """The axes that would lose all indices."""
        return [atom for atom, keep in self.keeps.items() if not keep.any()]

    def removed_positions(self, request: MaskRequest) -> Flags:
        """The removed positions of the dimension of a request."""
        return ~keep_mask(request.term, self.keeps)

    def ignored_positions(self, request: MaskRequest) -> Flags:
        """The masked positions that stay."""
        return ~request.alive & ~self.removed_positions(request)

    def fixed_mask(self, mask: TensorMask) -> Tensor:
        """A mask without its ignored positions; a bias follows its weight."""
        back = torch.zeros_like(mask.keep)
        for request in self._by_node.get(mask.node, ()):
            if request.layer is not None:
                channels = self.reading.sides[request.layer]
                back |= channels.expand_to_weight(self.ignored_positions(request), request.side)  # type: ignore[arg-type]
            elif (request.module, request.target) == (mask.module, mask.target):  # not the masks of others on it
                back.index_fill_(request.side, _positions(self.ignored_positions(request)), True)  # type: ignore[arg-type]
        keep = mask.keep | back
        for at, term in enumerate(self.axes.inference.dims(mask.node)):
            stays = torch.from_numpy(keep_mask(term, self.keeps)).reshape(
                [-1 if at == i else 1 for i in range(keep.dim())]
            )
            keep &= stays | mask.keep  # what goes along one dimension does not come back along another
        if keep.dim() == 1 and mask.node not in self._by_node:
            for request in self.requests:
                if request.module == mask.module and request.side in ("out", 0) and request.term.size == len(keep):
                    keep[_positions(self.ignored_positions(request))] = True
                    keep[_positions(~request.alive & self.removed_positions(request))] = False
        return keep

    @cached_property
    def _by_node(self) -> dict[DataNode, list[MaskRequest]]:
        requests: dict[DataNode, list[MaskRequest]] = defaultdict(list)
        for request in self.requests:
            requests[request.node].append(request)
        return requests


def _merge_zeros(zeros: Zeros, more: Zeros) -> None:
    for atom, flags in more.items():
        before = zeros.get(atom)
        zeros[atom] = flags if before is None else before | flags


def _positions(flags: Flags) -> Tensor:
    return torch.from_numpy(np.flatnonzero(flags))


# --------------------------------------------------------------------- asks


def _mask_requests(reading: MaskReading, conv_prune_dim: int | None) -> Iterator[MaskRequest]:
    weights = {layer.weight for layer in reading.sides}
    masks = {mask.node: mask for mask in reversed(reading.masks)}
    sides: list[Side] = [side for side, dim in (("out", 0), ("into", 1)) if conv_prune_dim in (dim, None)]  # type: ignore
    for layer, parts in reading.sides.items():
        keep = reading.keep.get(layer.weight)
        for side in sides if keep is not None else ():
            term, alive = parts.term(side), parts.unmasked_channels(keep, side)  # type: ignore[arg-type]
            if not alive.all():
                zeros = masked_indices(term, alive)
                first = masks[layer.weight]
                yield MaskRequest(layer.name, first.module, first.target, layer.weight, side, layer, term, alive, zeros)
    for mask in reading.masks:
        gates = (
            ()
            if mask.node in weights or mask.is_on_activation
            else tuple(_scaling_operators(mask.node, reading.layers))
        )
        if not (gates or mask.is_on_activation):
            continue  # a bias, say: it follows the weight
        name = mask.module if mask.target == "weight" else mask.name
        for dim, term in enumerate(reading.axes.inference.dims(mask.node)):
            removed = mask.slices.get(dim)
            if removed:
                alive = np.ones(term.size, dtype=bool)
                alive[removed] = False
                zeros = masked_indices(term, alive)
                yield MaskRequest(name, mask.module, mask.target, mask.node, dim, None, term, alive, zeros, gates)


def _scaling_operators(node: DataNode, layers: Layers) -> Iterator[OperatorNode]:
    """The operators that multiply activations by a parameter, as gains of norms do."""
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
class _OperatorEffect:
    """The effect of an operator with weights on the axes: read, produced, or kept apart by groups."""

    reads: Zeros = field(default_factory=dict)  # with the indices that the weights ignore
    makes: Zeros = field(default_factory=dict)  # with the indices that the weights leave zero
    grouped_atoms: frozenset[Term] = frozenset()


class _MaskPropagation:
    """Propagates requested indices from producing layers; `zeros_at_readers` are those that reach a reader."""

    def __init__(self, agreement: MaskAgreement) -> None:
        self.layers = agreement.layers
        self.sides = agreement.reading.sides
        self.inference = agreement.axes.inference
        self.requested_atoms = set(agreement.requested_zeros)
        self.by_layer: dict[tuple[Layer, Side | int], Zeros] = {}
        self.gates: dict[int, Zeros] = defaultdict(dict)  # by operator: what it zeroes of all that goes through
        self.masked_values: dict[int, Zeros] = defaultdict(dict)  # by value: what a mask on it zeroes
        self.at_readers: dict[tuple[int, int], Zeros] = defaultdict(dict)  # by value and operator that reads it
        for request in agreement.requests:
            self._register(request)
        self.zeros_at_readers: Zeros = {}
        self.arriving_zeros: dict[int, Zeros] = {}  # by value: the indices that arrive there
        live = live_operators(agreement.axes.graph)
        for operator in agreement.axes.graph.operators:
            if operator in live:
                self._propagate(operator)

    def _register(self, request: MaskRequest) -> None:
        """Register what a mask zeroes at its value."""
        if request.layer is not None:
            self.by_layer[request.layer, request.side] = request.zeros
            apart = grouped_axes(self.sides[request.layer])
            zeros = {atom: flags for atom, flags in request.zeros.items() if atom in apart}
            for operator in request.layer.calls if zeros else ():
                _merge_zeros(self.gates[operator.index], zeros)
        elif request.gates:
            for operator in request.gates:
                _merge_zeros(self.gates[operator.index], request.zeros)
        elif request.target.startswith(INPUT):
            for operator in self.inference.graph.modules[request.module].operators:
                _merge_zeros(self.at_readers[request.node.index, operator.index], request.zeros)
        else:
            _merge_zeros(self.masked_values[request.node.index], request.zeros)

    def _propagate(self, operator: OperatorNode) -> None:
        coming: Zeros = {}
        for node in operator.inputs:
            doors = self.at_readers.get((node.index, operator.index), {})
            _merge_zeros(coming, _subtract_zeros(self.arriving_zeros.get(node.index, {}), doors))
        layers = self.layers.at.get(operator.index, ())
        if not coming and not layers:
            return
        crossing = self._operator_effect(layers)
        going: set[Term] = set()
        for node in operator.outputs:
            inside = self._requested_in(node)
            going |= inside
            zeros: Zeros = {}
            for atom in inside:
                if atom in crossing.makes:
                    _merge_zeros(zeros, {atom: ~crossing.makes[atom]})
                if atom in coming and (atom not in crossing.makes or atom in crossing.grouped_atoms):
                    _merge_zeros(zeros, {atom: coming[atom]})
            zeros = _subtract_zeros(zeros, self.gates.get(operator.index, {}))
            if node.previous is not None:
                _merge_zeros(zeros, self.arriving_zeros.get(node.previous.index, {}))
            self.arriving_zeros[node.index] = _subtract_zeros(zeros, self.masked_values.get(node.index, {}))
        for atom, flags in coming.items():
            if atom in crossing.grouped_atoms:
                continue
            if atom in crossing.reads:
                _merge_zeros(self.zeros_at_readers, {atom: flags & ~crossing.reads[atom]})
            elif atom not in going and not self.layers.traits(operator).moves:
                _merge_zeros(self.zeros_at_readers, {atom: flags})

    def _operator_effect(self, layers: Iterable[Layer]) -> _OperatorEffect:
        crossing = _OperatorEffect()
        for layer in layers:
            sides = self.sides.get(layer)
            apart = frozenset() if sides is None else grouped_axes(sides)
            crossing.grouped_atoms |= apart
            ends: tuple[tuple[Zeros, Term, Side], ...]
            ends = (crossing.reads, layer.into, "into"), (crossing.makes, layer.out, "out")
            for table, term, side in ends:
                zeros = self.by_layer.get((layer, side), {})
                for atom in self.requested_atoms.intersection(atoms(term)) - apart:
                    flags = zeros.get(atom, np.zeros(atom.size, dtype=bool))
                    # several weights at one operator: zero is what all of them leave zero
                    table[atom] = table[atom] & flags if atom in table else flags
        return crossing

    def _requested_in(self, node: DataNode) -> set[Term]:
        return {atom for term in self.inference.dims(node) for atom in atoms(term)} & self.requested_atoms


def _subtract_zeros(zeros: Zeros, closed: Zeros) -> Zeros:
    if not closed:
        return zeros
    remaining = {atom: flags & ~closed[atom] if atom in closed else flags for atom, flags in zeros.items()}
    return {atom: flags for atom, flags in remaining.items() if flags.any()}
