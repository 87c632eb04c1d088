"""Draft: which indices of each axis go, drawn by hand in the mask editor, and the plan that it comes to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.algebra import Term
from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.errors import CutError, UnknownAxisError, nearest, shown
from modulekg_widgets.engine.pruning.importance.scoring import score
from modulekg_widgets.engine.pruning.importance.votes import weights_along
from modulekg_widgets.engine.pruning.plan.choice import Choice
from modulekg_widgets.engine.pruning.plan.modes import widest
from modulekg_widgets.engine.pruning.plan.plan import plan
from modulekg_widgets.engine.pruning.plan.pruning_plan import PruningPlan
from modulekg_widgets.engine.pruning.plan.request import Importance
from modulekg_widgets.engine.pruning.plan.size_terms import ModelSizes, SizeTerms, size_terms
from modulekg_widgets.engine.tracing.trace import REAL

Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Report:
    """What the dry run made of a draft."""

    plan: PruningPlan
    sizes: tuple[ModelSizes, ModelSizes]  # before and after
    kept: dict[int, list[int]]  # per axis the indices that the draft drops and the plan keeps
    taken: dict[int, list[int]]  # per axis those that the plan drops beside


class Draft:
    """The indices that go from each axis of a traced model; every change is made wholly or not at all.

    `revision` grows with every change; a draft that takes the place of another goes on counting from there. The bits of
    an axis are packed into bytes: bit i is bit i % 8 of byte i // 8, and 1 where the index goes.
    """

    def __init__(self, graph: DataflowGraph, revision: int = 0) -> None:
        self.graph = graph
        wide = widest(graph)  # as `plan` does: what train mode alone reads is cut along
        self._wide = wide
        self.axes: tuple[Axis, ...] = tuple(wide.axes)
        self.revision = revision
        widths = [(axis.size + 7) // 8 for axis in self.axes]
        self._starts = np.cumsum([0, *widths]).tolist()
        self._bytes = np.zeros(self._starts[-1], dtype=np.uint8)  # never changed in place: another thread may read it
        self._changing = threading.Lock()
        self._plan: PruningPlan | None = None
        self._planned = -1  # the revision that the plan is of

    # ------------------------------------------------------------ looking

    @cached_property
    def by_ratio(self) -> frozenset[int]:
        """The axes that a ratio may take from together: of no two that multiply one dimension both."""
        return frozenset(axis.number for axis in Choice(self._wide.axes, "index", None, None).independent())

    @cached_property
    def size_terms(self) -> SizeTerms:
        """The size of the model as a formula in the counts of the axes."""
        counted = self._wide if self.graph.traced_on == REAL else self.graph
        return size_terms(self._wide.axes, counted.axes)

    def number(self, name: str) -> int:
        """The number of the axis of that name; raises `UnknownAxisError`."""
        found = self._wide.axes.named(name)
        if found is None:
            names = [axis.name for axis in self.axes]
            raise UnknownAxisError(f"there is no axis {shown(name)!r}: {nearest(name, names)}")
        return found.number

    def goes(self, axis: int) -> Bits:
        """(size,): whether each index of an axis goes."""
        return _unpacked(self._of(axis), self.axes[axis].size)

    @property
    def dropped(self) -> dict[str, list[int]]:
        """The indices that go, by the names of the axes that lose some."""
        found = {axis.name: np.flatnonzero(self.goes(axis.number)).tolist() for axis in self.axes}
        return {name: indices for name, indices in found.items() if indices}

    def packed(self) -> bytes:
        """All bits, each axis from a byte of its own."""
        return self._bytes.tobytes()

    def drawn(self) -> tuple[int, dict[int, bytes]]:
        """The revision, and the bits of the axes that lose indices."""
        with self._changing:
            revision, content = self.revision, self._bytes
        parts = (content[start:stop] for start, stop in itertools.pairwise(self._starts))
        return revision, {number: part.tobytes() for number, part in enumerate(parts) if part.any()}

    def sizes(self) -> tuple[ModelSizes, ModelSizes]:
        """The sizes of the model before and after, without a dry run."""
        full = [axis.size for axis in self.axes]
        left = {axis.number: axis.size - int(self.goes(axis.number).sum()) for axis in self.axes}
        return self.size_terms.sizes({}, full), self.size_terms.sizes(left, full)

    @property
    def summary(self) -> str:
        """How many axes lose indices, and what that makes of the parameters, without a dry run."""
        before, after = self.sizes()
        return f"{len(self.dropped)} axes lose indices, parameters {before.params:,} → {after.params:,}"

    @cached_property
    def weights(self) -> Mapping[Term, int]:
        """Per axis the weights along it, with which its scores are multiplied where all axes are ranked together."""
        return weights_along(self._wide.axes)

    def scores(self, importance: Importance) -> bytes:
        """How important each index is, larger for more: float64 of all axes in turn, NaN on frozen ones."""
        found = score(self._wide.axes, [axis.term for axis in self.axes if axis.frozen is None], importance)
        nothing = (np.full(axis.size, np.nan) for axis in self.axes)
        parts = [found.get(axis.term, none) for axis, none in zip(self.axes, nothing, strict=True)]
        return b"".join(part.astype("<f8").tobytes() for part in parts)

    # ----------------------------------------------------------- changing

    def draw(self, bits: Mapping[int, bytes], revision: int) -> bool:
        """Drop exactly the indices of these bits, by axis; False where the draft is not at `revision` any more.

        Raises `CutError` where an axis is frozen or would lose all, and for bits that do not fit their axis.
        """
        content = np.zeros_like(self._bytes)
        for number, own in bits.items():
            start, stop = self._span(number, len(own))
            content[start:stop] = np.frombuffer(own, dtype=np.uint8)
        self._check(content, bits)
        with self._changing:
            if self.revision != revision:
                return False
            self._put(content)
        return True

    def set(self, dropped: Mapping[str, Iterable[int]]) -> None:
        """Drop exactly these indices, by the names of their axes.

        Raises `UnknownAxisError`, and `CutError` where one is out of range, frozen or all of its axis.
        """
        content = np.zeros_like(self._bytes)
        numbers = {name: self.number(name) for name in dropped}
        for name, number in numbers.items():
            goes = _bits(dropped[name], self.axes[number])
            content[self._starts[number] : self._starts[number + 1]] = np.packbits(goes, bitorder="little")
        self._check(content, numbers.values())
        with self._changing:
            self._put(content)

    def width(self, axis: int) -> int:
        """How many bytes the bits of an axis take."""
        return self._starts[axis + 1] - self._starts[axis]

    def _put(self, content: NDArray[np.uint8]) -> None:
        self._bytes = content
        self.revision += 1

    def _of(self, axis: int) -> NDArray[np.uint8]:
        return self._bytes[self._starts[axis] : self._starts[axis + 1]]

    def _span(self, axis: int, count: int) -> tuple[int, int]:
        if not 0 <= axis < len(self.axes):
            raise CutError(f"there is no axis number {axis}: there are {len(self.axes)}")
        start, stop = self._starts[axis : axis + 2]
        if count != stop - start:
            raise CutError(f"{shown(self.axes[axis].name)} has {stop - start} bytes of bits: {count} were passed")
        return start, stop

    def _check(self, content: NDArray[np.uint8], touched: Iterable[int]) -> None:
        for number in touched:
            axis, part = self.axes[number], content[self._starts[number] : self._starts[number + 1]]
            goes = _unpacked(part, axis.size)
            if axis.frozen is not None and goes.any():
                raise CutError(f"{shown(axis.name)} is frozen: {shown(axis.frozen, 300)}")
            if goes.all():
                raise CutError(f"{shown(axis.name)} would lose all of its {axis.size} indices: leave one at least")
            if np.unpackbits(part, bitorder="little")[axis.size :].any():
                raise CutError(f"{shown(axis.name)} has {axis.size} indices: there are bits beyond them")

    # ------------------------------------------------------------ planning

    def plan(self) -> PruningPlan | None:
        """The plan that drops these indices, corrected by a dry run; None where nothing goes.

        Raises `CutError` when no plan runs. The same draft gives the same plan.
        """
        with self._changing:
            revision, dropped = self.revision, self.dropped
        if self._planned != revision:
            self._plan = plan(self.graph, per_axis=dropped) if dropped else None
            self._planned = revision
        return self._plan

    def take(self, plan: PruningPlan | None) -> None:
        """Drop the indices that a plan drops, and keep the plan; None drops none.

        Raises `UnknownAxisError` and `CutError` where the plan is of another model.
        """
        cuts = () if plan is None else plan.axes
        for cut in cuts:
            size = self.axes[self.number(cut.name)].size
            if size != cut.size:
                raise CutError(f"{shown(cut.name)} has {size} indices, {cut.size} in the plan: plan for this model")
        self.set({cut.name: cut.dropped for cut in cuts})
        self._plan, self._planned = plan, self.revision

    def report(self) -> Report | None:
        """The plan, and how it differs from the draft; None where nothing goes. Raises `CutError`."""
        found = self.plan()
        if found is None:
            return None
        dropped = {self.number(cut.name): cut.dropped for cut in found.axes}
        kept, taken, left = {}, {}, {}
        for axis in self.axes:
            planned = np.zeros(axis.size, dtype=bool)
            planned[list(dropped.get(axis.number, ()))] = True
            goes = self.goes(axis.number)
            kept[axis.number] = np.flatnonzero(goes & ~planned).tolist()
            taken[axis.number] = np.flatnonzero(planned & ~goes).tolist()
            left[axis.number] = axis.size - int(planned.sum())
        full = [axis.size for axis in self.axes]
        sizes = self.size_terms.sizes({}, full), self.size_terms.sizes(left, full)
        return Report(found, sizes, _not_empty(kept), _not_empty(taken))


def _not_empty(indices: Mapping[int, list[int]]) -> dict[int, list[int]]:
    return {number: found for number, found in indices.items() if found}


def _unpacked(content: NDArray[np.uint8], size: int) -> Bits:
    return np.unpackbits(content, count=size, bitorder="little").astype(bool)


def _bits(indices: Iterable[int], axis: Axis) -> Bits:
    goes = np.zeros(axis.size, dtype=bool)
    for index in indices:
        at = _index(index)
        if at is None or not 0 <= at < axis.size:
            raise CutError(f"{shown(axis.name)} has indices 0 … {axis.size - 1}: got {shown(repr(index))}")
        goes[at] = True
    return goes


def _index(value: Any) -> int | None:
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None
