"""Encodings of values of torch and numpy: tensors by shape and kind of dtype, never by content."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.identity.encoding.packing import packed, text
from modulekg_widgets.engine.identity.encoding.python_values import Encoder, handles
from modulekg_widgets.engine.identity.tensors import (
    dtype_kind,
    is_uninitialised,
    native_script,
    script_programs,
    shape_of,
)
from modulekg_widgets.engine.identity.walk import NON_STRUCTURAL_ATTRIBUTES, nominal_class
from modulekg_widgets.engine.torch_runtime.modules import Attributes, is_script, module_state, unwrapped
from modulekg_widgets.engine.torch_runtime.private import (
    BUFFERS,
    MODULES,
    PARAMETERS,
    OpOverload,
    OpOverloadPacket,
    Overload,
    can_be_saved,
    packet_name_of,
    saved_state,
    type_of_script,
)


def tensor_encoding(tensor: torch.Tensor) -> bytes:
    """A tensor by its shape and kind of dtype: values, device and precision do not count."""
    shape = b"uninitialised" if is_uninitialised(tensor) else b",".join([b"%d" % d for d in shape_of(tensor)])
    return packed(b"X", shape, text(dtype_kind(tensor)))


@handles(torch.Tensor, torch.nn.Parameter)
@handles(torch.Tensor, subclasses=True)
def _tensor(encoder: Encoder, value: torch.Tensor, path: str) -> bytes:
    return tensor_encoding(value)


@handles(torch.dtype, torch.layout, torch.memory_format, torch.device)
def _torch_constant(encoder: Encoder, value: object, path: str) -> bytes:
    return packed(b"o", text(type(value).__name__), text(str(value)))


@handles(torch.Size)
def _size(encoder: Encoder, value: torch.Size, path: str) -> bytes:
    return packed(b"o", b"Size", encoder.encode(tuple(value), path))


@handles(np.ndarray)
def _array(encoder: Encoder, value: NDArray[Any], path: str) -> bytes:
    encoder.buffer_count += 1
    if value.dtype.hasobject:
        return encoder.encode_opaque(value, path, text(str(value.shape)))
    content = np.ascontiguousarray(value).tobytes()
    return packed(b"A", _dtype_text(value.dtype), text(str(value.shape)), content)


@handles(np.generic, subclasses=True)
def _numpy_scalar(encoder: Encoder, value: Any, path: str) -> bytes:
    encoder.buffer_count += 1
    if value.dtype.hasobject:
        return encoder.encode_opaque(value, path)
    return packed(b"A", _dtype_text(value.dtype), b"()", value.tobytes())


def _dtype_text(dtype: Any) -> bytes:
    return text(dtype.str if dtype.names is None else str(dtype))


@handles(np.dtype, subclasses=True)
def _numpy_dtype(encoder: Encoder, value: np.dtype[Any], path: str) -> bytes:
    return packed(b"o", b"dtype", _dtype_text(value))


@handles(np.ufunc)
def _universal_function(encoder: Encoder, value: Any, path: str) -> bytes:
    name: str = value.__name__
    if getattr(np, name, None) is value:
        return packed(b"g", b"numpy", text(name))
    return encoder.encode_opaque(value, path, text(name))


@handles(OpOverload)
def _operator(encoder: Encoder, value: Overload, path: str) -> bytes:
    return packed(b"g", b"torch.ops", text(value.name()))


@handles(OpOverloadPacket)
def _operator_packet(encoder: Encoder, value: OpOverloadPacket, path: str) -> bytes:
    return packed(b"g", b"torch.ops packet", text(packet_name_of(value)))


@handles(weakref.ReferenceType)
def _weak_reference(encoder: Encoder, value: weakref.ReferenceType[Any], path: str) -> bytes:
    # recurrent layers keep weak references to their own weights, and loading others leaves the old ones dead
    referent = value()
    if referent is None or issubclass(type(referent), torch.Tensor):
        return packed(b"W")
    return encoder.encode_opaque(value, path)


@handles(RemovableHandle, subclasses=True)
def _hook_handle(encoder: Encoder, value: RemovableHandle, path: str) -> bytes:
    return packed(b"h")  # hooks do not count, and their handles are numbered by the process


@handles(torch.ScriptObject)
def _script_object(encoder: Encoder, value: Any, path: str) -> bytes:
    """A TorchBind object (packed quantized weights) by the state that it would be saved with."""
    name = text(type_of_script(value)().qualified_name())
    if not can_be_saved(value):
        return encoder.encode_opaque(value, path, name)
    state = saved_state(value)
    encoder.keepalive.append(state)
    return packed(b"J", name, encoder.encode(state, path))


def encode_script(encoder: Encoder, state: Attributes) -> bytes:
    """A TorchScript module, given its `__dict__`: the methods' graphs with what they read; its tensors by shape."""
    if native_script(state) is None:
        return packed(b"J")
    parts: list[bytes] = []
    for prefix, programs, attributes in script_programs(state):
        encoder.keepalive.append(attributes)
        parts += [text(prefix), *map(text, programs), *encoder.encode_attributes(attributes, prefix.rstrip("."))]
    return packed(b"J", *parts)


@handles(torch.nn.Module, subclasses=True)
def _hidden_module(encoder: Encoder, value: torch.nn.Module, path: str) -> bytes:
    """A module that stands in a plain attribute, and so is no child: its class, attributes, tensors and children."""
    if unwrapped(value) is not value:
        return encoder.encode(unwrapped(value), path)

    def body() -> bytes:
        state = module_state(value)
        if is_script(value):
            return encoder.encode_opaque(value, path, encode_script(encoder, state))
        parts = encoder.encode_state(value, path, NON_STRUCTURAL_ATTRIBUTES)
        for role in (PARAMETERS, BUFFERS, MODULES):
            parts += [text(role), encoder.encode(state.get(role), f"{path}.{role}")]
        return packed(b"H", encoder.class_reference(nominal_class(value)), *parts)

    return encoder.encode_container(value, path, body)
