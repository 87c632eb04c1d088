"""What differs between two models of which one or both are files: names, shapes, dtypes and, if asked for, values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torch import nn

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.files.model_file import ModelFile, is_file
from modulekg_widgets.engine.files.module_pairs import module_pairs
from modulekg_widgets.engine.files.operator_changes import operator_changes
from modulekg_widgets.engine.files.records import TensorRecord
from modulekg_widgets.engine.files.renaming import renamed_pairs
from modulekg_widgets.engine.files.sides import Side, side_of
from modulekg_widgets.engine.files.values import are_mostly_repeats, largest_difference
from modulekg_widgets.engine.identity.diff import HierarchyDiff
from modulekg_widgets.engine.identity.hierarchy import hierarchy

if TYPE_CHECKING:
    import pandas as pd

SAME, RENAMED, RESHAPED, RETYPED = "same", "renamed", "reshaped", "retyped"
CHANGED, REMOVED, ADDED, UNREAD = "changed", "removed", "added", "unread"
ORDER = (RENAMED, RESHAPED, RETYPED, CHANGED, REMOVED, ADDED, UNREAD)
MARKS = {RENAMED: "~", RESHAPED: "!", RETYPED: "!", CHANGED: "!", REMOVED: "-", ADDED: "+", UNREAD: "?"}
PARTS = ("name", "shape", "dtype")  # of a tensor's record, in the table
MOST_LINES = 200


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
        ends = [f"{shown(each.name)} {list(each.shape)} {each.dtype}" for each in (self.left, self.right) if each]
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

    def __init__(self, left: Side, right: Side, weights: bool) -> None:
        self._left, self._right, self._weights = left, right, weights
        self.pairs = list(_pairs(left, right, weights))
        self.operators = operator_changes(left.contents, right.contents)

    @property
    def identical(self) -> bool:
        """Whether nothing differs of what was compared."""
        return not self.differences and not self.operators

    @property
    def differences(self) -> list[TensorPair]:
        """The pairs that are not the same."""
        return [pair for pair in self.pairs if pair.status != SAME]

    @property
    def counts(self) -> dict[str, int]:
        """How many of the `differences` have each status, and operators, as "operators added"."""
        found = Counter(pair.status for pair in self.differences)
        counts = {status: found[status] for status in ORDER if status in found}
        changed = Counter(f"operators {each.status}" for each in self.operators or ())
        return {**counts, **changed}

    @cached_property
    def structure(self) -> HierarchyDiff:
        """The modules of both as trees, by all that is known of both, paired as their tensors are; classes only where
        both have them. This is what `mk.ModelGraph(…, compare=…)` shows.
        """
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
        lines = [str(each) for each in found[:MOST_LINES]]
        if len(found) > MOST_LINES:
            lines.append(f"… and {len(found) - MOST_LINES:,} more")
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """How many tensors differ, and in what they were compared, in one line."""
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
    return FileDiff(side_of(left), side_of(right), weights)


def _structure(left: Side, right: Side, pairs: Iterable[TensorPair]) -> HierarchyDiff:
    order = right if right.live is not None and left.live is None else left  # a file may have its tensors by name
    trees = left.hierarchy(right, order), right.hierarchy(left, order)
    places = left.places(right), right.places(left)
    told = ((end and places[at].get(end.name) for at, end in enumerate((pair.left, pair.right))) for pair in pairs)
    return HierarchyDiff(*trees, partners=module_pairs(*trees, ((one, other) for one, other in told)))


def _pairs(left: Side, right: Side, weights: bool) -> Iterator[TensorPair]:
    ours = [name for name in left.tensors if right.lacks(name, left)]
    theirs = [name for name in right.tensors if left.lacks(name, right)]
    renamed = renamed_pairs([left.tensors[name] for name in ours], [right.tensors[name] for name in theirs])
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


def _compared(one: TensorRecord, other: TensorRecord, left: Side, right: Side, weights: bool) -> TensorPair:
    if one.shape != other.shape:
        return TensorPair(RESHAPED, one, other)
    if one.dtype != other.dtype:
        return TensorPair(RETYPED, one, other)
    status, difference = RENAMED if one.name != other.name else SAME, None
    if weights:
        values = left.value(one.name), right.value(other.name)
        if values[0] is None or values[1] is None or are_mostly_repeats(values[0], values[1]):
            return TensorPair(status if left.holds_the_bytes_of(right, one, other) else UNREAD, one, other)
        difference = largest_difference(values[0], values[1])
        if difference is not None:
            status = CHANGED
    return TensorPair(status, one, other, difference)
