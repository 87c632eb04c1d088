"""Fingerprint of the weights of a module: equal if and only if every tensor of the state has the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch
import xxhash
from torch import nn

from modulekg_widgets.engine.errors import FingerprintError, UninitializedModuleError, printable
from modulekg_widgets.engine.identity.encoding.packing import length_prefixed, text
from modulekg_widgets.engine.identity.tensors import (
    direct_tensors,
    dtype_of,
    is_uninitialised,
    shape_of,
    without_subclass_code,
)
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.torch_runtime.private import (
    VOLATILE_BUFFERS,
    FakeTensor,
    can_be_saved,
    numbers_of,
    saved_state,
)
from modulekg_widgets.engine.torch_runtime.pytree import SEQUENCES

Digests = tuple[bytes, bytes]  # blake2b and xxh3_128 over the same


@dataclass(frozen=True, slots=True)
class WeightFingerprint:
    """The digest of a state; compares and hashes by `hexdigest`.

    Attributes
    ----------
    hexdigest : str
        blake2b over names, dtypes, shapes and bytes.
    quick : str
        xxh3_128 over the same, for look-ups; not compared.
    """

    hexdigest: str
    quick: str = field(compare=False)

    def __str__(self) -> str:
        return self.hexdigest


def weight_fingerprint(module: nn.Module) -> WeightFingerprint:
    """The digest of the parameters and persistent buffers of `module`, by their logical values.

    Strides, views, sharing, device and NaNs make no difference; names, dtype, shape and layout do. A sparse tensor
    counts by its indices and values, those of COO put in order and summed where they are given twice.

    Parameters
    ----------
    module : nn.Module
        A module whose tensors have data; none of its code runs.

    Returns
    -------
    WeightFingerprint
        With `.hexdigest` (blake2b) and `.quick` (xxh3_128).

    Raises
    ------
    FingerprintError
        For tensors without data (meta, fake), naming the path.
    UninitializedModuleError
        For lazy ones.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> a, b = nn.Linear(4, 2), nn.Linear(4, 2)
    >>> mk.weight_fingerprint(a) == mk.weight_fingerprint(b)
    False
    >>> _ = b.load_state_dict(a.state_dict())
    >>> mk.weight_fingerprint(a) == mk.weight_fingerprint(b)
    True
    """
    modules = walk(module)
    tensors: dict[int, tuple[torch.Tensor, Digests]] = {}  # by id, so that a tied tensor is read once
    states: dict[int, Digests] = {}
    with without_subclass_code(), torch.no_grad():
        for index in modules.bottom_up:
            states[index] = _combine_digests(
                [*_direct_digests(modules, index, tensors), *_children_digests(modules, index, states)]
            )
    strong, quick = states[0]
    return WeightFingerprint(strong.hex(), quick.hex())


def _combine_digests(entries: list[tuple[str, Digests]]) -> Digests:
    strong, quick = blake2b(digest_size=16), xxhash.xxh3_128()
    for name, digests in sorted(entries, key=lambda entry: text(entry[0])):
        for hasher, digest in zip((strong, quick), digests, strict=True):
            hasher.update(length_prefixed(text(name)) + digest)
    return strong.digest(), quick.digest()


_EMPTY = _combine_digests([])


def _children_digests(modules: Walk, index: int, states: dict[int, Digests]) -> Iterator[tuple[str, Digests]]:
    for name, child in modules.slots(index):
        if child is None or states.get(child) == _EMPTY:  # a module without weights leaves no trace in a state
            continue
        if child in states:
            yield name, states[child]
        else:  # a cycle: the child contains this slot
            up = (modules.depths[index] - modules.depths[child]).to_bytes(16, "big")
            yield name, (up, up)


def _direct_digests(
    modules: Walk, index: int, known: dict[int, tuple[torch.Tensor, Digests]]
) -> Iterator[tuple[str, Digests]]:
    state = modules.states[index]
    volatile = state.get(VOLATILE_BUFFERS, ())
    named = [
        (own.name, own.tensor)
        for own in direct_tensors(state)
        if own.tensor is not None and not (own.role == "buffer" and own.name in volatile)
    ]
    for name, value in state.items():
        if type(value) is torch.ScriptObject and can_be_saved(value):  # packed quantized weights
            saved = saved_state(value)
            named += [(f"{name}.{n}", tensor) for n, tensor in enumerate(_tensors_in(saved))]
    for name, tensor in named:
        if id(tensor) not in known:
            path = ".".join(filter(None, (modules.path(index), name)))
            known[id(tensor)] = tensor, _tensor_digests(tensor, path)
        yield name, known[id(tensor)][1]


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, SEQUENCES):
        for part in value:
            yield from _tensors_in(part)


def _tensor_digests(tensor: torch.Tensor, path: str) -> Digests:
    if is_uninitialised(tensor):
        raise UninitializedModuleError(f"{printable(path)!r} has no values yet: run one forward pass first")
    if tensor.device.type == "meta" or issubclass(type(tensor), FakeTensor):
        raise FingerprintError(f"{printable(path)!r} is on the meta device and has no values: load the weights first")
    if tensor.is_nested or (tensor.layout is not torch.strided and tensor.layout not in _SPARSE):
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        raise FingerprintError(f"{printable(path)!r} is a {kind} tensor: convert it to a strided one first")
    strong, quick = blake2b(digest_size=16), xxhash.xxh3_128()
    try:
        parts = [text(_description(tensor)), *map(_logical_bytes, _dense_parts(tensor))]
    except (RuntimeError, NotImplementedError, TypeError) as error:
        kind = type(tensor).__name__
        raise FingerprintError(
            f"the values of {printable(path)!r}, a {printable(kind)}, cannot be read: {error}"
        ) from error
    for hasher in (strong, quick):
        for part in parts:
            hasher.update(len(part).to_bytes(8, "big"))
            hasher.update(part)
    return strong.digest(), quick.digest()


_BY_ROWS, _BY_COLUMNS = (torch.sparse_csr, torch.sparse_bsr), (torch.sparse_csc, torch.sparse_bsc)
_SPARSE = {torch.sparse_coo, *_BY_ROWS, *_BY_COLUMNS}


def _dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The dense tensors that a tensor consists of."""
    if tensor.layout is torch.sparse_coo:
        ordered = tensor.coalesce()
        return ordered.indices(), ordered.values()
    if tensor.layout in _BY_ROWS:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in _BY_COLUMNS:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def _description(tensor: torch.Tensor) -> str:
    described = f"{dtype_of(tensor)} {shape_of(tensor)}"
    if tensor.layout is not torch.strided:
        return f"{described} {tensor.layout} of {tuple(part.shape for part in _dense_parts(tensor))}"
    if not tensor.is_quantized:
        return described
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return f"{described} {tensor.qscheme()} {tensor.q_scale()!r} {tensor.q_zero_point()}"
    scales: list[float] = numbers_of(tensor.q_per_channel_scales())
    zeros: list[float] = numbers_of(tensor.q_per_channel_zero_points())
    return f"{described} {tensor.qscheme()} {tensor.q_per_channel_axis()} {scales} {zeros}"


def _logical_bytes(tensor: torch.Tensor) -> memoryview:
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_quantized:
        plain = plain.int_repr()
    return plain.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
