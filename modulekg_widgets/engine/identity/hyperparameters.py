"""A module's hyper-parameters for people to read: its public plain attributes, as plain values."""

from __future__ import annotations

import enum
import types
from itertools import islice
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.identity.classes import class_mro, class_names, instance_state, slot_members
from modulekg_widgets.engine.identity.walk import NOT_STRUCTURE
from modulekg_widgets.engine.torch_runtime.state import is_script, module_state

LONGEST = 200  # characters of one value; whoever needs more has the module
_SCALARS = (bool, int, float, str, type(None))


def hyperparameters(module: nn.Module) -> dict[str, Any]:
    """The public attributes of `module`, numbers and text as they are, everything else as short text."""
    if is_script(module):
        return {}
    state = module_state(module)
    if any(slot_members(cls) for cls in class_mro(type(module))):
        state = instance_state(module)
    return {n: readable(v) for n, v in state.items() if n not in NOT_STRUCTURE and not n.startswith("_")}


def readable(value: Any) -> bool | int | float | str | None:
    """A plain number or short text; runs no code of the value's class."""
    if type(value) in (bool, float, type(None)):
        return value
    if type(value) is int and value.bit_length() <= 64:
        return value
    if type(value) is str and len(value) <= LONGEST:
        return value
    written = _written(value, 3)
    return written if len(written) <= LONGEST else written[: LONGEST - 1] + "…"


def _written(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is int:
        return str(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"
    if kind is str:
        return repr(value[:LONGEST]) if depth < 3 else value[:LONGEST]
    if kind in _SCALARS:
        return repr(value)
    if kind in (tuple, list, set, frozenset, torch.Size):
        return _written_items(value, kind, depth)
    if kind is dict:
        if not depth:  # it may hold itself
            return "{…}"
        inner = [f"{_written(k, depth - 1)}: {_written(v, depth - 1)}" for k, v in _some(dict.items(value))]
        return "{" + ", ".join(inner) + ("}" if len(inner) == len(value) else ", …}")
    if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return str(value)
    if issubclass(kind, torch.Tensor):
        return "tensor"
    if issubclass(kind, enum.Enum):
        return f"{kind.__name__}.{instance_state(value).get('_name_')}"
    if issubclass(kind, type):
        return class_names(value)[1]
    return value.__qualname__ if kind in _NAMED else f"<{class_names(kind)[1]}>"


_NAMED = frozenset({types.FunctionType, types.BuiltinFunctionType})


def _some(values: Any) -> list[Any]:
    return list(islice(values, 20))


def _written_items(value: Any, kind: type, depth: int) -> str:
    if not depth:
        return "…"
    if kind in (set, frozenset):  # their order changes from process to process
        inner = sorted(_written(v, depth - 1) for v in value)[:20]
    else:
        inner = [_written(v, depth - 1) for v in _some(value)]
    body = ", ".join(inner) + (", …" if len(value) > len(inner) else "")
    if kind is list:
        return f"[{body}]"
    if kind in (set, frozenset):
        return f"{{{body}}}"
    return f"({body},)" if len(value) == 1 else f"({body})"
