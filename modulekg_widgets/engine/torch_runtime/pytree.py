"""Tensors in nested tuples, lists, mappings and dataclasses: iteration and mapping, as in a pytree."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import TraceError, a_type, printable

Args: TypeAlias = tuple[Any, ...]  # the positional arguments of a call
Kwargs: TypeAlias = dict[str, Any]  # its keyword arguments
Call: TypeAlias = tuple[Args, Kwargs]
Function: TypeAlias = Callable[..., Any]  # of whatever arguments
SEQUENCES: tuple[type[Any], ...] = (list, tuple)  # of unknown elements
T = TypeVar("T")
MAX_DEPTH = 8  # levels of a structure that counts as plain


def tensors(value: object, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every tensor in `value` with its path, such as `out.logits` or `x[0]`; containers are visited once."""
    return leaves(value, torch.Tensor, name)


def indexed_tensors(value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every tensor in an argument with its steps in it as Python writes them, as `["image"][0]`."""
    return leaves(value, torch.Tensor, inside_of=indexed_entries)


def with_tensors(value: T, change: Callable[[torch.Tensor], object]) -> T:
    """A copy of `value` in which every tensor is what `change` makes of it; what holds no tensor is not copied."""
    return with_leaves(value, torch.Tensor, change)


def leaves(
    value: object, kind: type[T], name: str = "", inside_of: Callable[[object], list[tuple[str, Any]]] | None = None
) -> Iterator[tuple[str, T]]:
    """Every instance of `kind` in `value` with its name, of the steps that `inside_of` gives, those of `entries`."""
    waiting = [(name, value)]
    entered: set[int] = set()
    while waiting:
        place, item = waiting.pop()
        if isinstance(item, kind):
            yield place, item
            continue
        inside = (inside_of or entries)(item)
        if inside and id(item) not in entered:
            entered.add(id(item))
            waiting.extend(reversed([(place + step, part) for step, part in inside]))


def with_leaves(value: object, kind: type, change: Callable[[Any], object]) -> Any:
    """A copy of `value` in which every instance of `kind` is what `change` makes of it."""
    return _copied(value, kind, change, {})


def is_plain_structure(value: object, kind: type, depth: int = MAX_DEPTH) -> bool:
    """True if `value` consists of `kind`, numbers, text and None in known containers."""
    if isinstance(value, kind) or type(value) in (int, float, bool, str, type(None)):
        return True
    entered = type(value) in (tuple, list, dict) or hasattr(value, "_fields") or dataclasses.is_dataclass(value)
    return entered and depth > 0 and all(is_plain_structure(part, kind, depth - 1) for _, part in entries(value))


def nested_rows(tensor: torch.Tensor) -> torch.Tensor:
    """A nested tensor as the rows of all samples, one after the other; any other tensor is itself."""
    return tensor.values() if tensor.is_nested else tensor


def entries(value: object) -> list[tuple[str, Any]]:
    """Returns the entries of a container with their path step, as `.logits` or `[0]`."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]" if not isinstance(key, str) else f".{key}", value[key]) for key in value]
    if isinstance(value, tuple) and (fields := getattr(value, "_fields", None)) is not None:
        return [(f".{field}", part) for field, part in zip(fields, value, strict=True)]
    if isinstance(value, tuple | list):
        return [(f"[{i}]", part) for i, part in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return []


def indexed_entries(value: object) -> list[tuple[str, Any]]:
    """Returns the entries of a container with their step as Python writes it, as `["image"]`, `[0]` or `.field`."""
    if isinstance(value, Mapping):
        written = ((key, json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)) for key in value)
        return [(f"[{name}]", value[key]) for key, name in written]
    return entries(value)


def _copied(value: object, kind: type, change: Callable[[Any], object], made: dict[int, Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if id(value) in made:  # a container that stands in several places, or in itself
        return made[id(value)]
    if next(leaves(value, kind), None) is None:
        return value
    if isinstance(value, tuple):
        parts = [_copied(part, kind, change, made) for part in value]
        make = getattr(type(value), "_make", type(value))
        return make(parts)
    new = made[id(value)] = _shallow_copy(value)
    if isinstance(value, list):
        new[:] = [_copied(part, kind, change, made) for part in value]
    elif isinstance(value, Mapping):
        for key in value:
            new[key] = _copied(value[key], kind, change, made)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):  # the way past a frozen dataclass
                object.__setattr__(new, field.name, _copied(getattr(value, field.name), kind, change, made))
    return new


def _shallow_copy(value: object) -> Any:
    """A copy that can be filled: of the same class, or a plain dict where a mapping cannot be copied or written."""
    if isinstance(value, Mapping) and not isinstance(value, MutableMapping):
        return {}
    return copy.copy(value)


# -------------------- The inputs of a model: positional and keyword arguments, and the names of their tensors


class FromList(Args):
    """Arguments that were passed as a list, which may have been meant as the one argument."""

    __slots__ = ()


def with_list_hint(message: str, model: nn.Module, args: Args) -> str:
    """Returns an error message, after a hint where a list was unpacked that forward may have been meant to get whole.

    The hint stands first: what follows is of the wrong call, and may be long.
    """
    if not isinstance(args, FromList) or not _takes_one_argument(model):
        return message
    inside = "[x]" if len(args) == 1 else "[x, …]"
    hint = f"If forward takes the list as one argument, write `args=({inside},)`"
    return f"{hint}. {message[:1].upper()}{message[1:]}"


def _takes_one_argument(model: nn.Module) -> bool:
    try:
        inspect.signature(model.forward).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def call_arguments(args: object, kwargs: Mapping[str, Any] | None) -> tuple[Args, Kwargs]:
    """Returns `args` and `kwargs` of the user as a tuple and a dict; a single tensor or a dict is accepted."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TraceError(f"kwargs is {a_type(kwargs)}: pass a dict of keyword arguments")
    if isinstance(args, Mapping) and kwargs is None:
        return (), dict(args)
    if isinstance(args, torch.Tensor) or not isinstance(args, tuple | list):
        args = () if args is None else (args,)
    return FromList(args) if isinstance(args, list | FromList) else tuple(args), dict(kwargs or {})


def input_tensors(model: nn.Module, args: Args, kwargs: Kwargs) -> list[tuple[str, torch.Tensor]]:
    """The tensors of the inputs in the order of forward's parameters, named after these.

    Raises `TraceError` when there is no forward, or the arguments do not fit its signature.
    """
    if getattr(model.forward, "__func__", None) is nn.Module.forward:
        raise TraceError(f"{printable(type(model).__name__)} has no forward: trace a model that can be called")
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        signature = None  # compiled forward
    bound: Mapping[str, Any] = {**{f"args[{i}]": value for i, value in enumerate(args)}, **kwargs}
    if signature is not None and not isinstance(model, torch.jit.ScriptModule):
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            message = (
                f"the inputs do not fit forward{signature} of {printable(type(model).__name__)}: {error}; "
                "pass them as args=(…) and kwargs={…}"
            )
            raise TraceError(with_list_hint(message, model, args)) from None
    return [entry for name, value in bound.items() for entry in tensors(value, name)]
