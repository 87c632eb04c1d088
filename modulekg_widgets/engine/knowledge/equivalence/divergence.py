"""The first difference of two functions, as a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.knowledge.equivalence.value_numbering import MOVED, STATE, UNKNOWN, FlowFunction, FlowValue


def first_divergence(a: FlowFunction, b: FlowFunction, names: tuple[str, str]) -> str:
    """Describes the first difference of the functions; empty if there is none."""
    if a.digest == b.digest:
        return ""
    one, other = _first_without_match(a, b), _first_without_match(b, a)
    for name, first in zip(names, (one, other), strict=True):
        unknown = None if first is None else next(filter(_is_unknown, (first, *first.inputs)), None)
        if unknown is not None:
            return f"it cannot be told, as in {printable(name)} {_reason(unknown)}"
    if one is None and other is None:
        same = [value.label for value in a.outputs] == [value.label for value in b.outputs]
        return _sharing_difference(a, b, names) if same else "they give other values of the same data flow"
    if one is None or other is None:
        name, more = (names[0], one) if other is None else (names[1], other)
        assert more is not None
        return f"{printable(name)} has {_location(more)} besides"
    if (one.name, one.shape) == (other.name, other.shape) and len(one.inputs) == len(other.inputs):
        return (
            f"{_location(one)} in {printable(names[0])} has {_difference(one, other)} of {_location(other)} in "
            f"{printable(names[1])}"
        )
    return f"{printable(names[0])} has {_described(one)} where {printable(names[1])} has {_described(other)}"


def _is_unknown(value: FlowValue) -> bool:
    return value.name == UNKNOWN


def _reason(value: FlowValue) -> str:
    return value.settings["reason"] + ("" if value.operator is None else f" ({_location(value)})")


def _first_without_match(function: FlowFunction, other: FlowFunction) -> FlowValue | None:
    """Returns the first operator, in order of execution, that the other function does not have."""
    known = {value.label for value in other.live_values}
    new = [value for value in function.live_values if value.operator is not None and value.label not in known]
    return min(new, key=lambda value: value.operator.index if value.operator else 0, default=None)


def _location(value: FlowValue) -> str:
    operator = value.operator
    if operator is None:
        return value.name
    return f"{_name(value)} in {printable(operator.module) or '(root)'!r}"


def _name(value: FlowValue) -> str:
    moved = value.name == MOVED and value.operator is not None
    return value.operator.name if moved and value.operator else value.name


def _described(value: FlowValue) -> str:
    given = ", ".join(_shapes(value.inputs)) or "nothing"
    return f"{_location(value)} (of {given}, to {list(value.shape)}{_settings_text(value)})"


def _settings_text(value: FlowValue) -> str:
    found = [f"{name} {text}" for name, text in value.settings.items() if name not in ("overload", "places")]
    return "".join(f", {each}" for each in found if not each.endswith((" value", " None")))


def _shapes(values: Iterable[FlowValue]) -> list[str]:
    return [f"{'a weight of ' if value.name == STATE else ''}{list(value.shape)}" for value in values]


def _difference(one: FlowValue, other: FlowValue) -> str:
    """Describes the difference of two calls of one operator."""
    if one.name == MOVED:
        return "other elements moved than those"
    names = [name for name in {**one.settings, **other.settings}
             if one.settings.get(name) != other.settings.get(name)]  # fmt: skip
    if names:
        return " and ".join(f"{name} {one.settings.get(name)} against the {other.settings.get(name)}" for name in names)
    mine, theirs = _shapes(one.inputs), _shapes(other.inputs)
    if mine != theirs:
        return f"inputs of {', '.join(mine)} against the {', '.join(theirs)}"
    return "other inputs, or in another order, than those"


def _sharing_difference(a: FlowFunction, b: FlowFunction, names: tuple[str, str]) -> str:
    """Describes the difference in shared weights, where the operators are the same."""
    counts = [f"{len(function.state)} in {printable(name)}" for name, function in zip(names, (a, b), strict=True)]
    return f"the operators are the same, but they share weights otherwise: these are {' and '.join(counts)}"
