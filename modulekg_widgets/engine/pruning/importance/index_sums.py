"""Sums over tensors for each index of an axis; each tensor is read once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axes, ListElements
from modulekg_widgets.engine.axes.terms.algebra import ATOM, SUM, Term, find, flattened_parts
from modulekg_widgets.engine.tracing.dataflow import DataNode

Tensor = torch.Tensor
Vector = NDArray[np.float64]
Ints = NDArray[np.int64]
ElementFunction = Callable[..., Tensor]  # from tensors of one shape to a number for each of their elements
BLOCK_SIZE = 1 << 17  # elements: what one core keeps in its cache


def marginals(element: ElementFunction, tensors: Sequence[Tensor], dims: Iterable[int]) -> dict[int, Tensor]:
    """For each of `dims` the sums of an elementwise function over all other dimensions."""
    first = tensors[0]
    wanted = set(dims)
    rows = len(first)
    if first.device.type == "cpu":
        rows = max(1, BLOCK_SIZE * rows // max(first.numel(), 1))
    heads: list[Tensor] = []
    rest: Tensor | None = None
    for start in range(0, len(first), rows):
        block = element(*(tensor[start : start + rows] for tensor in tensors))
        if 0 in wanted:
            heads.append(block.sum(tuple(range(1, block.dim()))) if block.dim() > 1 else block)
        if wanted - {0}:
            part = block.sum(0)
            if rest is None:
                rest = part.double() if rows < len(first) else part
            else:
                rest += part
    sums = {0: torch.cat(heads)} if heads else {}
    for dim in wanted - {0}:
        assert rest is not None
        others = tuple(at for at in range(rest.dim()) if at != dim - 1)
        sums[dim] = rest.sum(others) if others else rest
    return sums


class IndexLayout:
    """The mapping from positions of one dimension to indices of the requested atoms.

    `targets` are places in the common vector of an `IndexSums`; position `positions[i]`, or i where that is None,
    belongs to `targets[i]`. `atoms` come in the order of the vector that `fold` gives, `starts` are their places in it.
    """

    def __init__(self, index_sums: IndexSums, term: Term) -> None:
        parts = flattened_parts(term) if find(term).kind == SUM else [find(term)]
        self.atoms: list[Term] = list(dict.fromkeys(part for part in parts if part in index_sums.starts))
        self.positions: Ints | None = None
        self._folded: Ints | None = None
        if len(self.atoms) < len(parts):
            entries = [entry for entry in _entries(term) if entry[0] in index_sums.starts]
            self.atoms = list(dict.fromkeys(atom for atom, _, _ in entries))
            starts = dict(zip(self.atoms, _start_offsets(self.atoms), strict=True))
            self.positions = _concatenate(positions for _, positions, _ in entries)
            self._folded = _concatenate(index + starts[atom] for atom, _, index in entries)
        self.starts = _start_offsets(self.atoms)
        self.sizes = np.array([atom.size for atom in self.atoms], dtype=np.int64)
        self.numbers = np.array([index_sums.numbers[atom] for atom in self.atoms], dtype=np.int64)
        # positions that each index of an atom has
        self.multiplicity = np.ones(len(self.atoms), dtype=np.int64)
        if self._folded is not None:
            self.multiplicity = np.bincount(self._folded, minlength=int(self.sizes.sum()))[self.starts]
        self.vector_indices = _concatenate(
            np.arange(index_sums.starts[a], index_sums.starts[a] + a.size) for a in self.atoms
        )
        self.targets = self.vector_indices if self._folded is None else self.vector_indices[self._folded]

    def fold(self, vector: Vector) -> Vector:
        """The sums over the positions of each index, atom after atom."""
        if self.positions is None or self._folded is None:
            return vector
        sums = np.bincount(self._folded, weights=vector[self.positions], minlength=len(self.vector_indices))
        return sums.astype(np.float64, copy=False)


def _entries(term: Term) -> Iterator[tuple[Term, Ints, Ints]]:
    """The atoms of a term, each with its positions and their indices."""
    term = find(term)
    if term.kind == ATOM:
        every = np.arange(term.size)
        yield term, every, every
    elif term.kind == SUM:
        start = 0
        for part in flattened_parts(term):
            for atom, positions, index in _entries(part):
                yield atom, positions + start, index
            start += part.size
    elif term.order is not None:
        places = np.argsort(term.order)
        for atom, positions, index in _entries(flattened_parts(term)[0]):
            yield atom, places[positions], index
    else:
        outer, inner = 1, term.size
        for part in flattened_parts(term):
            inner //= part.size
            for atom, positions, index in _entries(part):
                grid = (np.arange(outer)[:, None, None] * part.size + positions[:, None]) * inner + np.arange(inner)
                yield atom, grid.reshape(-1), np.broadcast_to(index[:, None], grid.shape).reshape(-1)
            outer *= part.size


def _concatenate(parts: Iterable[Ints]) -> Ints:
    arrays = list(parts)
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def _start_offsets(every: Sequence[Term]) -> Ints:
    return np.cumsum([0, *(atom.size for atom in every[:-1])])[: len(every)]


class IndexSums:
    """One number for each index of the requested atoms in one vector, with the weights for a mean."""

    def __init__(self, axes: Axes, terms: Iterable[Term]) -> None:
        self.axes = axes
        self.atoms = [atom for atom in dict.fromkeys(map(find, terms)) if atom.kind == ATOM]
        self.starts = dict(zip(self.atoms, _start_offsets(self.atoms).tolist(), strict=True))
        self.numbers = {atom: number for number, atom in enumerate(self.atoms)}
        self.size = sum(atom.size for atom in self.atoms)
        self.total = np.zeros(self.size)
        self.weights = np.zeros(len(self.atoms))
        self._layouts: dict[Term, IndexLayout | None] = {}

    def layout(self, term: Term) -> IndexLayout | None:
        """The layout of a dimension; None if no requested atom lies on it."""
        term = find(term)
        if term not in self._layouts:
            layout = IndexLayout(self, term)
            self._layouts[term] = layout if layout.atoms else None
        return self._layouts[term]

    def layouts(self, node: DataNode) -> dict[int, IndexLayout]:
        """The layouts of the dimensions of a value that have a requested atom."""
        every = ((at, self.layout(term)) for at, term in enumerate(self.axes.inference.dims(node)))
        return {at: layout for at, layout in every if layout is not None}

    # -------------------------------------------------------------- counting

    def add(self, layout: IndexLayout, folded: Vector, depth: int) -> None:
        """Add the sums of one member with equal weight for each element."""
        self.total[layout.vector_indices] += folded
        self.weights[layout.numbers] += layout.multiplicity * depth

    def add_relative(self, layout: IndexLayout, folded: Vector, depth: int = 1) -> None:
        """Add the sums relative to the member's mean over the atom.

        A member's weight grows with the logarithm of the elements that an index has in it: a large member does not
        drown the small ones, nor does a lone bias outvote a filter. A member of zeros has none.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            means = np.add.reduceat(folded, layout.starts) / layout.sizes
            says = np.where(means != 0, 1 + np.log(layout.multiplicity * depth), 0.0)
            self.total[layout.vector_indices] += folded * np.repeat(
                says / np.where(means != 0, means, 1.0), layout.sizes
            )
        self.weights[layout.numbers] += says

    def add_all(
        self,
        element: ElementFunction,
        weights: Mapping[DataNode, Sequence[Tensor]],
        count: Callable[[IndexLayout, Vector, int], None],
        dimensions: Container[tuple[DataNode, int]] | None = None,
    ) -> None:
        """Pass the folded sums of an elementwise function over all tensors to `count`.

        With `dimensions` for these dimensions only.
        """
        added: list[tuple[IndexLayout, int]] = []
        vectors: list[Tensor] = []
        for node, tensors in weights.items():
            layouts = self.layouts(node)
            if dimensions is not None:
                layouts = {at: layout for at, layout in layouts.items() if (node, at) in dimensions}
            if layouts:
                for at, sums in marginals(element, tensors, layouts).items():
                    added.append((layouts[at], tensors[0].numel() // len(sums)))
                    vectors.append(sums)
        for layout, parts in self._list_elements(weights) if dimensions is None else ():
            added.append((layout, parts[0][0].numel()))
            vectors.append(torch.stack([_total(element, tensors) for tensors in parts]))
        for (layout, depth), vector in zip(added, to_numpy(vectors), strict=True):
            count(layout, layout.fold(vector), depth)

    def _list_elements(
        self, values: Mapping[DataNode, Sequence[Tensor]]
    ) -> Iterator[tuple[IndexLayout, list[Sequence[Tensor]]]]:
        """The tensors of list elements that belong to requested atoms, as if they were stacked."""
        for axis, nodes in ListElements(self.axes).parallel_tensors():
            layout = self.layout(axis.term)
            if layout is not None and all(node in values for node in nodes):
                yield layout, [values[node] for node in nodes]

    # --------------------------------------------------------------- results

    def sum_of(self, atom: Term) -> Vector:
        """The sums of an atom."""
        start = self.starts[find(atom)]
        return self.total[start : start + atom.size].copy()

    @property
    def counted_atoms(self) -> list[Term]:
        """The atoms with at least one summand."""
        return [atom for atom, number in self.numbers.items() if self.weights[number]]

    def sums(self) -> dict[Term, Vector]:
        """The sums by atom."""
        return {atom: self.sum_of(atom) for atom in self.atoms}

    def means(self) -> dict[Term, Vector]:
        """The means by atom; zeros without any summand."""
        return {atom: self.sum_of(atom) / max(self.weights[number], 1) for atom, number in self.numbers.items()}


def _total(element: ElementFunction, tensors: Sequence[Tensor]) -> Tensor:
    """The sum of an elementwise function over tensors of one shape."""
    values = [tensor.reshape(-1) for tensor in tensors]
    return marginals(element, values, [0])[0].double().sum()


def relative_to_mean(values: Vector) -> Vector:
    """The values divided by their mean, unless it is 0."""
    return values / (values.mean() or 1.0)


def to_numpy(vectors: Sequence[Tensor]) -> list[Vector]:
    """The vectors as float64 NumPy arrays, copied from their device at once."""
    if not vectors:
        return []
    if len({vector.device for vector in vectors}) > 1:
        return [vector.cpu().double().numpy() for vector in vectors]
    joined = torch.cat(list(vectors)).cpu().double().numpy()
    return np.split(joined, np.cumsum([len(vector) for vector in vectors])[:-1])


def positions_of(term: Term, atom: Term) -> Ints:
    """(atom.size, k): row i holds the positions of index i in a dimension, ascending in each occurrence of the atom."""
    columns = [
        positions[np.argsort(index, kind="stable")].reshape(atom.size, -1)
        for other, positions, index in _entries(term)
        if other is find(atom)
    ]
    return np.concatenate(columns, axis=1) if columns else np.empty((atom.size, 0), dtype=np.int64)


def rows_of(axes: Axes, term: Term, node: DataNode, at: int, tensor: Tensor) -> Tensor:
    """(term.size, k): row i holds the entries of a tensor that belong to index i along dimension `at`; a copy."""
    positions = torch.from_numpy(positions_of(axes.inference.dims(node)[at], term).reshape(-1))
    return tensor.detach().index_select(at, positions.to(tensor.device)).movedim(at, 0).reshape(term.size, -1)
