"""Tensors for a copy of a model: other objects on the same memory, or with memory of their own."""

from __future__ import annotations

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.private import (
    address_of,
    as_class,
    can_take_data,
    has_storage,
    is_traceable_wrapper_subclass,
)

Tensor = torch.Tensor
MOST_BESIDE = 16  # times its own size: what lies beside a tensor in its memory, and is copied with it
ALWAYS_BESIDE = 1 << 20  # bytes


def in_plain_memory(tensor: Tensor) -> bool:
    """Whether the elements lie where strides say: not so for sparse, quantised and wrapped tensors."""
    return tensor.layout is torch.strided and not tensor.is_quantized and not is_traceable_wrapper_subclass(tensor)


def alias(tensor: Tensor) -> Tensor:
    """Another tensor on the same memory, without gradient and hooks, whose versions are counted apart."""
    cls = type(tensor)
    if cls is nn.Parameter and not tensor.is_inference():
        return as_class(cls, tensor.data, tensor.requires_grad)
    if cls is Tensor and not tensor.requires_grad:
        return tensor.data
    with torch.inference_mode(tensor.is_inference()):
        return _again(tensor, tensor.detach() if is_traceable_wrapper_subclass(tensor) else tensor.data)


def can_take(tensor: Tensor, value: Tensor) -> bool:
    """Whether a tensor may be given the memory, shape and type of another one and stay the same object."""
    plain = type(tensor) in (Tensor, nn.Parameter) and type(value) in (Tensor, nn.Parameter)
    if not plain or tensor.is_inference():
        return False
    return can_take_data(tensor, value)  # type: ignore[attr-defined]


class OwnMemory:
    """Makes tensors with memory of their own; those that shared memory do so again."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # each with its copy

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor with its contents in other memory, without gradient and hooks."""
        if tensor.is_meta:
            return alias(tensor)
        with torch.inference_mode(tensor.is_inference()):
            return _again(tensor, self._value(tensor))

    def _value(self, tensor: Tensor) -> Tensor:
        if not _is_plain(tensor):
            return tensor.detach().clone()
        storage = tensor.untyped_storage()
        key = address_of(storage)
        if key not in self._storages:
            if storage.nbytes() > max(MOST_BESIDE * tensor.numel() * tensor.itemsize, ALWAYS_BESIDE):
                return tensor.detach().clone()  # as one sample of a whole data set
            self._storages[key] = (storage, storage.clone())
        value = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return value.set_(self._storages[key][1], tensor.storage_offset(), tensor.shape, tensor.stride())


def _is_plain(tensor: Tensor) -> bool:
    strided = tensor.layout is torch.strided and has_storage(tensor) and not tensor.is_nested
    if not strided or is_traceable_wrapper_subclass(tensor):
        return False
    return not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference())


def _again(tensor: Tensor, value: Tensor) -> Tensor:
    """A value as the tensor is: of its class, with its flag."""
    cls = type(tensor)
    if cls is Tensor or is_traceable_wrapper_subclass(tensor):
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(value, tensor.requires_grad)
        return value.requires_grad_() if tensor.requires_grad else value
    return as_class(cls, value, tensor.requires_grad)
