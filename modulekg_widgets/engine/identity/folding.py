"""Folded outline of a hierarchy: a run of alike siblings becomes one row, never across containers."""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar, overload

import torch
from torch import nn

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.identity.classes import class_mro, class_names, dict_items, instance_state, slot_members
from modulekg_widgets.engine.identity.encoding.packing import digest, length_prefixed, text
from modulekg_widgets.engine.identity.skeleton_source import Untold
from modulekg_widgets.engine.identity.statistics import ModuleStatistics
from modulekg_widgets.engine.identity.tensors import direct_tensors, is_uninitialised, shape_of
from modulekg_widgets.engine.identity.walk import NON_STRUCTURAL_ATTRIBUTES, Walk, class_name, nominal_class
from modulekg_widgets.engine.torch_runtime.modules import is_script, module_state

# -------------------- Hyper-parameters of a module for display: its public attributes as plain values or short text


T = TypeVar("T")
MAX_LENGTH = 200  # characters of one value; whoever needs more has the module
_SCALARS = (bool, int, float, str, type(None))


def hyperparameters(module: nn.Module) -> dict[str, Any]:
    """The public attributes of `module`, numbers and text as they are, everything else as short text."""
    if is_script(module):
        return {}
    state = module_state(module)
    if any(slot_members(cls) for cls in class_mro(type(module))):
        state = instance_state(module)
    return {
        n: readable_value(v) for n, v in state.items() if n not in NON_STRUCTURAL_ATTRIBUTES and not n.startswith("_")
    }


def readable_value(value: Any) -> bool | int | float | str | None:
    """A plain number or short text; runs no code of the value's class."""
    if type(value) in (bool, float, type(None)):
        return value
    if type(value) is int and value.bit_length() <= 64:
        return value
    if type(value) is str and len(value) <= MAX_LENGTH:
        return value
    written = _to_text(value, 3)
    return written if len(written) <= MAX_LENGTH else written[: MAX_LENGTH - 1] + "…"


def _to_text(value: Any, depth: int) -> str:
    given: object = value
    kind = type(given)
    if kind is int:
        return str(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"
    if kind is str:
        return repr(value[:MAX_LENGTH]) if depth < 3 else value[:MAX_LENGTH]
    if kind in _SCALARS:
        return repr(value)
    if kind in (tuple, list, set, frozenset, torch.Size):
        return _items_to_text(value, kind, depth)
    if kind is dict:
        if not depth:  # it may hold itself
            return "{…}"
        inner = [f"{_to_text(k, depth - 1)}: {_to_text(v, depth - 1)}" for k, v in _first_items(dict_items(value))]
        return "{" + ", ".join(inner) + ("}" if len(inner) == len(value) else ", …}")
    if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return str(value)
    if issubclass(kind, torch.Tensor):
        return "tensor"
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{instance_state(value).get('_name_')}"
    if issubclass(kind, type):
        return class_names(value)[1]
    return value.__qualname__ if kind in _NAMED else f"<{class_names(kind)[1]}>"


_NAMED = frozenset({types.FunctionType, types.BuiltinFunctionType})


def _first_items(values: Iterable[T]) -> list[T]:
    return list(islice(values, 20))


def _items_to_text(value: Collection[object], kind: type, depth: int) -> str:
    if not depth:
        return "…"
    if kind in (set, frozenset):  # their order changes from process to process
        inner = sorted(_to_text(v, depth - 1) for v in value)[:20]
    else:
        inner = [_to_text(v, depth - 1) for v in _first_items(value)]
    body = ", ".join(inner) + (", …" if len(value) > len(inner) else "")
    if kind is list:
        return f"[{body}]"
    if kind in (set, frozenset):
        return f"{{{body}}}"
    return f"({body},)" if len(value) == 1 else f"({body})"


# ----------------------------------------


MAX_PARTNERS = 100  # modules that are named as holding the same tensor; all with all would be quadratic
DIGITS = re.compile(r"[0-9]+")
ONE, EXACT, FAMILY = "one", "exact", "family"


@dataclass(slots=True)
class SiblingRun:
    """Consecutive siblings shown as one row: indices of the members and a label of their differences."""

    kind: str
    members: list[int]
    label: str = ""


@dataclass(slots=True)
class FoldRow:
    """One row of a folded hierarchy; its children are those of its first member.

    `kind` is `one`, `exact` (same structure) or `family` (same class and child skeleton); `label` says what varies.
    `called` counts the slots that lead to this very module, `shared_with` names modules that hold the same tensor.
    """

    hierarchy: ModuleStatistics = field(repr=False, compare=False)
    kind: str
    members: tuple[int, ...]
    label: str = ""
    called: int = 1
    shared_with: tuple[str, ...] = ()
    children: list[FoldRow] = field(default_factory=list["FoldRow"], repr=False)

    @property
    def index(self) -> int:
        """The first member, which stands for all."""
        return self.members[0]

    @property
    def count(self) -> int:
        return len(self.members)

    @property
    def path(self) -> str:
        return self.hierarchy.walk.path(self.index)

    @property
    def paths(self) -> tuple[str, ...]:
        """The dotted paths of all members."""
        return tuple(self.hierarchy.walk.path(index) for index in self.members)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        walk = self.hierarchy.walk
        name, kind = walk.names[self.index], class_name(walk.modules[self.index])
        line = " ".join(filter(None, (printable(name, 40), printable(kind, 60))))
        if self.kind != ONE:
            line += f" ×{self.count}"
        if self.kind == FAMILY:
            line = "≈ " + line
        if self.label:
            line += f" · {printable(self.label, 120)}"
        if self.called > 1:
            line += f" · called ×{self.called}"
        if self.shared_with:
            line += " · shared with " + ", ".join(printable(path, 40) or "(root)" for path in self.shared_with[:3])
        return line


class FoldedHierarchy(Sequence[FoldRow]):
    """The rows below the root, as they are read from top to bottom; prints as an indented outline."""

    def __init__(self, root: FoldRow) -> None:
        self.root = root
        self._rows: list[FoldRow] = []
        waiting = list(reversed(root.children))
        while waiting:
            row = waiting.pop()
            self._rows.append(row)
            waiting.extend(reversed(row.children))

    @overload
    def __getitem__(self, key: int) -> FoldRow: ...
    @overload
    def __getitem__(self, key: slice) -> list[FoldRow]: ...
    def __getitem__(self, key: int | slice) -> FoldRow | list[FoldRow]:
        return self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        depths = self.root.hierarchy.walk.depths
        return "\n".join("  " * min(depths[row.index], 40) + str(row) for row in (self.root, *self._rows))

    def __repr__(self) -> str:
        return f"<{len(self)} rows for {len(self.root.hierarchy)} modules>"


def sibling_runs(hierarchy: ModuleStatistics, parent: int, class_trees: Sequence[bytes] | None) -> list[SiblingRun]:
    """The runs among the children of a module: of the same structure and, given the skeletons, of the same family.

    A slot that leads elsewhere ends a run, and a module that is reused or holds a tied tensor stands alone: folded
    away, nobody would see it.
    """
    found: list[SiblingRun] = []
    last: SiblingRun | None = None
    for name, index in hierarchy.walk.slots(parent):
        if index is None:
            continue
        if not hierarchy.walk.is_first_slot(parent, name, index):
            last = None
        elif index in hierarchy.shared:
            found.append(SiblingRun(ONE, [index]))
            last = None
        elif last is not None and _extend_run(hierarchy, last, index, class_trees):
            last.members.append(index)
        else:
            last = SiblingRun(ONE, [index])
            found.append(last)
    for run in found:
        if run.kind == EXACT:
            weights = "shared" if _share_weights(hierarchy, run.members) else "separate"
            run.label = f"identical structure, {weights} weights"
        elif run.kind == FAMILY:
            run.label = variation_label(hierarchy, run.members)
    return found


def _extend_run(hierarchy: ModuleStatistics, run: SiblingRun, index: int, skeletons: Sequence[bytes] | None) -> bool:
    """True if module `index` extends the run; updates the kind of the run."""
    digests, first = hierarchy.identities.digests, run.members[0]
    if not _have_similar_names(hierarchy.walk, first, index):
        return False
    if run.kind != FAMILY and digests[first] == digests[index]:
        run.kind = EXACT
    elif skeletons is not None and skeletons[first] == skeletons[index]:
        run.kind = FAMILY
    else:
        return False
    return True


def _have_similar_names(walk: Walk, one: int, other: int) -> bool:
    """True if two siblings may share a row by name; matters only where the class is unknown."""
    if not any(issubclass(type(walk.modules[index]), Untold) for index in (one, other)):
        return True
    return DIGITS.sub("#", walk.names[one]) == DIGITS.sub("#", walk.names[other])


def _share_weights(hierarchy: ModuleStatistics, members: Sequence[int]) -> bool:
    """True if two members of a run hold the same tensor or the same module."""
    parents, run = hierarchy.walk.parents, set(members)
    for group in hierarchy.shared_groups:
        holders: set[int] = set()
        for index in group:
            while index > 0 and index not in run:
                index = parents[index]
            if index in run:
                holders.add(index)
        if len(holders) > 1:
            return True
    return False


def class_tree_digests(walk: Walk) -> list[bytes]:
    """Returns for each module a digest of its class and of the digests of its children."""
    encoded: dict[type, bytes] = {}
    out: list[bytes] = [b""] * len(walk.modules)
    for index in walk.bottom_up:
        cls = nominal_class(walk.modules[index])
        own = encoded.get(cls)
        if own is None:
            own = encoded[cls] = digest(*map(length_prefixed, map(text, class_names(cls))))
        out[index] = digest(own, *[out[child] if child is not None else b"-" for _, child in walk.slots(index)])
    return out


def variation_label(hierarchy: ModuleStatistics, members: Sequence[int]) -> str:
    """Returns a hyper-parameter or shape that differs among the members, or among their descendants, as a range.

    The width that comes in says most to a reader, so a name that begins with `in_` is preferred on its level.
    """
    columns = [list(members)]
    while columns:
        differences = _differing_values(hierarchy.walk, columns, _settings) or _differing_values(
            hierarchy.walk, columns, _shapes
        )
        if differences:
            name = next((n for n in differences if n.startswith("in_")), next(iter(differences)))
            return f"{name} {_range_of(differences[name])}"
        columns = [below for column in columns for below in _corresponding_children(hierarchy.walk, column)]
    return "other attributes"


def _corresponding_children(walk: Walk, column: list[int]) -> list[list[int]]:
    """Returns the corresponding children of modules with equal class trees, each in its first slot."""
    slots = zip(*([(index, *slot) for slot in walk.slots(index)] for index in column), strict=True)
    return [[child for _, _, child in slot] for slot in slots if all(_is_child(walk, *place) for place in slot)]


def _is_child(walk: Walk, parent: int, name: str, index: int | None) -> bool:
    return index is not None and walk.is_first_slot(parent, name, index)


def _differing_values(
    walk: Walk, columns: list[list[int]], read: Callable[[Walk, int], dict[str, Any]]
) -> dict[str, list[Any]]:
    """Returns by name the values that differ among corresponding modules."""
    differences: dict[str, list[Any]] = {}
    for column in columns:
        for name, values in _differences([read(walk, index) for index in column]).items():
            differences.setdefault(name, values)
    return differences


def _settings(walk: Walk, index: int) -> dict[str, Any]:
    return hyperparameters(walk.modules[index])


def _shapes(walk: Walk, index: int) -> dict[str, Any]:
    tensors = {own.name: own.tensor for own in direct_tensors(walk.states[index])}
    known = {name: t for name, t in tensors.items() if t is not None and not is_uninitialised(t)}
    return {name: "×".join(map(str, shape_of(tensor))) or "scalar" for name, tensor in known.items()}


def _differences(members: list[dict[str, Any]]) -> dict[str, list[Any]]:
    columns = {name: [m.get(name) for m in members] for name in members[0]}
    return {name: column for name, column in columns.items() if any(v != column[0] for v in column[1:])}


def _range_of(values: list[Any]) -> str:
    if all(type(v) in (int, float) for v in values):
        return f"{min(values)}…{max(values)}"
    distinct = list(dict.fromkeys(str(v) for v in values))
    return ", ".join(distinct[:3]) + (", …" if len(distinct) > 3 else "")


def fold(hierarchy: ModuleStatistics, families: bool = True) -> FoldedHierarchy:
    """The folded rows of the whole model; see `Hierarchy.fold`."""
    walk = hierarchy.walk
    skeleton = class_tree_digests(walk) if families else None
    called, shared = _slot_counts(walk), _sharing_paths(hierarchy)

    def row(run: SiblingRun) -> FoldRow:
        first = run.members[0]
        members = tuple(run.members)
        return FoldRow(hierarchy, run.kind, members, run.label, called.get(first, 1), shared.get(first, ()))

    root = row(SiblingRun(ONE, [0]))
    waiting = [root]
    while waiting:
        above = waiting.pop()
        above.children = [row(run) for run in sibling_runs(hierarchy, above.index, skeleton)]
        waiting.extend(above.children)
    return FoldedHierarchy(root)


def _slot_counts(walk: Walk) -> dict[int, int]:
    counts: dict[int, int] = {}
    for link in walk.links():
        if link.kind == "shared":
            counts[link.target] = counts.get(link.target, 1) + 1
    return counts


def _sharing_paths(hierarchy: ModuleStatistics) -> dict[int, tuple[str, ...]]:
    partners: dict[int, list[str]] = {}
    for group in hierarchy.tied:
        named = [(other.module, hierarchy.walk.path(other.module)) for other in group[:MAX_PARTNERS]]
        for place in group:
            partners.setdefault(place.module, []).extend(path for index, path in named if index != place.module)
    return {index: tuple(dict.fromkeys(paths)) for index, paths in partners.items()}
