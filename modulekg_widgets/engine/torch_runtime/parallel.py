"""Models in data-parallel and sharded wrappers, and the parameters that these hold.

Nothing here communicates with other processes or registers hooks.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from modulekg_widgets.engine.torch_runtime.modules import module_state, registered_tensors, registry, unwrapped
from modulekg_widgets.engine.torch_runtime.private import (
    COPIES_OF_SHARDS,
    FLAT_HANDLE,
    MODULES,
    SHARDED_FLAT,
    flat_names,
    flat_positions,
    flat_shapes,
    flat_shard,
    flat_views,
)

DDP = DistributedDataParallel.__name__
WRAPPERS = (nn.DataParallel, DistributedDataParallel)  # each keeps the model that it wraps as `module`


def unwrap_model(model: nn.Module) -> nn.Module:
    """Returns the model inside DataParallel, DistributedDataParallel and `torch.compile` wrappers."""
    while True:
        model = unwrapped(model)
        inner = registry(module_state(model), MODULES).get("module") if issubclass(type(model), WRAPPERS) else None
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def is_replicated(module: nn.Module) -> bool:
    """True if the module is a DistributedDataParallel wrapper."""
    return issubclass(type(module), DistributedDataParallel)


def sharding_of(module: nn.Module) -> str | None:
    """Returns the kind of sharding of a module's own tensors, as "DTensor"; None where they are whole."""
    cls = type(module)
    if issubclass(cls, _loaded_class("torch.distributed.fsdp", "FullyShardedDataParallel")):
        return "FullyShardedDataParallel"
    if issubclass(cls, _loaded_class("torch.distributed.fsdp", "FSDPModule")):
        return "fully_shard"
    found = (sharding_of_tensor(tensor) for tensor in registered_tensors(module_state(module)).values())
    return next(filter(None, found), None)


def sharding_of_tensor(tensor: torch.Tensor) -> str | None:
    """Returns the kind of sharding of a tensor, or None."""
    if issubclass(type(tensor), _loaded_class("torch.distributed.tensor", "DTensor")):
        return "DTensor"
    # without a look at __dict__, for this is a part of one flat tensor: writing to it would write to the others
    return "FullyShardedDataParallel" if getattr(tensor, SHARDED_FLAT, False) is True else None


class FlatPart(NamedTuple):
    """A parameter as far as this process holds it, of those that FullyShardedDataParallel keeps in a flat one."""

    wrapper: nn.Module
    handle: Any  # of the flat parameter
    position: int  # which of its parameters

    @property
    def is_whole(self) -> bool:
        """True if every process holds the whole parameter."""
        return not self.handle.uses_sharded_strategy

    @property
    def counts(self) -> bool:
        """True if this is the first process that holds this shard, so that sums count it once."""
        copies = module_state(self.wrapper).get(COPIES_OF_SHARDS)
        return copies is None or torch.distributed.get_rank(copies) == 0

    def weight(self) -> torch.Tensor | None:
        """The elements that lie here, of a sharded parameter in one dimension; None without any."""
        flat = self.handle.flat_param
        in_use = self.is_whole or self.handle.is_sharded(flat)
        return self._part(flat.detach() if in_use else flat_shard(flat).detach())

    def grad(self) -> torch.Tensor | None:
        """Their gradient, None where there is none; raises `LookupError` before it was reduced over the processes."""
        flat = self.handle.flat_param
        if not self.is_whole and flat.grad is not None and flat.grad.numel() != flat_shard(flat).numel():
            raise LookupError
        if flat_views(flat) is None:
            return None if flat.grad is None else self._part(flat.grad.detach())
        own, part = flat_views(flat)[self.position].grad, self.weight()
        if own is None:
            return None
        if own.numel() != (0 if part is None else part.numel()):
            raise LookupError
        return own.detach()

    def _part(self, flat: torch.Tensor) -> torch.Tensor | None:
        info = flat_positions(self.handle.flat_param)[self.position]
        if not info.in_shard or not info.numel_in_shard:
            return None
        part = flat.narrow(0, info.offset_in_shard, info.numel_in_shard)
        return part.view(flat_shapes(self.handle.flat_param)[self.position]) if self.is_whole else part


def flat_parts(modules: Iterable[nn.Module]) -> dict[int, dict[str, FlatPart]]:
    """The parameters that FullyShardedDataParallel keeps in flat ones, by the identity of their module and by name."""
    kinds = _loaded_class("torch.distributed.fsdp", "FullyShardedDataParallel")
    found: dict[int, dict[str, FlatPart]] = {}
    for wrapper in modules:
        handle = module_state(wrapper).get(FLAT_HANDLE) if issubclass(type(wrapper), kinds) else None
        for index, info in enumerate(flat_names(handle.flat_param) if handle is not None else ()):
            found.setdefault(id(info.module), {})[info.param_name] = FlatPart(wrapper, handle, index)
    return found


def _loaded_class(module: str, name: str) -> tuple[type, ...]:
    """Returns a class of a torch module that is already imported, as a tuple; empty otherwise."""
    found = getattr(sys.modules.get(module), name, None)
    return (found,) if isinstance(found, type) else ()


def is_in_live_ddp(tensors: Iterable[torch.Tensor]) -> bool:
    """True if a living DistributedDataParallel reduces the gradient of one of these parameters.

    The tensors do not tell, so that the objects of the process are gone through once, where torch.distributed runs;
    wrappers that nobody has any more are dropped first. After `gc.freeze()` those from before it are not found.
    """
    keys = {id(tensor) for tensor in tensors}
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()) or not _has_live_wrapper(keys):
        return False
    gc.collect()  # a wrapper refers to itself, and would outlive its name
    return _has_live_wrapper(keys)


def _has_live_wrapper(keys: set[int]) -> bool:
    return any(id(parameter) in keys for wrapper in _wrappers() for parameter in _parameters(wrapper))


def _wrappers() -> list[Any]:
    kinds: set[type] = set()
    new: list[type] = [DistributedDataParallel]
    while new:
        kinds.update(new)
        new = [kind for known in new for kind in type.__subclasses__(known)]
    objects = gc.get_objects()
    return [each for each, kind in zip(objects, map(type, objects), strict=True) if kind in kinds]


def _parameters(wrapper: nn.Module) -> Iterator[nn.Parameter]:
    inner = registry(vars(wrapper), MODULES).get("module")
    return inner.parameters() if isinstance(inner, nn.Module) else iter(())
