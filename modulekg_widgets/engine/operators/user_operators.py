"""Operators of users: shape, value and FLOPs functions, and the operator that each is like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import torch

from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.torch_runtime.private import Overload
from modulekg_widgets.engine.torch_runtime.pytree import SEQUENCES, Function, Kwargs

Derived = TypeVar("Derived")
DUPLICATE_RULE = "{} has a rule already: choose another operator"


@dataclass(frozen=True, slots=True)
class UserOperator:
    """A user's operator: its shape function, its value function, its FLOPs, and the operator that it is like."""

    shape: Function | None = None
    value: Function | None = None
    flops: Callable[..., int] | None = None
    like: str | None = None  # the operator that this one behaves as
    # arguments of `like` by other names here: theirs → own
    args: Mapping[str, str] = field(default_factory=dict[str, str])

    def __call__(self, func: Overload, args: Sequence[Any], kwargs: Kwargs, on_meta: bool) -> object:
        """Runs the operator, by the user's function where there is one.

        `shape` gets the operator's arguments and returns a shape (for a result like the first tensor), or tensors.
        """
        if on_meta and self.shape is not None:
            result = self.shape(*args, **kwargs)
            if isinstance(result, SEQUENCES) and all(isinstance(size, int) for size in result):
                given = (argument for argument in (*args, *kwargs.values()) if isinstance(argument, torch.Tensor))
                first = next(given, None)
                return torch.empty(tuple(result), device="meta") if first is None else first.new_empty(tuple(result))
            return result
        if not on_meta and self.value is not None:
            return self.value(*args, **kwargs)
        return func(*args, **kwargs)


user_operators: Registry[UserOperator] = Registry("operator", duplicate_message=DUPLICATE_RULE)


def cached_by_overload(find: Callable[[Any], Derived]) -> Callable[[Any], Derived]:
    """A function of an overload that answers from memory until a user says something of an operator."""
    known: dict[int, tuple[Any, object, Derived]] = {}  # by the overload's address: hashing takes long

    @wraps(find)
    def answer(overload: Overload) -> Derived:
        entry = known.get(id(overload))
        if entry is None or entry[0] is not overload or entry[1] is not user_operators.entries:
            entry = known[id(overload)] = overload, user_operators.entries, find(overload)
        return entry[2]

    return answer
