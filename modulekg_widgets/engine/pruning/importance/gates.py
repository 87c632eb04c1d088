"""Gates: a factor on every index of some axes, applied where layers read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.terms.algebra import Term, find
from modulekg_widgets.engine.pruning.importance.index_sums import IndexSums, Vector, positions_of
from modulekg_widgets.engine.pruning.importance.members import WeightDim, reading_dims
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor


class Gates:
    """The factors of some atoms as one vector, and the parameters that they multiply.

    An index that layers read is shut off exactly where they read it, whatever stands between, as a normalisation. An
    axis that no layer reads, as that of queries and keys, has its factors on all its members.
    """

    def __init__(self, axes: Axes, terms: Sequence[Term]) -> None:
        self.index_sums = IndexSums(axes, terms)
        self.size = self.index_sums.size
        self._factor_indices: dict[DataNode, list[tuple[int, Tensor]]] = {}  # per dimension the factor of each position
        reading = reading_dims(axes)
        with torch.inference_mode(False):  # gradients go through what these tensors pick
            for atom in self.index_sums.atoms:
                for node, at in _gated_dimensions(axes, atom, reading):
                    self._factor_indices.setdefault(node, []).append((at, self._factors(axes, atom, node, at)))

    def __contains__(self, node: DataNode) -> bool:
        return node in self._factor_indices

    def factor(self, node: DataNode, gates: Tensor) -> Tensor:
        """The factor of a parameter, in a shape that broadcasts over it."""
        own = torch.cat([gates, gates.new_ones(1)])
        product: Tensor | None = None
        for at, places in self._factor_indices[node]:
            shape = [1] * node.dim()
            shape[at] = -1
            each = own[places.to(gates.device)].reshape(shape)
            product = each if product is None else product * each
        assert product is not None
        return product

    def probes(self, count: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Probe vectors of random signs and zeros whose supports partition the indices, evenly on each axis.

        With as many as an axis has indices, each of them is alone in one.
        """
        parts = [torch.randperm(atom.size, generator=generator, device="cpu") % count for atom in self.index_sums.atoms]
        classes = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device="cpu")
        signs = 2.0 * torch.randint(0, 2, (self.size,), generator=generator, device="cpu") - 1
        for number in range(int(classes.max()) + 1 if len(classes) else 0):
            yield signs * (classes == number)

    def by_atom(self, vector: Vector) -> dict[Term, Vector]:
        """The parts of a vector by atom."""
        starts = self.index_sums.starts
        return {atom: vector[start : start + atom.size] for atom, start in starts.items()}

    def _factors(self, axes: Axes, atom: Term, node: DataNode, at: int) -> Tensor:
        """The factor index of each position of a dimension; positions without one get the last."""
        places = torch.full((node.shape[at],), self.size, device="cpu")
        positions = torch.from_numpy(positions_of(axes.inference.dims(node)[at], atom))
        start = self.index_sums.starts[atom]
        places[positions.reshape(-1)] = torch.arange(start, start + atom.size, device="cpu").repeat_interleave(
            positions.shape[1]
        )
        return places


def _gated_dimensions(axes: Axes, atom: Term, reading: set[WeightDim]) -> list[WeightDim]:
    places = [place for place in axes.tensor_dims.get(find(atom), ()) if place[0].is_parameter]
    return [place for place in places if place in reading] or places
