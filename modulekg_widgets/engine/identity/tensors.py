"""Shapes, kinds and sizes of a module's own tensors, read without running code of tensor subclasses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from modulekg_widgets.engine.identity.hierarchy import Walk
from modulekg_widgets.engine.identity.script import native_script, script_tensors

PLAIN_TENSORS = (torch.nn.Parameter, torch.Tensor)
# the descriptors of torch itself: a subclass may define attributes of the same names
_Base: Any = torch._C.TensorBase
_read_shape, _read_dtype = _Base.shape.__get__, _Base.dtype.__get__
_read_nested, _read_layout = _Base.is_nested.__get__, _Base.layout.__get__
# a subclass or a mode may answer attribute reads in __torch_function__
without_subclass_code = torch._C.DisableTorchFunction

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
    """Whether this is a lazy module's parameter or buffer that has no shape yet."""
    return type(tensor) not in PLAIN_TENSORS and issubclass(type(tensor), (UninitializedParameter, UninitializedBuffer))


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes of a tensor; `RAGGED` for one that differs along a nested tensor or is symbolic."""
    if type(tensor) in PLAIN_TENSORS and not tensor.is_nested:
        return tensor.shape
    with without_subclass_code():
        if _read_nested(tensor) and _read_layout(tensor) is torch.strided:
            return (_Base.size(tensor, 0), *[RAGGED] * (_Base.dim(tensor) - 1))
        return tuple(d if type(d) is int else _settled(d) for d in _read_shape(tensor))


def _settled(size: Any) -> int:
    known = size.node.maybe_as_int()
    return RAGGED if known is None else known


def dtype_of(tensor: torch.Tensor) -> torch.dtype:
    if type(tensor) in PLAIN_TENSORS:
        return tensor.dtype
    with without_subclass_code():
        return _read_dtype(tensor)


def dtype_kind(tensor: torch.Tensor) -> str:
    """floating, complex, integer, bool or quantized."""
    return DTYPE_KINDS[dtype_of(tensor)]


class OwnTensor(NamedTuple):
    name: str
    role: str  # "parameter" or "buffer"
    tensor: torch.Tensor | None  # None for an empty slot


def own_tensors(state: dict[str, Any]) -> Iterator[OwnTensor]:
    """The parameters and buffers that a module itself registers, given its `__dict__`; all of a TorchScript module."""
    if ("_c" in state or "_actual_script_module" in state) and native_script(state) is not None:
        yield from (OwnTensor(name, role, tensor) for name, role, tensor in script_tensors(state))
        return
    for role in ("parameter", "buffer"):
        for name, tensor in state.get(f"_{role}s", {}).items():
            yield OwnTensor(name, role, tensor if issubclass(type(tensor), torch.Tensor) else None)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Per module: parameters in and below it (each tensor once), its own parameters, and bytes with buffers.

    Uninitialised parameters count as zero.
    """

    params: list[int]
    own_params: list[int]
    bytes: list[int]


def sizes(walk: Walk) -> Sizes:
    """Count every module of the walk; a tensor under several names, or in a shared module, counts once per total."""
    figures: dict[int, tuple[int, int]] = {}  # id of a tensor -> its parameters and bytes
    own = [_own_figures(state, figures) for state in walk.states]
    places: dict[int, set[int]] = {}  # id of a tensor -> the modules that hold it
    for index, keys in enumerate(own):
        for key in keys:
            places.setdefault(key, set()).add(index)
    own_params = [sum(figures[key][0] for key in keys) for keys in own]
    params, total_bytes = list(own_params), [sum(figures[key][1] for key in keys) for keys in own]

    def add(index: int, key: int, sign: int) -> None:
        params[index] += sign * figures[key][0]
        total_bytes[index] += sign * figures[key][1]

    highest = list(range(len(own)))  # the outermost module that a cycle leads back to from here or below
    for link in walk.links():
        if link.kind == "cycle":
            highest[link.parent] = min(highest[link.parent], link.target)
            continue
        for key in {key for index in reachable(walk, link.target) for key in own[index]}:
            if link.parent not in places[key]:
                places[key].add(link.parent)
                add(link.parent, key, +1)
    for key, holders in places.items():
        ordered = sorted(holders)
        for left, right in pairwise(ordered):
            # a total sums its subtree: what two neighbours in pre-order both hold is taken off where they meet
            add(walk.meeting(left, right), key, -1)
    for index in range(len(own) - 1, 0, -1):
        params[walk.parents[index]] += params[index]
        total_bytes[walk.parents[index]] += total_bytes[index]
        highest[walk.parents[index]] = min(highest[walk.parents[index]], highest[index])
    for index in range(1, len(own)):
        if highest[index] < index:  # it contains its container, and so all that this contains
            params[index], total_bytes[index] = params[walk.parents[index]], total_bytes[walk.parents[index]]
    return Sizes(params, own_params, total_bytes)


def _own_figures(state: dict[str, Any], figures: dict[int, tuple[int, int]]) -> set[int]:
    keys = set()
    with without_subclass_code():
        for own in own_tensors(state):
            if own.tensor is None or is_uninitialised(own.tensor):
                continue
            keys.add(id(own.tensor))
            elements = _Base.numel(own.tensor)
            size = elements * _Base.element_size(own.tensor)
            figures[id(own.tensor)] = (elements if own.role == "parameter" else 0, size)
    return keys


def reachable(walk: Walk, start: int) -> set[int]:
    """The modules that can be reached from module `start` through any slots, itself included."""
    seen, waiting = {start}, [start]
    while waiting:
        for _, index in walk.slots(waiting.pop()):
            if index is not None and index not in seen:
                seen.add(index)
                waiting.append(index)
    return seen


class Place(NamedTuple):
    """Where a tensor is registered: the index of the module and the name there."""

    module: int
    name: str


def tied_tensors(walk: Walk) -> list[list[Place]]:
    """The tensors that are registered under several names, each with all its places in the order of the walk."""
    places: dict[int, list[Place]] = {}
    for index, state in enumerate(walk.states):
        for own in own_tensors(state):
            if own.tensor is not None:
                places.setdefault(id(own.tensor), []).append(Place(index, own.name))
    return [group for group in places.values() if len(group) > 1]
