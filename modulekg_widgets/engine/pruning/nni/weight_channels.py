"""Output and input channels of a layer's weight, for masks by channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.inference.inference import Inference
from modulekg_widgets.engine.axes.inference.layers import CONVOLUTION, EMBEDDING, Layer
from modulekg_widgets.engine.axes.terms.algebra import Term, atoms, find
from modulekg_widgets.engine.axes.terms.call import Call
from modulekg_widgets.engine.axes.terms.term_positions import occurrences
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import LINEAR, traits_of
from modulekg_widgets.engine.tracing.dataflow import DataNode

Side = Literal["out", "into"]
Flags = NDArray[np.bool_]
Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class WeightChannels:
    """A layer's weight as (groups, outputs of a group, inputs of a group, the rest), and back."""

    layer: Layer
    out: int  # the dimension of the weight that has the outputs, of one group when the convolution is transposed
    into: int
    groups: int
    transposed: bool

    @staticmethod
    def of(layer: Layer, inference: Inference) -> WeightChannels | None:
        """The channel layout of a layer; None if its weight is no matrix of outputs and inputs."""
        transposed = False
        if layer.kind == CONVOLUTION:
            call = Call(layer.calls[0], inference.algebra, inference.dims, inference.roles)
            transposed = bool(call.has("transposed") and call["transposed"])
        groups = layer.groups if layer.kind == CONVOLUTION else 1
        sizes = (layer.out.size, layer.into.size // groups)
        if transposed:
            sizes = (layer.out.size // groups, layer.into.size)
        if layer.kind == CONVOLUTION:
            at = (1, 0) if transposed else (0, 1)
        elif layer.kind == EMBEDDING:
            at = (1, 0)
        else:
            at = _matrix_dims(layer, inference, sizes)
        shape = layer.weight.shape
        if at is None or len(shape) < 2 or (shape[at[0]], shape[at[1]]) != sizes:
            return None
        return WeightChannels(layer, *at, groups, transposed)

    def term(self, side: Side) -> Term:
        return self.layer.out if side == "out" else self.layer.into

    def size(self, side: Side) -> int:
        return self.term(side).size

    def unmasked_channels(self, keep: Tensor, side: Side) -> Flags:
        """The channels with at least one unmasked entry."""
        grid = self._grid(keep)
        return grid.flatten(3).any(3).any(2 if side == "out" else 1).flatten().numpy()

    def expand_to_weight(self, channels: Flags | Tensor, side: Side) -> Tensor:
        """A mask in the weight's shape from one entry for each channel."""
        entries = torch.as_tensor(channels, device="cpu").reshape(self.groups, -1)
        entries = entries[:, :, None] if side == "out" else entries[:, None, :]
        shape = self.layer.weight.shape
        out, into = shape[self.out], shape[self.into]
        if self.transposed:
            grid = entries.expand(self.groups, out, into // self.groups).transpose(0, 1).reshape(out, into)
        else:
            grid = entries.expand(self.groups, out // self.groups, into).reshape(out, into)
        grid = grid.t() if self.out > self.into else grid
        rest = [1 if at not in (self.out, self.into) else size for at, size in enumerate(shape)]
        return grid.reshape(rest).expand(shape).clone()

    def _grid(self, keep: Tensor) -> Tensor:
        grid = keep.movedim((self.out, self.into), (0, 1))
        grid = grid.reshape(*grid.shape[:2], -1)
        out, into, rest = grid.shape
        if self.transposed:
            return grid.reshape(out, self.groups, into // self.groups, rest).transpose(0, 1)
        return grid.reshape(self.groups, out // self.groups, into, rest)


def _matrix_dims(layer: Layer, inference: Inference, sizes: tuple[int, int]) -> tuple[int, int] | None:
    """The output and input dimension of a matrix weight: by sizes, by axes, then by strides."""
    shape, dims = layer.weight.shape, inference.dims(layer.weight)
    places = range(len(shape))
    fits = [(o, i) for o in places for i in places if o != i and (shape[o], shape[i]) == sizes]
    if len(fits) > 1:
        named = [(o, i) for o, i in fits if find(dims[o]) is find(layer.out) and find(dims[i]) is find(layer.into)]
        fits = named or fits
    if len(fits) > 1:
        # square and of one axis: a view of the weight shows by its strides which dimension is summed over
        operand = _operand_strides(layer)
        if operand is not None:
            strides = [layer.weight.stride[at] for at in places]
            laid = [(o, i) for o, i in fits if (strides[o], strides[i]) == operand]
            fits = laid or fits
    return fits[0] if fits else None


def _operand_strides(layer: Layer) -> tuple[int, int] | None:
    """The strides of outputs and inputs in the weight operand of the operator."""
    call = OperatorCall(layer.calls[0])
    if traits_of(call.overload).layer == LINEAR:
        form, out, into = call.inputs[1], 0, -1
    elif call.name == "mv" or not layer.calls[0].outputs:
        return None
    else:
        x, form = call.inputs[-2:]
        out, into = -1, -2
        if _is_view_of_weight(x, layer) and not _is_view_of_weight(form, layer):
            form, out, into = x, -2, -1
    return (form.stride[out], form.stride[into]) if len(form.stride) >= 2 else None


def _is_view_of_weight(node: DataNode, layer: Layer) -> bool:
    """True if a value is the weight or a view of it."""
    return node is layer.weight or node.storage is layer.weight.storage


# -------------------------------------------------------------- channels to axes


def masked_indices(term: Term, unmasked: Flags) -> dict[Term, Flags]:
    """The indices of each atom of a dimension with no unmasked position."""
    removed: dict[Term, Flags] = {}
    for atom, index in occurrences(term):
        if atom is not None:
            lives = np.bincount(index[(index >= 0) & unmasked], minlength=atom.size) > 0
            removed[atom] = removed.get(atom, True) & ~lives  # type: ignore[assignment]
    return {atom: flags for atom, flags in removed.items() if flags.any()}


def grouped_axes(sides: WeightChannels) -> frozenset[Term]:
    """The axes that a grouped convolution keeps apart, with input and output in the same group."""
    if sides.groups == 1:
        return frozenset()
    by_side = [_index_by_group(sides.term(side), sides.groups) for side in ("out", "into")]
    return frozenset(atom for atom, groups in by_side[0].items() if np.array_equal(groups, by_side[1].get(atom)))  # type: ignore


def _index_by_group(term: Term, groups: int) -> dict[Term, NDArray[np.int64]]:
    """The atoms whose index is constant within each group, with that index."""
    indices = {}
    inside = set(atoms(term))
    for atom, index in occurrences(term):
        rows = index.reshape(groups, -1)
        if atom in inside and (rows == rows[:, :1]).all():
            indices[atom] = rows[:, 0]
    return indices
