"""Checks for distributed models, which must be cut before they are wrapped or sharded."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from torch import nn

from modulekg_widgets.engine.errors import CutError, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.torch_runtime.modules import registered_tensors
from modulekg_widgets.engine.torch_runtime.parallel import (
    DDP,
    is_in_live_ddp,
    is_replicated,
    sharding_of,
    sharding_of_tensor,
)

UNWRAP_HINT = (
    "do it before wrapping; or take the model out (model = ddp.module), delete the wrapper, do the same in every "
    "process, and wrap it again"
)
UNSHARD_HINT = (
    "cut before sharding, in every process alike; or load its full state_dict into a model that is not sharded, "
    "cut that one, and shard it"
)


def refuse_resizing(model: nn.Module | Walk) -> None:
    """Raise `CutError` if the tensor sizes of a model are used by other processes."""
    walked = model if isinstance(model, Walk) else walk(model)
    for index, module in enumerate(walked.modules):
        if is_replicated(module):
            raise CutError(
                f"{_module_name(walked, index)} is wrapped in {DDP}, whose buckets have the sizes that it saw: "
                f"{UNWRAP_HINT}"
            )
    refuse_sharded(walked)
    if is_in_live_ddp(tensor for state in walked.states for tensor in registered_tensors(state).values()):
        raise CutError(
            f"a {DDP} still holds parameters of the model, and its buckets have the sizes that it saw: {UNWRAP_HINT}"
        )


def refuse_sharded(model: nn.Module | Walk) -> None:
    """Raise `CutError` for a model with sharded tensors."""
    walked = model if isinstance(model, Walk) else walk(model)
    for index, module in enumerate(walked.modules):
        if (kind := sharding_of(module)) is not None:
            raise CutError(
                f"{_module_name(walked, index)} is sharded ({kind}), and each process has only a part: {UNSHARD_HINT}"
            )


def refuse_sharded_values(tensors: Mapping[Hashable, object]) -> None:
    """Raise `CutError` for sharded tensors, by name."""
    for name, tensor in tensors.items():
        if (kind := sharding_of_tensor(tensor)) is not None:  # type: ignore[arg-type] - any object has a class
            raise CutError(
                f"{printable(str(name))!r} is sharded ({kind}), and each process has only a part: pass a full "
                "state_dict"
            )


def _module_name(walked: Walk, index: int) -> str:
    return repr(printable(walked.path(index))) if walked.path(index) else "the model"
