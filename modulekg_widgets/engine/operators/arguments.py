"""The arguments of an operator call by name: positional, keyword or default.

Names are those of the operator's schema. A user's operator with `like=` is read by the names of that operator:
`mk.axis_rule("mylib::norm", like="aten::layer_norm", args={"weight": "w"})` makes `call["weight"]` read `w`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from modulekg_widgets.engine.errors import UnknownNameError, printable
from modulekg_widgets.engine.operators.recorded_call import RecordedCall, nodes_in
from modulekg_widgets.engine.operators.signature import overloads_of, plain_name
from modulekg_widgets.engine.operators.user_operators import cached_by_overload, user_operators
from modulekg_widgets.engine.torch_runtime.private import Overload, schema_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs


class ArgumentPosition(NamedTuple):
    """The position of an argument: its name and index in the call, or neither where the default holds."""

    name: str | None
    position: int
    default: Any
    is_list: bool = False  # one number here is a list of one for the operator that this one is like


class SchemaReading(NamedTuple):
    """The mapping from argument names to positions, by the overload's own schema or by that of its `like=`."""

    overload: Overload
    positions: dict[str, ArgumentPosition]
    is_native: bool  # False where the names are those of the operator that it is like


class Arguments:
    """The arguments of one call by name."""

    __slots__ = ("_args", "_is_native", "_kwargs", "_positions", "overload")

    def __init__(self, overload: Overload, args: Args, kwargs: Mapping[str, Any]) -> None:
        self.overload, self._positions, self._is_native = schema_reading(overload)
        self._args = args
        self._kwargs = kwargs

    def __getitem__(self, name: str) -> Any:
        """The argument of that name in the operator's schema, or its default."""
        place = self._positions.get(name)
        if place is None:
            raise UnknownNameError(
                f"{schema_of(self.overload)} has no argument {printable(name)!r}: its rule asks for it"
            )
        own, position, value, is_list = place
        if own is not None and own in self._kwargs:
            value = self._kwargs[own]
        elif 0 <= position < len(self._args):
            value = self._args[position]
        return [value] if is_list and isinstance(value, int) else value

    def has(self, name: str) -> bool:
        """True if the schema has an argument of that name."""
        return name in self._positions

    def get(self, name: str, default: Any = None) -> Any:
        """The argument, or `default` when the operator has none of this name."""
        return self[name] if name in self._positions else default

    def may_change(self, name: str) -> bool:
        """True if the call can be repeated with another value of an argument."""
        return name in self._positions and self._positions[name].name is not None

    def with_values(self, values: Mapping[str, Any]) -> tuple[Args, Kwargs]:
        """Returns the positional and keyword arguments with some values replaced."""
        args, kwargs = list(self._args), dict(self._kwargs)
        for name, value in values.items():
            own, position, _, is_list = self._positions[name]
            assert own is not None
            value = value[0] if is_list and len(value) == 1 else value
            if own not in kwargs and position < len(args):
                args[position] = value
            else:
                kwargs[own] = value
        return tuple(args), kwargs

    def native_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments and keywords as the operator takes them whose names they have."""
        if self._is_native:
            return list(self._args), dict(self._kwargs)
        args: list[Any] = []
        kwargs: Kwargs = {}
        for argument in schema_of(self.overload).arguments:
            if argument.kwarg_only:
                kwargs[argument.name] = self[argument.name]
            else:
                args.append(self[argument.name])
        return args, kwargs


class OperatorCall(Arguments):
    """One recorded call as traits, formulas and rules see it; of an operator that is like another one, as of that."""

    __slots__ = ("operator",)

    def __init__(self, operator: RecordedCall) -> None:
        super().__init__(operator.overload, operator.args, operator.kwargs)
        self.operator = operator

    @property
    def name(self) -> str:
        """The operator's name without namespace, overload and the underscore of writing in place."""
        return plain_name(schema_of(self.overload).name)

    @property
    def inputs(self) -> list[Any]:
        """The values among the arguments, in order."""
        given = self.operator.inputs
        if self._is_native:
            return given
        found = [node for name in self._positions for node in nodes_in(self[name])]
        return found + [node for node in given if node not in found]

    @property
    def results(self) -> list[Any]:
        """The values that the call returned, in order."""
        return nodes_in(self.operator.result)

    @property
    def output(self) -> Any:
        """The first value that the call returned; what went in first where it returned none."""
        results = self.results
        return results[0] if results else self.inputs[0]


def schema_arguments(overload: Overload, args: Args, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by the names in the operator's own schema."""
    return {
        name: kwargs[name] if name in kwargs else args[at] if at < len(args) else default
        for name, (_, at, default, _) in _schema_positions(overload).items()
    }


@cache
def _schema_positions(overload: Overload) -> dict[str, ArgumentPosition]:
    """Reading a schema takes long."""
    every = schema_of(overload).arguments
    return {each.name: ArgumentPosition(each.name, at, each.default_value) for at, each in enumerate(every)}


@cached_by_overload
def schema_reading(overload: Overload) -> SchemaReading:
    """Returns the mapping from argument names to positions of an overload."""
    user = user_operators.get(schema_of(overload).name)
    alike = None if user is None or user.like is None else reading_like(overload, user.like, user.args)
    return alike or SchemaReading(overload, _schema_positions(overload), True)


@cached_by_overload
def effective_name(overload: Overload) -> str:
    """The plain name of an operator, or of the one that it is like."""
    return plain_name(schema_of(schema_reading(overload).overload).name)


@cache
def _numbers(overload: Overload) -> frozenset[str]:
    kinds = ("number", "Tensor", "Optional[number]", "Optional[Tensor]")
    return frozenset(each.name for each in schema_of(overload).arguments if str(each.type) in kinds)


def number_arguments(overload: Overload) -> frozenset[str]:
    """Returns the names of the arguments that are numbers, or tensors that a number may replace."""
    read, places, is_own = schema_reading(overload)
    numbers = _numbers(read)
    return numbers if is_own else frozenset(places[name].name or "" for name in numbers & places.keys())


# ----------------------------------------------------------------- operators that are like others


def reading_like(overload: Overload, like: str, args: Mapping[str, str]) -> SchemaReading | None:
    """Maps the arguments of an overload to those of the operator `like`; None where torch has no such operator.

    An argument stands where `args` says (theirs → own), else under its name, else at its position.
    """
    every = [SchemaReading(theirs, _matched_arguments(overload, theirs, args), False) for theirs in overloads_of(like)]
    return max(every, key=lambda reading: _fitness(overload, reading, args), default=None)


def missing_arguments(reading: SchemaReading, tensors: bool = False) -> list[str]:
    """The arguments, or the tensors among them, that the schema demands and a call does not have."""
    known = [each for each in schema_of(reading.overload).arguments if not tensors or _kind(each) == "tensor"]
    return [each.name for each in known if _is_demanded(each) and each.name not in reading.positions]


def _is_demanded(argument: torch.Argument) -> bool:
    return not argument.has_default_value() and not str(argument.type).startswith("Optional")


def _fitness(overload: Overload, reading: SchemaReading, args: Mapping[str, str]) -> tuple[int, ...]:
    own = {place.name for place in reading.positions.values()}
    named = sum(name == place.name or name in args for name, place in reading.positions.items())
    unused = len(_schema_positions(overload).keys() - own)
    return (len(args.keys() & reading.positions.keys()), -len(missing_arguments(reading)), named, -unused,
            len(reading.overload.tags))  # fmt: skip


def _matched_arguments(overload: Overload, theirs: Any, args: Mapping[str, str]) -> dict[str, ArgumentPosition]:
    own, mine = _schema_positions(overload), schema_of(overload).arguments
    known = schema_of(theirs).arguments
    claimed = {*args.values(), *(each.name for each in known if each.name not in args)}
    places: dict[str, ArgumentPosition] = {}
    for at, each in enumerate(known):
        name = args.get(each.name, each.name if each.name not in args.values() else None)
        if name not in own and at < len(mine) and not each.kwarg_only and mine[at].name not in claimed:
            name = mine[at].name if _kind(mine[at]) == _kind(each) else None
        if name in own:
            is_list = "List[int]" in str(each.type) and "List" not in str(mine[own[name].position].type)
            places[each.name] = own[name]._replace(is_list=is_list)
        elif not _is_demanded(each):
            places[each.name] = ArgumentPosition(None, -1, each.default_value)
    return places


def _kind(argument: torch.Argument) -> str:
    """Returns the kind of an argument, as "tensor", "flag" or "number"; only equal kinds match by position."""
    text = str(argument.type)
    kinds = {"Tensor": "tensor", "bool": "flag", "int": "number", "float": "number", "number": "number"}
    return next((kind for part, kind in kinds.items() if part in text), text)
