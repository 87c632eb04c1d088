"""The fingerprint of a module's weights: equal exactly when every tensor of the state has the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
import xxhash
from torch import nn

from modulekg_widgets.engine.errors import FingerprintError, UninitializedModuleError, shown
from modulekg_widgets.engine.identity.encoding import text
from modulekg_widgets.engine.identity.hierarchy import walk
from modulekg_widgets.engine.identity.tensors import (
    dtype_of,
    is_uninitialised,
    own_tensors,
    shape_of,
    without_subclass_code,
)


@dataclass(frozen=True, slots=True)
class WeightFingerprint:
    """`hexdigest` is blake2b over names, dtypes, shapes and bytes; `quick` is xxh3_128 over the same, for look-ups."""

    hexdigest: str
    quick: str = field(compare=False)

    def __str__(self) -> str:
        return self.hexdigest


def weight_fingerprint(module: nn.Module) -> WeightFingerprint:
    """The digest of the parameters and persistent buffers of `module`, by their logical values.

    Strides, views, device and NaNs make no difference; dtype and shape do. Raises `FingerprintError` for tensors
    without data (meta, fake) and `UninitializedModuleError` for lazy ones, naming the path.
    """
    strong, quick = blake2b(digest_size=16), xxhash.xxh3_128()
    for path, tensor in _state(module):
        header = text(path) + b"\0" + _description(tensor)
        content = _logical_bytes(tensor, path)
        for hasher in (strong, quick):
            hasher.update(len(header).to_bytes(8, "big") + header)
            hasher.update(content)
    return WeightFingerprint(strong.hexdigest(), quick.hexdigest())


def _state(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    modules = walk(module)
    entries: dict[str, torch.Tensor] = {}
    for index, state in enumerate(modules.states):
        volatile = state.get("_non_persistent_buffers_set", ())
        for own in own_tensors(state):
            if own.tensor is not None and not (own.role == "buffer" and own.name in volatile):
                entries[".".join(filter(None, (modules.path(index), own.name)))] = own.tensor
    yield from sorted(entries.items(), key=lambda entry: text(entry[0]))


def _description(tensor: torch.Tensor) -> bytes:
    if is_uninitialised(tensor):
        return b""
    return text(f"{dtype_of(tensor)} {shape_of(tensor)}")


def _logical_bytes(tensor: torch.Tensor, path: str) -> memoryview:
    if is_uninitialised(tensor):
        raise UninitializedModuleError(f"{shown(path)!r} has no values yet: run one forward pass first")
    with without_subclass_code(), torch.no_grad():
        if tensor.device.type == "meta" or isinstance(tensor, torch._subclasses.FakeTensor):
            raise FingerprintError(f"{shown(path)!r} is on the meta device and has no values: load the weights first")
        if tensor.layout is not torch.strided:
            raise FingerprintError(f"{shown(path)!r} is a {tensor.layout} tensor: convert it to a strided one first")
        plain = tensor.detach().resolve_conj().resolve_neg()
        if plain.is_quantized:
            plain = plain.int_repr()
        flat = plain.cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().data
