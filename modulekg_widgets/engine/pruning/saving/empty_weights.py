"""Models built with empty weights: parameters take no memory, computed tables have their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.errors import ModelFolderError
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs

M = TypeVar("M", bound=nn.Module)
UNLIMITED = 1 << 62
SHAPE_FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye)
INIT_FUNCTIONS = {  # by name, as libraries put functions of their own in the place of torch's
    *("uniform_", "normal_", "trunc_normal_", "constant_", "ones_", "zeros_", "eye_", "fill_", "zero_"),
    *(f"{how}_{what}_" for how in ("xavier", "kaiming") for what in ("uniform", "normal")),
}


class _EmptyWeightsMode(TorchFunctionMode):
    """Makes `torch.empty` return meta tensors and skips initialization, within a memory budget.

    What would only write into these is left out: half of the time would go there. What has data may have
    `most_numbers` in all, and there may be `most_calls`: a forged size must not take memory.
    """

    def __init__(self, max_numbers: int, max_calls: int) -> None:
        super().__init__()
        self._numbers, self._calls = max_numbers, max_calls

    def __torch_function__(
        self, func: Callable[..., torch.Tensor], types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        self._calls -= 1
        written = args[0] if args else kwargs.get("tensor")
        if (
            getattr(func, "__name__", "") in INIT_FUNCTIONS
            and isinstance(written, torch.Tensor)
            and written.is_meta
            and self._calls >= 0
        ):
            return written
        if func is torch.empty and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "meta"}
        elif func in SHAPE_FACTORIES:
            self._numbers -= func(*args, **{**kwargs, "device": "meta"}).numel()
        if self._numbers < 0 or self._calls < 0:
            raise _TooLargeError
        return func(*args, **kwargs)


class _TooLargeError(BaseException):
    """Ends the construction of a model that exceeds its budget."""


def build_with_empty_weights(make: Callable[[], M], max_numbers: int = UNLIMITED, max_calls: int = UNLIMITED) -> M:
    """Build a model with empty weights in eval mode; random generators are unchanged.

    Raises `ModelFolderError` for a model that is larger than it can be, and what `make` raises.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.no_grad():
        try:
            with _EmptyWeightsMode(max_numbers, max_calls):
                model = make()
        except _TooLargeError:
            raise ModelFolderError(
                "the sizes of the model are not those of its tensors: it would be far larger"
            ) from None
    for module in model.modules():
        module.training = False
    return model
