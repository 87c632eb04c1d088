"""Hooks: those that a module has, and for the calls of all modules at once, so that the model itself gets none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from modulekg_widgets.engine.torch_runtime.modules import STANDARD, module_state
from modulekg_widgets.engine.torch_runtime.private import CALL_HOOKS, hooks_of_all_modules_with_kwargs

REGISTRIES_WITH_HOOKS = {name for name in STANDARD if "hooks" in name}  # also those for states


class HookRegistered(BaseException):
    """A hook for modules that share one empty registry; no `Exception`, so that the model's code does not catch it."""


class NoHooks(OrderedDict[Any, Any]):
    """An empty registry that all modules of a copy may share: they have eleven each, which mostly stay empty."""

    def __init__(self) -> None:
        super().__init__()
        self.hooked = False  # whether somebody wrote

    def refuse(self, *args: Any, **kwargs: Any) -> Any:
        self.hooked = True
        raise HookRegistered

    # copies would take all registries of a module for one
    __setitem__ = setdefault = update = __ior__ = __reduce_ex__ = refuse  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: Any) -> NoHooks:
        return self


def has_hooks(module: nn.Module) -> bool:
    """Whether anyone listens to the calls of the module or to their gradients."""
    state = module_state(module)
    return any(state.get(name) for name in CALL_HOOKS)


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
            hooks_of_all_modules_with_kwargs.pop(after.id, None)  # which torch forgets
    finally:
        before.remove()
