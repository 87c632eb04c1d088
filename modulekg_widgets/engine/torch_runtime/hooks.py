"""Hooks on module calls that leave the model itself without hooks, and the hooks that a module has."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from modulekg_widgets.engine.torch_runtime.modules import STANDARD, module_state
from modulekg_widgets.engine.torch_runtime.private import (
    CALL_HOOKS,
    COMPILED_CALL,
    hooks_of_all_modules_with_kwargs,
    plain_call_of,
)
from modulekg_widgets.engine.torch_runtime.pytree import Function

OnEnter = Callable[[nn.Module, Any], Any]
HOOK_REGISTRIES = {name for name in STANDARD if "hooks" in name}  # also those for states


class HookRegistered(BaseException):
    """A hook for modules that share one empty registry; no `Exception`, so that the model's code does not catch it."""


class NoHooks(OrderedDict[Any, Any]):
    """An empty registry that all modules of a copy may share: they have eleven each, which mostly stay empty."""

    def __init__(self) -> None:
        super().__init__()
        self.hooked = False  # whether somebody wrote

    def refuse(self, *args: object, **kwargs: object) -> Any:
        self.hooked = True
        raise HookRegistered

    # copies would take all registries of a module for one
    __setitem__ = setdefault = update = __ior__ = __reduce_ex__ = refuse  # pyright: ignore[reportAssignmentType]

    def __deepcopy__(self, memo: Any) -> NoHooks:
        return self


def has_hooks(module: nn.Module) -> bool:
    """True if the module has forward or backward hooks."""
    state = module_state(module)
    return any(state.get(name) for name in CALL_HOOKS)


@contextmanager
def global_call_hooks(on_enter: Function, on_exit: Function) -> Iterator[None]:
    """Calls `on_enter` before and `on_exit` after each module call in the process, also if the call raises."""
    before = register_module_forward_pre_hook(on_enter)
    try:
        after = register_module_forward_hook(on_exit, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            remove_global_hook(after)
    finally:
        before.remove()


def remove_global_hook(handle: RemovableHandle) -> None:
    """Remove a hook for the calls of all modules, with the entry that torch forgets: all would count as hooked."""
    handle.remove()
    hooks_of_all_modules_with_kwargs.pop(handle.id, None)


class SkippedCall(NamedTuple):
    """The output of a module call that is skipped."""

    output: object


@contextmanager
def module_call_hooks(copies: Sequence[nn.Module] | None, on_enter: OnEnter, on_exit: Function) -> Iterator[None]:
    """Calls `on_enter` before and `on_exit` after each call of these modules, without registering hooks.

    `copies` are the modules of a shadow: nothing else is written, and no other thread hears of it; None hears of all
    modules of the process. Where a call raised, `on_exit` gets no output. A call for which `on_enter` has something
    `Given` is not made; it has so only on a shadow.
    """
    with _raised_recursion_limit:
        if copies is None:
            with global_call_hooks(on_enter, on_exit):
                yield
            return
        for module in copies:
            module_state(module)[COMPILED_CALL] = _HookedCall(module, on_enter, on_exit)
        try:
            yield
        finally:
            for module in copies:
                module_state(module)[COMPILED_CALL] = None


class _RaisedRecursionLimit:
    """A doubled recursion limit, as hooks need frames of their own; it is restored by the last thread.

    The limit is the process's, so it is put back when the last thread leaves, unless someone else has set it meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._before = self._raised = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = sys.getrecursionlimit()
                self._raised = 2 * self._before
                sys.setrecursionlimit(self._raised)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and sys.getrecursionlimit() == self._raised:
                sys.setrecursionlimit(self._before)


_raised_recursion_limit = _RaisedRecursionLimit()


class _HookedCall:
    """A replacement for a module's compiled call, around the module's own hooks. What a module's own hooks do lies
    inside of the call.
    """

    __slots__ = ("module", "on_enter", "on_exit")

    def __init__(self, module: nn.Module, on_enter: OnEnter, on_exit: Function) -> None:
        self.module, self.on_enter, self.on_exit = module, on_enter, on_exit

    def __call__(self, *args: object, **kwargs: object) -> Any:
        given = self.on_enter(self.module, args)
        if type(given) is SkippedCall:
            return given.output
        try:
            output = plain_call_of(self.module)(*args, **kwargs)
        except BaseException:
            self.on_exit(self.module, args, {})
            raise
        self.on_exit(self.module, args, kwargs, output)
        return output
