"""What differs between the operators of two files of one format: which they are, their settings, and what they read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.files.records import FileContents, OperatorGraph, OperatorRecord

REMOVED, ADDED, REWIRED = "removed", "added", "rewired"
MARKS = {REMOVED: "-", ADDED: "+", REWIRED: "!"}
LONGEST_ALIGNED = 5_000  # operators; the alignment takes time that grows with the square


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """An operator that one side has and the other has not, or, "rewired", that reads other values there."""

    status: str
    operator: OperatorRecord

    def __str__(self) -> str:
        name, op = shown(self.operator.name), shown(self.operator.op)
        settings = ", ".join(f"{shown(key)}={shown(str(value))}" for key, value in self.operator.attributes.items())
        return f"{MARKS[self.status]} {self.status:8} operator {name} {op}({settings[:120]})"


def operator_changes(left: FileContents, right: FileContents) -> list[OperatorChange] | None:
    """The changes from left to right; None where a side has no graph, or one of another format's operators."""
    if left.graph is None or right.graph is None or left.format != right.format:
        return None
    ours, theirs = left.graph.operators, right.graph.operators
    keys, others = list(map(_key, ours)), list(map(_key, theirs))
    if keys == others:
        wired = zip(ours, _wiring(left.graph), _wiring(right.graph), strict=True)
        return [OperatorChange(REWIRED, operator) for operator, one, other in wired if one != other]
    if max(len(keys), len(others)) > LONGEST_ALIGNED:
        return _counted(ours, keys, others, REMOVED) + _counted(theirs, others, keys, ADDED)
    found: list[OperatorChange] = []
    for kind, a, b, c, d in SequenceMatcher(None, keys, others, autojunk=False).get_opcodes():
        if kind != "equal":
            found += [OperatorChange(REMOVED, operator) for operator in ours[a:b]]
            found += [OperatorChange(ADDED, operator) for operator in theirs[c:d]]
    return found


def _key(operator: OperatorRecord) -> tuple:
    return (operator.op, *sorted((key, repr(value)) for key, value in operator.attributes.items()))


def _counted(
    operators: tuple[OperatorRecord, ...], keys: list[tuple], others: list[tuple], status: str
) -> list[OperatorChange]:
    """Those of which the other side has fewer."""
    left = Counter(keys)
    left.subtract(Counter(others))
    found = []
    for operator, key in zip(reversed(operators), reversed(keys), strict=True):
        if left[key] > 0:
            left[key] -= 1
            found.append(OperatorChange(status, operator))
    return found[::-1]


def _wiring(graph: OperatorGraph) -> list[tuple]:
    """What each operator reads: outputs of others by place, inputs of the model by place, anything else by its name."""
    made: dict[str, tuple] = {name: ("input", place) for place, name in enumerate(graph.inputs)}
    found = []
    for place, operator in enumerate(graph.operators):
        found.append(tuple(made.get(name, (name,)) for name in operator.inputs))
        made.update({name: (place, at) for at, name in enumerate(operator.outputs)})
    return found
