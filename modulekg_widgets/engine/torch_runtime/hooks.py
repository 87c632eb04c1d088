"""Hooks: those that a module has, and for the calls of all modules at once, so that the model itself gets none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import (
    _global_forward_hooks_with_kwargs,
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from modulekg_widgets.engine.torch_runtime.modules import HOOK_REGISTRIES, module_state


def has_hooks(module: nn.Module) -> bool:
    """Whether anyone listens to the calls of the module or to their gradients."""
    state = module_state(module)
    return any(state.get(name) for name in HOOK_REGISTRIES)


@contextmanager
def listening_to_modules(entered: Callable[..., Any], left: Callable[..., Any]) -> Iterator[None]:
    """Call `entered(module, args)` before and `left(module, args, kwargs, output)` after each call, raised or not."""
    before = register_module_forward_pre_hook(entered)
    try:
        after = register_module_forward_hook(left, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            after.remove()
            _global_forward_hooks_with_kwargs.pop(after.id, None)  # which torch forgets
    finally:
        before.remove()
