"""Shapes, dtypes and sizes of the tensors that a module registers, read without code of tensor subclasses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state
from modulekg_widgets.engine.torch_runtime.private import (
    BUFFERS,
    NATIVE,
    PARAMETERS,
    TRACED,
    DisableTorchFunction,
    ScriptClass,
    TensorBase,
    script_methods,
    script_registry,
    type_of_script,
)

PLAIN_TENSORS = (torch.nn.Parameter, torch.Tensor)
# the descriptors of torch itself: a subclass may define attributes of the same names
_read_shape, _read_dtype = TensorBase.shape.__get__, TensorBase.dtype.__get__
_read_nested, _read_layout = TensorBase.is_nested.__get__, TensorBase.layout.__get__
# a subclass or a mode may answer attribute reads in __torch_function__
without_subclass_code = DisableTorchFunction

RAGGED = -1

_QUANTIZED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}


def _kind(dtype: torch.dtype) -> str:
    if dtype in _QUANTIZED:
        return "quantized"
    if dtype is torch.bool:
        return "bool"
    if dtype.is_complex:
        return "complex"
    return "floating" if dtype.is_floating_point else "integer"


DTYPE_KINDS = {d: _kind(d) for d in vars(torch).values() if isinstance(d, torch.dtype)}


def is_uninitialised(tensor: torch.Tensor) -> bool:
    """True for a parameter or buffer of a lazy module that has no shape yet."""
    return type(tensor) not in PLAIN_TENSORS and issubclass(type(tensor), (UninitializedParameter, UninitializedBuffer))


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Returns the sizes of a tensor, `RAGGED` for those that vary in a nested tensor or are symbolic."""
    if type(tensor) in PLAIN_TENSORS and not tensor.is_nested:
        return tensor.shape
    with without_subclass_code():
        if _read_nested(tensor) and _read_layout(tensor) is torch.strided:
            return (TensorBase.size(tensor, 0), *[RAGGED] * (TensorBase.dim(tensor) - 1))
        return tuple(d if type(d) is int else _size_as_int(d) for d in _read_shape(tensor))


def _size_as_int(size: Any) -> int:
    known = size.node.maybe_as_int()
    return RAGGED if known is None else known


def dtype_of(tensor: torch.Tensor) -> torch.dtype:
    if type(tensor) in PLAIN_TENSORS:
        return tensor.dtype
    with without_subclass_code():
        return _read_dtype(tensor)


def dtype_kind(tensor: torch.Tensor) -> str:
    """Returns floating, complex, integer, bool or quantized."""
    return DTYPE_KINDS[dtype_of(tensor)]


_REGISTRIES = (("parameter", PARAMETERS), ("buffer", BUFFERS))


class DirectTensor(NamedTuple):
    name: str
    role: str  # "parameter" or "buffer"
    tensor: torch.Tensor | None  # None for an empty slot


def direct_tensors(state: Attributes) -> Iterator[DirectTensor]:
    """Yields the parameters and buffers registered on a module, given its `__dict__`; all of a TorchScript module."""
    if (NATIVE in state or TRACED in state) and native_script(state) is not None:
        yield from (DirectTensor(name, role, tensor) for name, role, tensor in script_tensors(state))
        return
    for role, registry in _REGISTRIES:
        for name, tensor in state.get(registry, {}).items():
            yield DirectTensor(name, role, tensor if issubclass(type(tensor), torch.Tensor) else None)


# ------------------------------------------ TorchScript: one opaque module with a program, its constants and tensors

# compilations of one class differ by this part of the name only
_MANGLED = re.compile(r"___torch_mangle_\d+\.")
_ATTRIBUTE = re.compile(r'prim::GetAttr\[name="([^"]+)"\]')


def native_script(state: Attributes) -> Any:
    """The compiled module behind a scripted or traced one, given its `__dict__`; None for every other module."""
    inner = state.get(TRACED)  # what tracing returns is a wrapper
    native = state.get(NATIVE) if inner is None else module_state(inner).get(NATIVE)
    return native if type(native) is ScriptClass else None


def script_tensors(state: Attributes) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The name, role and content of every parameter and buffer of a TorchScript module and of those within."""
    for prefix, native in _natives(state):
        for role, _ in _REGISTRIES:
            for name, tensor in script_registry(role, native).items():
                yield prefix + name, role, tensor


def script_programs(state: Attributes) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """For each compiled module its prefix, its class and methods as text, and the attributes that these read."""
    for prefix, native in _natives(state):
        inside, methods = script_registry("module", native), script_methods(native)
        read = {name for method in methods for name in _ATTRIBUTE.findall(method)} - inside.keys() - {"training"}
        attributes = {name: native.getattr(name) for name in sorted(read) if native.hasattr(name)}
        yield prefix, [_MANGLED.sub("", program) for program in (type_of_script(native)().name(), *methods)], attributes


def _natives(state: Attributes) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    waiting: list[tuple[str, Any]] = [("", native_script(state))]
    while waiting:
        prefix, part = waiting.pop()
        found.append((prefix, part))
        waiting += [(f"{prefix}{name}.", child) for name, child in script_registry("module", part).items()]
    return sorted(found, key=lambda entry: entry[0])
