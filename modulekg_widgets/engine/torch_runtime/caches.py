"""Functions with `lru_cache`: their results are computed on real tensors during isolated runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from types import FrameType
from typing import Any

import torch

from modulekg_widgets.engine.torch_runtime.private import CALL_CODE, FakeTensor, Overload, disable_current_modes
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs

_MODULE_CALL = CALL_CODE


def uncaptured_result(func: Overload, args: Args, kwargs: Kwargs) -> Any:
    """Runs an operator outside all modes if a cached function called it, so that the cache holds real tensors.

    To be called where a mode dispatches an operator.
    """
    kwargs = kwargs or {}
    given = list(tensors_in((*args, *kwargs.values())))
    device = kwargs.get("device")
    if any(t.is_meta or isinstance(t, FakeTensor) for t in given) or (device and torch.device(device).type == "meta"):
        return None
    if not _is_in_cached_function(sys._getframe(2)):
        return None
    with disable_current_modes():
        return func(*args, **kwargs)


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among the arguments of an operator."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _is_in_cached_function(frame: FrameType | None) -> bool:
    """True if a function with `lru_cache` runs inside the innermost module call."""
    while frame is not None and frame.f_code is not _MODULE_CALL:
        if isinstance(_defined_function(frame), _lru_cache_wrapper):
            return True
        frame = frame.f_back
    return False


def _defined_function(frame: FrameType) -> Any:
    """Returns the function that a frame runs, found by its qualified name; None where that is another one."""
    first, *rest = getattr(frame.f_code, "co_qualname", frame.f_code.co_name).split(".")
    found = frame.f_globals.get(first)
    for name in rest:
        found = vars(found).get(name) if isinstance(found, type) else None
    found = getattr(found, "__func__", found) if isinstance(found, staticmethod | classmethod) else found
    inner = getattr(found, "__wrapped__", None) if isinstance(found, _lru_cache_wrapper) else None
    return found if getattr(inner, "__code__", None) is frame.f_code else None
