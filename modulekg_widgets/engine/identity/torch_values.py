"""Encodings of the values that torch and numpy bring: tensors by shape and kind of dtype, never by content."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from modulekg_widgets.engine.identity.encoding import Encoder, handles, packed, text
from modulekg_widgets.engine.identity.tensors import dtype_kind, is_uninitialised, shape_of


def tensor_encoding(tensor: torch.Tensor) -> bytes:
    """A tensor by its shape and kind of dtype: values, device and precision do not count."""
    shape = b"uninitialised" if is_uninitialised(tensor) else b",".join([b"%d" % d for d in shape_of(tensor)])
    return packed(b"X", shape, text(dtype_kind(tensor)))


@handles(torch.Tensor, torch.nn.Parameter)
@handles(torch.Tensor, subclasses=True)
def _tensor(encoder: Encoder, value: torch.Tensor, path: str) -> bytes:
    return tensor_encoding(value)


@handles(torch.dtype, torch.layout, torch.memory_format, torch.device)
def _torch_constant(encoder: Encoder, value: Any, path: str) -> bytes:
    return packed(b"o", text(type(value).__name__), text(str(value)))


@handles(torch.Size)
def _size(encoder: Encoder, value: torch.Size, path: str) -> bytes:
    return packed(b"o", b"Size", encoder.encode(tuple(value), path))


@handles(np.ndarray)
def _array(encoder: Encoder, value: np.ndarray, path: str) -> bytes:
    encoder.buffers_met += 1
    if value.dtype.hasobject:
        return encoder.opaque_value(value, path, text(str(value.shape)))
    content = np.ascontiguousarray(value).tobytes()
    return packed(b"A", text(value.dtype.str), text(str(value.shape)), content)


@handles(np.generic, subclasses=True)
def _numpy_scalar(encoder: Encoder, value: np.generic, path: str) -> bytes:
    encoder.buffers_met += 1
    if value.dtype.hasobject:
        return encoder.opaque_value(value, path)
    return packed(b"A", text(value.dtype.str), b"()", value.tobytes())


@handles(np.dtype, subclasses=True)
def _numpy_dtype(encoder: Encoder, value: np.dtype, path: str) -> bytes:
    return packed(b"o", b"dtype", text(value.str))


@handles(weakref.ReferenceType)
def _weak_reference(encoder: Encoder, value: weakref.ReferenceType, path: str) -> bytes:
    # recurrent layers keep weak references to their own weights
    referent = value()
    if isinstance(referent, torch.Tensor):
        return packed(b"W", tensor_encoding(referent))
    return encoder.opaque_value(value, path)


@handles(torch.ScriptObject)
def _script_object(encoder: Encoder, value: Any, path: str) -> bytes:
    """A TorchBind object (packed quantized weights) by the state that it would be saved with."""
    name = text(value._type().qualified_name())
    if not value._has_method("__getstate__"):
        return encoder.opaque_value(value, path, name)
    state = value.__getstate__()
    encoder.keep.append(state)
    return packed(b"J", name, encoder.encode(state, path))


@handles(torch.nn.Module, subclasses=True)
def _hidden_module(encoder: Encoder, value: torch.nn.Module, path: str) -> bytes:
    """A module that stands in a plain attribute, and so is no child: its class, attributes, tensors and children."""
    from modulekg_widgets.engine.identity.fingerprint import NOT_STRUCTURE

    def body() -> bytes:
        if issubclass(type(value), torch.jit.ScriptModule):
            return encoder.opaque_value(value, path)
        parts = encoder.encode_state(value, path, NOT_STRUCTURE)
        state = torch.nn.Module.__dict__["__dict__"].__get__(value)
        for role in ("_parameters", "_buffers", "_modules"):
            parts += [text(role), encoder.encode(state.get(role), f"{path}.{role}")]
        return packed(b"H", encoder.class_reference(type(value)), *parts)

    return encoder.nested(value, path, body)
