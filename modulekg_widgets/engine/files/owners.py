"""Which module of a file each of its tensors belongs to: as its name tells, else as the one module that reads it does.

js/src/core/files/tree/owners.ts has the same rules.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from modulekg_widgets.engine.files.records import FileContents, TensorRecord

COUNTER = re.compile(r"_?\d{1,9}\Z")
UNTOLD_ROLES = ("onnx",)  # formats that tell no roles: those that tensors have are by how operators read them
Owned = tuple[str, str, TensorRecord]  # the path of a module, the tensor's name in it, and the tensor


def owners(contents: FileContents) -> list[Owned]:
    """Every tensor with its module and its name there, in the order of the file, constants last.

    An exporter that computes a weight anew, or a constant, gives it a name that is no path: it belongs to the module
    in which alone operators read it, under its whole name, and else to the root.
    """
    others = [each for each in contents.tensors if each.role != "constant"]
    constants = [each for each in contents.tensors if each.role == "constant"]
    known = ModulePaths(_told(contents, others)) if constants else ModulePaths(())
    placed = [(named(each.name), each) for each in others]
    placed += [(_of_constant(each.name, known), each) for each in constants]
    moves = contents.format in UNTOLD_ROLES
    loose = {each.name for (path, _), each in placed if not path and (moves or _may_move(each))}
    readers = _only_readers(contents, loose)
    taken = {each.name for each in contents.tensors} if readers else frozenset()
    return [
        (reader, record.name, record)
        if (reader := readers.get(record.name)) and f"{reader}.{record.name}" not in taken
        else (path, own, record)
        for (path, own), record in placed
    ]


def without_counters(owned: Sequence[Owned]) -> list[Owned]:
    """To compare modules: names that are no paths are numbered in each module, and not through the whole file.

    Exporters count what they make; one operator more would give all weights behind it another name.
    """
    moves = [bool(path) and named(record.name)[0] != path for path, _, record in owned]
    taken = {each[:2] for each, moved in zip(owned, moves, strict=True) if not moved}
    counts: Counter[tuple[str, str]] = Counter()
    made = []
    for (path, own, record), moved in zip(owned, moves, strict=True):
        if moved:
            kind = COUNTER.sub("", own)
            own = kind
            while (path, own) in taken:
                counts[path, kind] += 1
                own = f"{kind}_{counts[path, kind]}"
            taken.add((path, own))
        made.append((path, own, record))
    return made


def named(name: str) -> tuple[str, str]:
    """The path and the own name that a tensor's name is made of; one without a path stands in the root as it is.

    A name as "/model.1/Constant_output_0" is that of a value, in the words of torch's older exporter, and no path.
    """
    path, _, own = name.rpartition(".")
    return (path, own) if path and not name.startswith("/") else ("", name)


def _of_constant(name: str, known: ModulePaths) -> tuple[str, str]:
    path, own = named(name)
    return (path, own) if path in known else ("", name)


def _may_move(record: TensorRecord) -> bool:
    """Whether the root has it only for want of another: what is told to be a parameter or buffer has its full name."""
    return record.role in (None, "constant")


def _told(contents: FileContents, named_tensors: Iterable[TensorRecord]) -> Iterator[str]:
    yield from (part.path for part in contents.modules)
    if contents.graph is not None:
        yield from (each.module for each in contents.graph.operators)
    yield from (named(each.name)[0] for each in named_tensors)


class ModulePaths:
    """Paths and all that they begin with, which may be too many to list: one may have as many parts as characters."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._sorted = sorted({f"{path}." for path in paths})

    def __contains__(self, path: str) -> bool:
        inside = f"{path}."
        at = bisect_left(self._sorted, inside)
        return at < len(self._sorted) and self._sorted[at].startswith(inside)


def _only_readers(contents: FileContents, names: set[str]) -> dict[str, str]:
    """Of each of these tensors that is read the module in which that is done; "" for the root or several modules."""
    found: dict[str, str] = {}
    for operator in contents.graph.operators if names and contents.graph is not None else ():
        for name in operator.inputs:
            if name in names and found.setdefault(name, operator.module) != operator.module:
                found[name] = ""
    return found
