"""Draft of a plan: the indices and blocks selected for removal in the mask editor."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.axes.axis import Axis
from modulekg_widgets.engine.axes.graph import DataflowGraph
from modulekg_widgets.engine.axes.terms.algebra import Term
from modulekg_widgets.engine.errors import (
    CutError,
    UnknownAxisError,
    UnknownPathError,
    closest_match_hint,
    pluralize,
    printable,
)
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import CHANNELS, traits_of
from modulekg_widgets.engine.pruning.importance.members import weights_along
from modulekg_widgets.engine.pruning.importance.scoring import score
from modulekg_widgets.engine.pruning.plan.block_removal import axis_of_cut
from modulekg_widgets.engine.pruning.plan.plan import plan
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import AxisChoice
from modulekg_widgets.engine.pruning.plan.selection.fullest_trace import fullest_trace
from modulekg_widgets.engine.pruning.plan.selection.request import Importance
from modulekg_widgets.engine.pruning.plan.sizes.size_model import ModelSizes, SizeModel
from modulekg_widgets.engine.residuals.removable_blocks import NestedBlocks, residual_blocks
from modulekg_widgets.engine.torch_runtime.pytree import nested_rows, tensors
from modulekg_widgets.engine.tracing.dataflow import DataNode
from modulekg_widgets.engine.tracing.trace import REAL

Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class DraftReport:
    """The dry run of a draft, and its differences from the draft."""

    plan: PruningPlan
    sizes: tuple[ModelSizes, ModelSizes]  # before and after
    kept: dict[int, list[int]]  # per axis the indices that the draft drops and the plan keeps
    added: dict[int, list[int]]  # per axis those that the plan drops beside


class Draft:
    """The indices of each axis and the blocks selected for removal; changes are all or nothing.

    `revision` grows with every change; a draft that takes the place of another goes on counting from there. The bits of
    an axis are packed into bytes: bit i is bit i % 8 of byte i // 8, and 1 where the index goes. Behind the axes come
    the blocks as one entry more, with a bit for each; without blocks there is none.
    """

    def __init__(self, graph: DataflowGraph, revision: int = 0) -> None:
        self.graph = graph
        wide = fullest_trace(graph)  # as `plan` does: what train mode alone reads is cut along
        self._full_trace = wide
        self.axes: tuple[Axis, ...] = tuple(wide.axes)
        self.blocks = NestedBlocks(residual_blocks(graph))
        self.revision = revision
        self._sizes = [*(axis.size for axis in self.axes), *([len(self.blocks)] if len(self.blocks) else [])]
        widths = [(size + 7) // 8 for size in self._sizes]
        self._starts = np.cumsum([0, *widths]).tolist()
        self._bytes = np.zeros(self._starts[-1], dtype=np.uint8)  # never changed in place: another thread may read it
        self._changing = threading.Lock()
        self._plan: PruningPlan | None = None
        self._planned = -1  # the revision that the plan is of

    # ------------------------------------------------------------ looking

    @cached_property
    def ratio_axes(self) -> frozenset[int]:
        """The axes that a ratio may prune: no two of them multiply one dimension."""
        return frozenset(axis.number for axis in AxisChoice(self._full_trace.axes, "index").independent())

    @cached_property
    def size_model(self) -> SizeModel:
        """The size of the model as a formula in the counts of the axes."""
        counted = self._full_trace if self.graph.traced_on == REAL else self.graph
        return SizeModel(self._full_trace.axes, ModelSizes._fields, counted.axes, blocks=self.blocks)

    @property
    def has_statistics(self) -> bool:
        """True if a normalization keeps running statistics that can be recalibrated."""
        normalisations = (each for each in self.graph.operators if traits_of(each.overload).normalizes == CHANNELS)
        return any(OperatorCall(operator).get("running_mean") is not None for operator in normalisations)

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the traced inputs, for which FLOPs are counted."""
        return [tuple(nested_rows(tensor).shape) for _, tensor in tensors(self.graph.call)]

    @cached_property
    def _blocks_of_axis(self) -> tuple[frozenset[int], ...]:
        """For each axis the blocks that its tensors belong to."""
        return tuple(
            frozenset(self.blocks.block_of_tensors(_tensor_names(node)) for node, _ in axis.tensor_dims)
            for axis in self.axes
        )

    @property
    def blocks_of_axes(self) -> list[int]:
        """For each axis the innermost block that it belongs to, or `NO_BLOCK`."""
        return [
            self.blocks.block_of_tensors(name for node, _ in axis.tensor_dims for name in _tensor_names(node))
            for axis in self.axes
        ]

    @property
    def entry_count(self) -> int:
        """The number of entries with bits: the axes, and one more if there are blocks."""
        return len(self._sizes)

    def axis_number(self, name: str) -> int:
        """The number of the axis with this name; raises `UnknownAxisError`."""
        found = self._full_trace.axes.find_by_name(name)
        if found is None:
            names = [axis.name for axis in self.axes]
            raise UnknownAxisError(f"there is no axis {printable(name)!r}: {closest_match_hint(name, names)}")
        return found.number

    def removed_flags(self, axis: int) -> Bits:
        """(size,): True for the removed indices of an axis."""
        return _unpack_bits(self._packed(axis), self._sizes[axis])

    @property
    def removed_paths(self) -> list[str]:
        """The paths of the removed blocks, without nested ones."""
        marked = np.flatnonzero(self.removed_flags(len(self.axes))).tolist() if len(self.blocks) else []
        return [self.blocks.blocks[number].path for number in self.blocks.outermost(marked)]

    @property
    def removed_blocks(self) -> frozenset[int]:
        """The numbers of the removed blocks, with nested ones."""
        return self.blocks.with_nested(self.blocks.numbers[path] for path in self.removed_paths)

    @property
    def dropped(self) -> dict[str, list[int]]:
        """The removed indices by axis name; an axis of a removed block has none."""
        gone = self.removed_blocks
        left = (axis for axis in self.axes if not self._blocks_of_axis[axis.number] <= gone)
        found = {axis.name: np.flatnonzero(self.removed_flags(axis.number)).tolist() for axis in left}
        return {name: indices for name, indices in found.items() if indices}

    def packed(self) -> bytes:
        """All bits as bytes; each axis starts at a new byte."""
        return self._bytes.tobytes()

    def snapshot(self) -> tuple[int, dict[int, bytes]]:
        """The revision, and the bits of the axes that lose indices."""
        with self._changing:
            revision, content = self.revision, self._bytes
        parts = (content[start:stop] for start, stop in itertools.pairwise(self._starts))
        return revision, {number: part.tobytes() for number, part in enumerate(parts) if part.any()}

    def sizes(self) -> tuple[ModelSizes, ModelSizes]:
        """The sizes of the model before and after, without a dry run."""
        left = [axis.size - int(self.removed_flags(axis.number).sum()) for axis in self.axes]
        return self._sizes_before_and_after(left, self.removed_blocks)

    def _sizes_before_and_after(
        self, left: Sequence[int], removed_blocks: frozenset[int]
    ) -> tuple[ModelSizes, ModelSizes]:
        after = self.size_model.sizes(np.array(left, dtype=np.int64), removed_blocks)
        before, after = (ModelSizes(*map(round, sizes.tolist())) for sizes in (self.size_model.before, after))
        return before, after

    @property
    def summary(self) -> str:
        """The number of pruned axes and removed blocks, and the parameters that remain, without a dry run."""
        before, after = self.sizes()
        blocks = f"{pluralize(len(self.removed_paths), 'block', 'blocks')} removed, " if self.removed_paths else ""
        axes = pluralize(len(self.dropped), "axis loses", "axes lose")
        return f"{axes} indices, {blocks}parameters {before.params:,} → {after.params:,}"

    @cached_property
    def weights(self) -> Mapping[Term, int]:
        """The number of weights along each axis, which multiplies its scores in a common ranking."""
        return weights_along(self._full_trace.axes)

    def scores(self, importance: Importance) -> bytes:
        """The importance of each index: float64 of all axes in order, NaN on frozen ones."""
        found = score(self._full_trace.axes, [axis.term for axis in self.axes if axis.frozen is None], importance)
        nothing = (np.full(axis.size, np.nan) for axis in self.axes)
        parts = [found.get(axis.term, none) for axis, none in zip(self.axes, nothing, strict=True)]
        return b"".join(part.astype("<f8").tobytes() for part in parts)

    # ----------------------------------------------------------- changing

    def set_bits(self, bits: Mapping[int, bytes], revision: int) -> bool:
        """Replace the draft by these bits; False if the draft has another revision.

        Raises `CutError` where an axis is frozen or would lose all, and for bits that do not fit their axis.
        """
        content = np.zeros_like(self._bytes)
        for number, own in bits.items():
            start, stop = self._byte_range(number, len(own))
            content[start:stop] = np.frombuffer(own, dtype=np.uint8)
        self._check(content, bits)
        with self._changing:
            if self.revision != revision:
                return False
            self._replace_bits(content)
        return True

    def set_indices(self, dropped: Mapping[str, Iterable[int]], removed: Iterable[str] = ()) -> None:
        """Replace the draft by these indices and blocks, by axis names and block paths.

        Raises `UnknownAxisError` and `UnknownPathError`, and `CutError` where an index is out of range, frozen or all
        of its axis.
        """
        content = np.zeros_like(self._bytes)
        goes = {
            number: _index_flags(dropped[name], self.axes[number]) for name, number in self._numbers(dropped).items()
        }
        marked = [self._block(path) for path in removed]
        if marked:
            goes[len(self.axes)] = np.isin(np.arange(len(self.blocks)), marked)
        for number, bits in goes.items():
            content[self._starts[number] : self._starts[number + 1]] = np.packbits(bits, bitorder="little")
        self._check(content, goes)
        with self._changing:
            self._replace_bits(content)

    def byte_width(self, axis: int) -> int:
        """The number of bytes for the bits of an entry."""
        return self._starts[axis + 1] - self._starts[axis]

    def _numbers(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self.axis_number(name) for name in names}

    def _block(self, path: str) -> int:
        if path not in self.blocks.numbers:
            raise UnknownPathError(
                f"{printable(path)!r} is not a removable residual block: "
                f"{closest_match_hint(path, self.blocks.numbers)}; plan for "
                "this model"
            )
        return self.blocks.numbers[path]

    def _replace_bits(self, content: NDArray[np.uint8]) -> None:
        self._bytes = content
        self.revision += 1

    def _packed(self, axis: int) -> NDArray[np.uint8]:
        return self._bytes[self._starts[axis] : self._starts[axis + 1]]

    def _byte_range(self, axis: int, count: int) -> tuple[int, int]:
        if not 0 <= axis < self.entry_count:
            raise CutError(f"there is no axis number {axis}: there are {len(self.axes)}")
        start, stop = self._starts[axis : axis + 2]
        if count != stop - start:
            raise CutError(f"{printable(self._name(axis))} has {stop - start} bytes of bits: {count} were passed")
        return start, stop

    def _name(self, entry: int) -> str:
        return self.axes[entry].name if entry < len(self.axes) else "the list of blocks"

    def _check(self, content: NDArray[np.uint8], touched: Iterable[int]) -> None:
        for number in touched:
            size, part = self._sizes[number], content[self._starts[number] : self._starts[number + 1]]
            if np.unpackbits(part, bitorder="little")[size:].any():
                what = "indices" if number < len(self.axes) else "blocks"
                raise CutError(f"{printable(self._name(number))} has {size} {what}: there are bits beyond them")
            if number == len(self.axes):
                continue
            axis, goes = self.axes[number], _unpack_bits(part, size)
            if axis.frozen is not None and goes.any():
                raise CutError(f"{printable(axis.name)} is frozen: {printable(axis.frozen, 300)}")
            if goes.all():
                raise CutError(f"{printable(axis.name)} would lose all of its {axis.size} indices: keep at least one")

    # ------------------------------------------------------------ planning

    def plan(self) -> PruningPlan | None:
        """The plan for this draft, corrected by a dry run; None if nothing is removed.

        Raises `CutError` when no plan runs. The same draft gives the same plan.
        """
        with self._changing:
            revision, dropped, removed = self.revision, self.dropped, self.removed_paths
        if self._planned != revision:
            wanted = {"per_axis": dropped or None, "blocks": removed or None}
            self._plan = plan(self.graph, **wanted) if dropped or removed else None
            self._planned = revision
        return self._plan

    def adopt_plan(self, plan: PruningPlan | None) -> None:
        """Replace the draft by the content of a plan, and keep the plan.

        Raises `UnknownAxisError`, `UnknownPathError` and `CutError` where the plan is of another model.
        """
        cuts = {} if plan is None else {self._axis(cut).name: cut for cut in plan.axes}
        for name, cut in cuts.items():
            size = self.axes[self.axis_number(name)].size
            if size != cut.size:
                raise CutError(f"{printable(cut.name)} has {size} indices, {cut.size} in the plan: plan for this model")
        self.set_indices({name: cut.dropped for name, cut in cuts.items()}, () if plan is None else plan.blocks)
        self._plan, self._planned = plan, self.revision

    def _axis(self, cut: AxisCut) -> Axis:
        """The axis of a plan's cut; without some blocks its name may differ."""
        return (
            self._full_trace.axes.find_by_name(cut.name)
            or axis_of_cut(cut, self._full_trace.axes)
            or self.axes[self.axis_number(cut.name)]
        )

    def report(self) -> DraftReport | None:
        """The plan and its differences from the draft; None if nothing is removed. Raises `CutError`."""
        found = self.plan()
        if found is None:
            return None
        gone, dropped = self.removed_blocks, {self._axis(cut).number: cut.dropped for cut in found.axes}
        kept, taken, left = {}, {}, [axis.size for axis in self.axes]
        for axis in self.axes:
            if self._blocks_of_axis[axis.number] <= gone:
                continue
            planned = np.zeros(axis.size, dtype=bool)
            planned[list(dropped.get(axis.number, ()))] = True
            goes = self.removed_flags(axis.number)
            kept[axis.number] = np.flatnonzero(goes & ~planned).tolist()
            taken[axis.number] = np.flatnonzero(planned & ~goes).tolist()
            left[axis.number] = axis.size - int(planned.sum())
        return DraftReport(found, self._sizes_before_and_after(left, gone), _not_empty(kept), _not_empty(taken))


def _not_empty(indices: Mapping[int, list[int]]) -> dict[int, list[int]]:
    return {number: found for number, found in indices.items() if found}


def _tensor_names(node: DataNode) -> tuple[str, ...]:
    return node.names or (node.label,)


def _unpack_bits(content: NDArray[np.uint8], size: int) -> Bits:
    return np.unpackbits(content, count=size, bitorder="little").astype(bool)


def _index_flags(indices: Iterable[int], axis: Axis) -> Bits:
    goes = np.zeros(axis.size, dtype=bool)
    for index in indices:
        at = _as_index(index)
        if at is None or not 0 <= at < axis.size:
            raise CutError(f"{printable(axis.name)} has indices 0 … {axis.size - 1}: got {printable(repr(index))}")
        goes[at] = True
    return goes


def _as_index(value: Any) -> int | None:
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else None
