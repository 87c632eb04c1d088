"""What a model is called with: positional and keyword arguments, and the names of the tensors in them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import TraceError, shown
from modulekg_widgets.engine.torch_runtime.structure import tensors


class FromList(tuple[Any, ...]):
    """Arguments that were passed as a list, which may have been meant as the one argument."""

    __slots__ = ()


def list_hint(args: tuple[Any, ...]) -> str:
    """What to say behind an error when a list was taken apart into arguments; else nothing."""
    if not isinstance(args, FromList):
        return ""
    inside = "[x]" if len(args) == 1 else "[x, …]"
    return f". A list is taken apart into arguments: to pass the list itself as one, write `({inside},)`"


def call_arguments(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the user passed as `args` and `kwargs`, as the two that a call takes; one tensor or a dict alone will do."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TraceError(f"kwargs is a {shown(type(kwargs).__name__)}: pass a dict of keyword arguments")
    if isinstance(args, Mapping) and kwargs is None:
        return (), dict(args)
    if isinstance(args, torch.Tensor) or not isinstance(args, tuple | list):
        args = () if args is None else (args,)
    return FromList(args) if isinstance(args, list | FromList) else tuple(args), dict(kwargs or {})


def input_tensors(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """The tensors of the inputs in the order of forward's parameters, named after these.

    Raises `TraceError` when there is no forward, or the arguments do not fit its signature.
    """
    if getattr(model.forward, "__func__", None) is nn.Module.forward:
        raise TraceError(f"{shown(type(model).__name__)} has no forward: trace a model that can be called")
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        signature = None  # compiled forward
    bound: Mapping[str, Any] = {**{f"args[{i}]": value for i, value in enumerate(args)}, **kwargs}
    if signature is not None and not isinstance(model, torch.jit.ScriptModule):
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TraceError(
                f"the inputs do not fit forward{signature} of {shown(type(model).__name__)}: {error}; "
                f"pass them as args=(…) and kwargs={{…}}{list_hint(args)}"
            ) from None
    return [entry for name, value in bound.items() for entry in tensors(value, name)]
