"""Comparison of two models of which one or both are files: names, shapes, dtypes and, on request, values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import nn

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.files.compare.comparable import ComparableModel, comparable
from modulekg_widgets.engine.files.compare.renamed_tensors import align_modules, match_renamed
from modulekg_widgets.engine.files.model_file import ModelFile, is_file
from modulekg_widgets.engine.files.records import FileContents, OperatorGraph, OperatorRecord, TensorRecord
from modulekg_widgets.engine.identity.diff import HierarchyDiff
from modulekg_widgets.engine.identity.hierarchy import hierarchy

if TYPE_CHECKING:
    import pandas as pd


# -------------------- Differences between the operators of two files of one format: kind, settings and inputs


REMOVED, ADDED, REWIRED = "removed", "added", "rewired"
OPERATOR_MARKS = {REMOVED: "-", ADDED: "+", REWIRED: "!"}
MAX_ALIGNED = 5_000  # operators; the alignment takes time that grows with the square


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """An operator that only one side has, or that reads other values there ("rewired")."""

    status: str
    operator: OperatorRecord

    def __str__(self) -> str:
        name, op = printable(self.operator.name), printable(self.operator.op)
        settings = ", ".join(
            f"{printable(key)}={printable(str(value))}" for key, value in self.operator.attributes.items()
        )
        return f"{OPERATOR_MARKS[self.status]} {self.status:8} operator {name} {op}({settings[:120]})"


def operator_changes(left: FileContents, right: FileContents) -> list[OperatorChange] | None:
    """Returns the changes from left to right; None if a graph is missing, or the formats differ."""
    if left.graph is None or right.graph is None or left.format != right.format:
        return None
    ours, theirs = left.graph.operators, right.graph.operators
    keys, others = list(map(_key, ours)), list(map(_key, theirs))
    if keys == others:
        wired = zip(ours, _wiring(left.graph), _wiring(right.graph), strict=True)
        return [OperatorChange(REWIRED, operator) for operator, one, other in wired if one != other]
    if max(len(keys), len(others)) > MAX_ALIGNED:
        return _surplus(ours, keys, others, REMOVED) + _surplus(theirs, others, keys, ADDED)
    found: list[OperatorChange] = []
    for kind, a, b, c, d in SequenceMatcher(None, keys, others, autojunk=False).get_opcodes():
        if kind != "equal":
            found += [OperatorChange(REMOVED, operator) for operator in ours[a:b]]
            found += [OperatorChange(ADDED, operator) for operator in theirs[c:d]]
    return found


def _key(operator: OperatorRecord) -> tuple:
    return (operator.op, *sorted((key, repr(value)) for key, value in operator.attributes.items()))


def _surplus(
    operators: tuple[OperatorRecord, ...], keys: list[tuple], others: list[tuple], status: str
) -> list[OperatorChange]:
    """Returns the operators that the other side has fewer of."""
    left = Counter(keys)
    left.subtract(Counter(others))
    found = []
    for operator, key in zip(reversed(operators), reversed(keys), strict=True):
        if left[key] > 0:
            left[key] -= 1
            found.append(OperatorChange(status, operator))
    return found[::-1]


def _wiring(graph: OperatorGraph) -> list[tuple]:
    """Returns the inputs of each operator: producers by index, model inputs by index, others by name."""
    made: dict[str, tuple] = {name: ("input", place) for place, name in enumerate(graph.inputs)}
    found = []
    for place, operator in enumerate(graph.operators):
        found.append(tuple(made.get(name, (name,)) for name in operator.inputs))
        made.update({name: (place, at) for at, name in enumerate(operator.outputs)})
    return found


# -------------------- Comparison of the values of two tensors in chunks, within bounded memory


CHUNK_ELEMENTS = 1 << 22  # elements compared at a time
MAX_REPEATS = 16  # times that a view may be larger than what it is stored in


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """The largest difference of two tensors of the same shape and dtype; None where all bytes are the same.

    NaN where one has a number and the other none, 0 where the same numbers are written in other bits, as -0.
    """
    one, other = _without_repeats(one, other)
    largest = None
    for ours, theirs in _chunks(one, other):
        if not torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8)):
            found = _difference(ours, theirs)
            if largest is None or found > largest or math.isnan(found):
                largest = found
            if math.isnan(found):
                break
    return largest


def is_expanded(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if views expand their storage so much that comparing them would take too long."""
    one, other = _without_repeats(one, other)
    stored = one.untyped_storage().nbytes() + other.untyped_storage().nbytes()
    return one.numel() > CHUNK_ELEMENTS and one.numel() * one.element_size() > MAX_REPEATS * stored


def _without_repeats(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both tensors without dimensions that are expanded (stride 0) on both sides."""
    for dim in range(one.dim()):
        if one.shape[dim] > 1 and one.stride(dim) == other.stride(dim) == 0:
            one, other = one.narrow(dim, 0, 1), other.narrow(dim, 0, 1)
    return one, other


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    wide = torch.complex128 if ours.is_complex() else torch.float64
    ours, theirs = ours.to(wide), theirs.to(wide)
    differ = (ours - theirs).abs()
    differ[(ours == theirs) | (ours.isnan() & theirs.isnan())] = 0  # infinities of one sign, and no numbers at all
    return differ.max().item()


def _chunks(one: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields equal flat chunks of both, along the first dimension if one is not contiguous."""
    if one.is_contiguous() and other.is_contiguous():
        one, other = one.reshape(-1), other.reshape(-1)
    if not one.dim() or not one.numel():
        yield _flat(one), _flat(other)
        return
    rows = max(1, CHUNK_ELEMENTS * one.shape[0] // one.numel())
    for start in range(0, one.shape[0], rows):
        yield _flat(one[start : start + rows]), _flat(other[start : start + rows])


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.resolve_conj().resolve_neg()
    flat = (plain.int_repr() if plain.is_quantized else plain).reshape(-1).cpu()
    return flat if flat.stride() == (1,) else flat.clone(memory_format=torch.contiguous_format)


# ----------------------------------------


SAME, RENAMED, RESHAPED, RETYPED = "same", "renamed", "reshaped", "retyped"
CHANGED, UNREAD = "changed", "unread"
ORDER = (RENAMED, RESHAPED, RETYPED, CHANGED, REMOVED, ADDED, UNREAD)
MARKS = {RENAMED: "~", RESHAPED: "!", RETYPED: "!", CHANGED: "!", REMOVED: "-", ADDED: "+", UNREAD: "?"}
PARTS = ("name", "shape", "dtype")  # of a tensor's record, in the table
MAX_LINES = 200


@dataclass(frozen=True, slots=True)
class TensorPair:
    """A tensor of the left and the one of the right that corresponds to it; None where there is none.

    `status` is "same", "renamed", "reshaped", "retyped", "changed" (its values), "removed", "added", or "unread" where
    values were asked for and cannot be read; `difference` is the largest between two values, None where not compared.
    """

    status: str
    left: TensorRecord | None
    right: TensorRecord | None
    difference: float | None = None

    def __str__(self) -> str:
        ends = [f"{printable(each.name)} {list(each.shape)} {each.dtype}" for each in (self.left, self.right) if each]
        line = f"{MARKS.get(self.status, ' ')} {self.status:8} {' → '.join(dict.fromkeys(ends))}"
        return line if self.difference is None else f"{line}, by up to {self.difference:.6g}"


class FileDiff:
    """The correspondence of the tensors of two models, and of their operators where both are files with graphs.

    Each tensor of either stands in one pair; the further names of a tied one, which the other side need not have, and
    what no state of a model has may stand in none.

    Attributes
    ----------
    pairs : list of TensorPair
        In the order of the left, then what the right alone has.
    operators : list of OperatorChange or None
        What differs between the graphs; None where they were not compared: a side has none, or one of another format.
    """

    def __init__(self, left: ComparableModel, right: ComparableModel, weights: bool) -> None:
        self._left, self._right, self._weights = left, right, weights
        self.pairs = list(_pairs(left, right, weights))
        self.operators = operator_changes(left.contents, right.contents)

    @property
    def identical(self) -> bool:
        """True if no pair and no operator differs."""
        return not self.differences and not self.operators

    @property
    def differences(self) -> list[TensorPair]:
        """The pairs with another status than "same"."""
        return [pair for pair in self.pairs if pair.status != SAME]

    @property
    def counts(self) -> dict[str, int]:
        """Counts of the `differences` by status, and of changed operators as "operators added" etc."""
        found = Counter(pair.status for pair in self.differences)
        counts = {status: found[status] for status in ORDER if status in found}
        changed = Counter(f"operators {each.status}" for each in self.operators or ())
        return {**counts, **changed}

    @cached_property
    def structure(self) -> HierarchyDiff:
        """The module trees of both models, paired by their tensors, as a `HierarchyDiff`."""
        return _structure(self._left, self._right, self.pairs)

    def table(self) -> pd.DataFrame:
        """All pairs as a table.

        Returns
        -------
        DataFrame
            `status`, the names `left` and `right`, `left_shape`, `right_shape`, `left_dtype`, `right_dtype`, and
            `difference`, the largest between two values, where values were compared.
        """
        import pandas as pd

        def row(pair: TensorPair) -> tuple:
            ends = (pair.left, pair.right)
            both = [None if end is None else getattr(end, part) for part in PARTS for end in ends]
            return (pair.status, *both, pair.difference)

        columns = ["status", "left", "right", "left_shape", "right_shape", "left_dtype", "right_dtype", "difference"]
        table = pd.DataFrame([row(pair) for pair in self.pairs], columns=columns, dtype=object)
        return table.astype({"difference": float})

    def __repr__(self) -> str:
        return f"<FileDiff: {self.summary}>"

    def __str__(self) -> str:
        found = [*self.differences, *(self.operators or ())]
        lines = [str(each) for each in found[:MAX_LINES]]
        if len(found) > MAX_LINES:
            lines.append(f"… and {len(found) - MAX_LINES:,} more")
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """One line: the number of tensors that differ, and the properties that were compared."""
        parts = ["names", "shapes", "dtypes"] + ["values"] * self._weights
        parts += ["operators"] if self.operators is not None else []
        compared = f"{', '.join(parts[:-1])} and {parts[-1]}"
        if self.identical:
            return f"same {compared}: {len(self.pairs):,} tensors"
        parts = ", ".join(f"{count:,} {status}" for status, count in self.counts.items())
        return f"{parts}; of {len(self.pairs):,} tensors, by {compared}"


def diff(left: nn.Module | ModelFile, right: nn.Module | ModelFile, weights: bool = False) -> HierarchyDiff | FileDiff:
    """Compare two models: live ones by the structure of their modules, files by their tensors.

    Parameters
    ----------
    left, right : torch.nn.Module or ModelFile
        The models; none of their code runs.
    weights : bool
        Whether to compare values, too, a part at a time: tensors are compared then, of live models as well.

    Returns
    -------
    HierarchyDiff or FileDiff
        Of two live models without `weights` a `HierarchyDiff`: each module of either in exactly one pair. Else a
        `FileDiff`: each tensor in exactly one pair, renamed, reshaped, retyped, changed, removed or added, and the
        trees of both as `.structure`. Both print what differs, and have `.identical`, `.differences` and `.counts`.

    Raises
    ------
    NotAModuleError
        Where one is neither a module nor a file.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> found = mk.diff(nn.Sequential(nn.Linear(4, 2)), nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    >>> found.identical, found.counts
    (False, {'changed': 1, 'added': 1})
    """
    if not weights and not is_file(left) and not is_file(right):
        return HierarchyDiff(hierarchy(left), hierarchy(right))
    return FileDiff(comparable(left), comparable(right), weights)


def _structure(left: ComparableModel, right: ComparableModel, pairs: Iterable[TensorPair]) -> HierarchyDiff:
    order = right if right.live is not None and left.live is None else left  # a file may have its tensors by name
    trees = left.hierarchy(right, order), right.hierarchy(left, order)
    places = left.module_paths(right), right.module_paths(left)
    told = ((end and places[at].get(end.name) for at, end in enumerate((pair.left, pair.right))) for pair in pairs)
    return HierarchyDiff(*trees, partners=align_modules(*trees, ((one, other) for one, other in told)))


def _pairs(left: ComparableModel, right: ComparableModel, weights: bool) -> Iterator[TensorPair]:
    ours = [name for name in left.tensors if right.lacks(name, left)]
    theirs = [name for name in right.tensors if left.lacks(name, right)]
    renamed = match_renamed([left.tensors[name] for name in ours], [right.tensors[name] for name in theirs])
    gone = set(ours)
    for name, record in left.tensors.items():
        if name in right.tensors:
            yield _compared(record, right.tensors[name], left, right, weights)
        elif name in renamed:
            yield _compared(record, right.tensors[renamed[name]], left, right, weights)
        elif name in gone:
            yield TensorPair(REMOVED, record, None)
    taken = set(renamed.values())
    for name in theirs:
        if name not in taken:
            yield TensorPair(ADDED, None, right.tensors[name])


def _compared(
    one: TensorRecord, other: TensorRecord, left: ComparableModel, right: ComparableModel, weights: bool
) -> TensorPair:
    if one.shape != other.shape:
        return TensorPair(RESHAPED, one, other)
    if one.dtype != other.dtype:
        return TensorPair(RETYPED, one, other)
    status, difference = RENAMED if one.name != other.name else SAME, None
    if weights:
        values = left.value(one.name), right.value(other.name)
        if values[0] is None or values[1] is None or is_expanded(values[0], values[1]):
            return TensorPair(status if left.has_same_bytes(right, one, other) else UNREAD, one, other)
        difference = largest_difference(values[0], values[1])
        if difference is not None:
            status = CHANGED
    return TensorPair(status, one, other, difference)
