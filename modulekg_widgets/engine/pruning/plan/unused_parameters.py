"""Parameters that a trace does not read but the configuration sizes together with cut ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit
from modulekg_widgets.engine.pruning.plan.corrections.candidate import ATTRIBUTE, Change
from modulekg_widgets.engine.pruning.saving.model_signature import Facts, attribute_path
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode

Ints = NDArray[np.int64]
FactKey = tuple[Any, ...]
MAX_NAMES = 6
SOURCE = "layers='uniform', as the configuration has one number for it and for what is cut"


class UnusedParameterEdits(NamedTuple):
    """Tensors and attributes that the trace does not depend on, with their new sizes."""

    tensors: tuple[TensorEdit, ...]
    attributes: dict[str, tuple[int, int]]

    @property
    def changes(self) -> tuple[Change, ...]:
        tensors = [f"{printable(edit.names[0])}, which this pass does not read, follows" for edit in self.tensors]
        homes = {name.rpartition(".")[0] for edit in self.tensors for name in edit.names}
        attributes = [
            f"{printable(path)} becomes {now}, was {old}"
            for path, (old, now) in self.attributes.items()
            if path.rpartition(".")[0] not in homes
        ]
        return tuple(Change(ATTRIBUTE, what, SOURCE) for what in (*tensors, *attributes))


def unused_parameter_notes(graph: Dataflow, edits: Edits, cut: Collection[int]) -> list[str]:
    """The note on unread parameters that keep a size which is cut elsewhere.

    So are adapters that are not active, and branches that are not taken: with them the cut model may not run.
    """
    changed = {name for edit in edits.tensors for name in edit.names}
    names = [
        node.label
        for node in graph.unread
        if node.is_parameter
        and changed.isdisjoint(node.names)
        and not edits.removal.removes_all(node.names)
        and not set(cut).isdisjoint(node.shape)
    ]
    if not names:
        return []
    listed = ", ".join(map(printable, names[:MAX_NAMES]))
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    what = (
        f"the traced pass does not read {listed}{more}, so their sizes are kept: a pass that reads them may "
        "not run after "
    )
    return [f"{what}the cut. Trace such a pass, or remove them before"]


def unused_facts(graph: Dataflow, facts: Iterable[FactKey]) -> frozenset[FactKey]:
    """The facts of a model about unread tensors, and about modules with unread tensors only."""
    unread = {name for node in graph.unread for name in node.names}
    homes = {name.rpartition(".")[0] for name in unread}
    homes -= {name.rpartition(".")[0] for name in graph.state if name not in unread}
    return frozenset(
        key for key in facts
        if (key[0] == "size" and key[1] in unread) or (key[0] == "attribute" and key[1] in homes)
    )  # fmt: skip


def unused_parameter_edits(
    graph: Dataflow, edits: Edits, differences: Iterable[FactKey], wanted: Facts, built: Facts
) -> UnusedParameterEdits | None:
    """The unread changes that match a configuration; None if other facts differ as well.

    Attributes are integers that a pass may read: it has to run as before with them.
    """
    unread = {name: node for node in graph.unread for name in node.names}
    stays: dict[DataNode, dict[int, Ints]] = {}
    attributes: dict[str, tuple[int, int]] = {}
    for key in differences:
        old, now = wanted.get(key), built.get(key)
        if type(old) is not int or type(now) is not int or not 0 < now < old:
            return None
        if key[0] == "attribute":
            attributes[attribute_path(key)] = old, now
        elif key[0] == "size" and key[1] in unread:
            kept = _similar_positions(graph, edits, key[1], key[2], old, now)
            if kept is None:
                return None
            stays.setdefault(unread[key[1]], {})[key[2]] = kept
        else:
            return None
    tensors = tuple(TensorEdit(node.names, node.shape, dims) for node, dims in stays.items())
    return UnusedParameterEdits(tensors, attributes)


def _similar_positions(graph: Dataflow, edits: Edits, name: str, dim: int, old: int, now: int) -> Ints | None:
    """The remaining positions of a dimension, as of the nearest similar one; None if these differ."""
    for places in (_cuts_of_holder(edits, name), _cuts_of_siblings(graph, edits, name, dim), _cuts_below(edits, name)):
        found = [kept for edit, at, kept in places if edit.shape[at] == old and len(kept) == now]
        if found:
            return found[0] if all(np.array_equal(found[0], each) for each in found[1:]) else None
    return None


CutDims = Iterator[tuple[TensorEdit, int, Ints]]


def _cuts_of_holder(edits: Edits, name: str) -> CutDims:
    """All cuts of the tensors of one module."""
    holder = name.rpartition(".")[0]
    for edit in edits.tensors:
        if any(each.rpartition(".")[0] == holder for each in edit.names):
            yield from ((edit, at, kept) for at, kept in edit.kept.items())


def _cuts_of_siblings(graph: Dataflow, edits: Edits, name: str, dim: int) -> CutDims:
    """The cuts of the same tensor in sibling modules of the class."""
    holder, _, attribute = name.rpartition(".")
    home = holder.rpartition(".")[0]
    kind, by_name = type(graph.modules[holder].module), _by_name(edits)
    for path, node in graph.modules.items():
        edit = by_name.get(f"{path}.{attribute}")
        if path and path.rpartition(".")[0] == home and type(node.module) is kind and edit and dim in edit.kept:
            yield edit, dim, edit.kept[dim]


def _cuts_below(edits: Edits, name: str) -> CutDims:
    """All cuts below the module."""
    holder = name.rpartition(".")[0]
    for edit in edits.tensors:
        if any(each.startswith(f"{holder}.") for each in edit.names):
            yield from ((edit, at, kept) for at, kept in edit.kept.items())


def _by_name(edits: Edits) -> Mapping[str, TensorEdit]:
    return {name: edit for edit in edits.tensors for name in edit.names}
