"""What containers and tensors hold, kept so that it can be written back."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from operator import setitem
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.pruning.cut.edits import bits
from modulekg_widgets.engine.pruning.cut.transaction import Write, attribute, contents
from modulekg_widgets.engine.torch_runtime.tensor_copies import in_plain_memory

_ABSENT = object()


class References(list[Any]):
    """Lists of weak references, which are left out where a receipt is copied or pickled: modules make theirs anew."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return References, ()


class Snapshot:
    """Dictionaries and lists by what they hold, tensors by their bytes."""

    def __init__(self) -> None:
        self._contents: list[tuple[Any, Any]] = []
        self._entries: list[tuple[dict[str, Any], str, Any]] = []
        self._gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._bytes: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        self._entered: set[int] = set()
        self._references = References()

    def keep(self, name: str, value: Any, uncopied: Container[int] = ()) -> None:
        """Keep all that a container holds, at any depth; tensors whose id is in `uncopied` by identity alone."""
        if id(value) in self._entered or id(value) in uncopied:
            return
        if isinstance(value, torch.Tensor):
            self.keep_bytes(name, value)
        elif isinstance(value, dict | list):
            self._entered.add(id(value))
            self._contents.append((value, value.copy()))
        inside = value.values() if isinstance(value, dict) else value
        for part in inside if isinstance(value, dict | list | tuple) else ():
            self.keep(name, part, uncopied)

    def keep_entry(self, container: dict[str, Any], key: str) -> None:
        """Keep which object a key holds."""
        self._entries.append((container, key, container[key]))

    def keep_references(self, container: dict[str, Any], key: str) -> None:
        """Keep a list of weak references that a key holds, and which these are."""
        self._references.append((container, key, container[key], container[key].copy()))

    def keep_bytes(self, name: str, tensor: torch.Tensor) -> None:
        """Keep what is in the memory of a tensor; its gradient, if it has one, is another tensor."""
        if id(tensor) not in self._entered and not nn.parameter.is_lazy(tensor):
            self._entered.add(id(tensor))
            self._bytes.append((name, tensor, memory(tensor).clone()))

    def keep_gradient(self, name: str, tensor: torch.Tensor) -> None:
        """Keep which gradient a leaf has, and what is in it."""
        if tensor.is_leaf:
            self._gradients.append((tensor, tensor.grad))
            if tensor.grad is not None:
                self.keep_bytes(name, tensor.grad)

    def writes(self) -> Iterator[Write]:
        """What makes everything as it was; raises `CutError` for a tensor whose shape, dtype or device is another."""
        for name, tensor, copy in self._bytes:
            now = memory(tensor)
            if (now.shape, now.dtype, now.device) != (copy.shape, copy.dtype, copy.device):
                raise CutError(
                    f"{shown(name)} was {described(copy)} and is {described(now)}: undo the cut that changed it, or "
                    "move the model back, and try again"
                )
            if not _same_bytes(now, copy):  # a graph that needs the values would be told of the write
                yield Write(now.copy_, now.clone(), copy)
        for container, before in self._contents:
            yield contents(container, before)
        for container, key, listed, before in self._references:
            yield contents(listed, before)
            yield Write(partial(_put, container, key), container.get(key, _ABSENT), listed)
        for container, key, before in self._entries:
            if container.get(key, _ABSENT) is not before:
                yield Write(partial(_put, container, key), container.get(key, _ABSENT), before)
        for tensor, before in self._gradients:
            yield attribute(tensor, "grad", before)


def _put(container: dict[str, Any], key: str, value: Any) -> None:
    if value is _ABSENT:
        container.pop(key, None)
    else:
        setitem(container, key, value)


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not in_plain_memory(a):
        return False
    return a.is_meta or torch.equal(*(bits(each.resolve_conj().resolve_neg()) for each in (a, b)))


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """An alias of a tensor to write through: outside autograd, but with the version that tells it of the write."""
    alias = tensor.detach()
    if alias.layout is torch.strided:
        for at in range(alias.dim()):
            if alias.stride(at) == 0 and alias.shape[at] > 1:  # expanded: all of them share one element
                alias = alias.narrow(at, 0, 1)
    return alias


def described(tensor: torch.Tensor) -> str:
    """Shape, dtype and device in a message."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
