"""Compilation of a selection of indices into edits of tensors and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from modulekg_widgets.engine.axes.attributes import changed_attributes
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.cut_analysis import KeepMasks
from modulekg_widgets.engine.axes.inference.layers import Layers
from modulekg_widgets.engine.axes.terms.algebra import atoms
from modulekg_widgets.engine.axes.terms.term_positions import keep_mask
from modulekg_widgets.engine.operators.arguments import OperatorCall
from modulekg_widgets.engine.operators.traits import LENGTH, traits_of
from modulekg_widgets.engine.pruning.cut.edits import Edits, Ints, SizeValue, TensorEdit
from modulekg_widgets.engine.pruning.plan.selection.axis_choice import read_only_dims
from modulekg_widgets.engine.pruning.plan.selection.selection import Selection
from modulekg_widgets.engine.residuals.layer_counters import counter_changes
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED, ModuleRemoval, RemovedModule
from modulekg_widgets.engine.tracing.dataflow import DataNode, OperatorNode

_SUMS = ("aten::add", "aten::add_", "aten::sub", "aten::sub_", "aten::rsub")


class EditCompiler:
    """Compiles selections into edits; knows which tensor dimensions produce or read an axis."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self._removals: dict[tuple[str, ...], ModuleRemoval] = {}  # by the elements of lists that go
        self.nodes: list[DataNode] = [
            node for node in dict.fromkeys(axes.graph.state.values()) if node in self._nodes_on_axes
        ]

    @cached_property
    def _nodes_on_axes(self) -> set[DataNode]:
        return {node for places in self.axes.tensor_dims.values() for node, _ in places}

    @cached_property
    def _read_only_dims(self) -> set[tuple[DataNode, int]]:
        return read_only_dims(self.axes, Layers(self.axes.inference, buffers=True))

    @cached_property
    def _weight_norms(self) -> list[tuple[DataNode, DataNode, int]]:
        """The gains of weight_norm with their direction and the dimension of the norm."""
        every = self.axes.graph.operators
        norms = [OperatorCall(operator) for operator in every if traits_of(operator.overload).normalizes == LENGTH]
        calls = {call["g"]: (call["g"], call["v"], call["dim"]) for call in norms}
        calls |= {found[0]: found for found in map(_decomposed_weight_norm, every) if found is not None}
        return [call for call in calls.values() if call[0].is_parameter and call[1].is_parameter]

    def edits(self, selection: Selection, attributes: Mapping[str, tuple[SizeValue, SizeValue]]) -> Edits:
        """The edits of a selection; `attributes` are added to those of the adapters."""
        keeps = selection.keep_masks()
        tensors: dict[DataNode, TensorEdit] = {}
        for node in self.nodes:
            stays = {}
            for at, term in enumerate(self.axes.inference.dims(node)):
                if any(atom in keeps for atom in atoms(term)):
                    stays[at] = np.flatnonzero(keep_mask(term, keeps))
            if stays:
                tensors[node] = TensorEdit(node.names, node.shape, stays, self._produced_dims(node, stays))
        for gain, direction, dim in self._weight_norms:
            cut = tensors.get(direction)
            own = tensors.get(gain, TensorEdit(gain.names, gain.shape, {}))
            if cut is not None and cut.kept.keys() - {dim}:
                tensors[gain] = replace(own, gain_of=(direction.label, dim))
            if cut is not None and own.produced:  # a mask sets the gain to zero: a direction of zeros has no norm
                tensors[direction] = replace(cut, by_gain=cut.produced & {dim})
        for buffer, term in self.axes.inference.indices.picked_from.items():
            if any(atom in keeps for atom in atoms(term)):
                tensors[buffer] = self._renumbering_edit(buffer, keeps, np.flatnonzero(keep_mask(term, keeps)))
        changed = changed_attributes(self.axes, selection.changed)
        changed.update(
            (other, pair) for path, pair in attributes.items() for other in self._attribute_paths(path, changed)
        )
        removal = self.removal(keeps)
        if removal.modules:
            stay = [edit for edit in tensors.values() if not removal.removes_all(edit.names)]
            changed = {path: pair for path, pair in changed.items() if not removal.removes_all([path])}
            return Edits(tuple(stay), changed, removal)
        return Edits(tuple(tensors.values()), changed, removal)

    def removal(self, keeps: KeepMasks) -> ModuleRemoval:
        """The removed modules: those of the trace, and list elements on cut axes."""
        known = self.axes.graph.removal or NOTHING_REMOVED
        gone = tuple(
            each.path_of(at)
            for atom, flags in keeps.items() for each in atom.lists for at in np.flatnonzero(~flags).tolist()
        )  # fmt: skip
        if gone not in self._removals:
            follow = counter_changes(self.axes.graph.model, gone) if gone else {}
            more = ModuleRemoval(tuple(map(RemovedModule, gone)), follow)
            self._removals[gone] = replace(
                known, modules=(*known.modules, *more.modules), attributes={**known.attributes, **more.attributes}
            )
        return self._removals[gone]

    def _attribute_paths(self, path: str, changed: Mapping[str, tuple[SizeValue, SizeValue]]) -> list[str]:
        """The paths of an attribute of a shared module."""
        home, _, name = path.rpartition(".")
        module = self.axes.graph.modules.get(home)
        others = [] if module is None else self._module_paths[id(module.module)]
        every = [f"{other}.{name}" if other else name for other in others]
        return [path, *(each for each in every if each in changed)]

    @cached_property
    def _module_paths(self) -> dict[int, list[str]]:
        """The paths of each module."""
        found: dict[int, list[str]] = {}
        for path, node in self.axes.graph.modules.items():
            found.setdefault(id(node.module), []).append(path)
        return found

    def _renumbering_edit(self, buffer: DataNode, keeps: KeepMasks, stay: Ints) -> TensorEdit:
        """The edit of an index buffer: removed indices are dropped, the others renumbered."""
        own = keep_mask(self.axes.inference.dims(buffer)[0], keeps)
        dims = {} if own.all() else {0: np.flatnonzero(own)}
        return TensorEdit(buffer.names, buffer.shape, dims, values=stay)

    def _produced_dims(self, node: DataNode, stays: Iterable[int]) -> frozenset[int]:
        return frozenset(at for at in stays if (node, at) not in self._read_only_dims and self._produces(node, at))

    def _produces(self, node: DataNode, at: int) -> bool:
        """True if a tensor produces its values along a dimension: a weight, or a buffer that is added."""
        if node.is_parameter or node in self.axes.weight_buffers:
            return True
        return node.dtype.is_floating_point and _is_added(node)


def _is_added(node: DataNode) -> bool:
    """True if a buffer goes into sums and layers alone, wherever its elements are moved before."""
    return all(
        any(_is_added(output) for output in operator.outputs)
        if (traits := traits_of(operator.overload)).moves
        else traits.layer or operator.name in _SUMS
        for operator in node.consumers
    )


def _decomposed_weight_norm(operator: OperatorNode) -> tuple[DataNode, DataNode, int] | None:
    """The gain, direction and dimension of a weight_norm in single operators; else None.

    The dimension is -1 where the norm runs over all of them.
    """
    call = OperatorCall(operator)
    if call.name != "div" or len(call.inputs) != 2:
        return None
    gain, norm = call.inputs
    direction = _norm_argument(norm)
    if direction is None or not (gain.is_parameter and direction.is_parameter) or gain is direction:
        return None
    if gain.numel() == 1:
        return gain, direction, -1
    kept = [at for at, size in enumerate(gain.shape) if size > 1]
    full = gain.dim() == direction.dim() and len(kept) == 1 and gain.shape[kept[0]] == direction.shape[kept[0]]
    return (gain, direction, kept[0]) if full else None


def _norm_argument(node: DataNode) -> DataNode | None:
    """The value whose Euclidean norm this one is; None if it is no norm."""
    is_norm = False
    while node.producer is not None and node.previous is None:
        call = OperatorCall(node.producer)
        if call.name in ("norm", "linalg_vector_norm") and not is_norm:
            order = call.get("p", call.get("ord", 2))
            if order not in (None, 2):
                return None
            is_norm = True
        elif not (traits_of(node.producer.overload).moves or call.name == "clone") or len(call.inputs) != 1:
            return None
        node = call.inputs[0]
    return node if is_norm else None
