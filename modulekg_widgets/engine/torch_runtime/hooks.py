"""Hooks: those that a module has, and hearing of the calls of modules, so that the model itself gets none."""

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

from modulekg_widgets.engine.torch_runtime.private import (
    CALL_HOOKS,
    COMPILED_CALL,
    hooks_of_all_modules_with_kwargs,
    plain_call_of,
)
from modulekg_widgets.engine.torch_runtime.state import STANDARD, module_state

Entered = Callable[[nn.Module, Any], Any]
Left = Callable[..., object]
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
            remove_hook_of_all_modules(after)
    finally:
        before.remove()


def remove_hook_of_all_modules(handle: RemovableHandle) -> None:
    """Remove a hook for the calls of all modules, with the entry that torch forgets: all would count as hooked."""
    handle.remove()
    hooks_of_all_modules_with_kwargs.pop(handle.id, None)


class Given(NamedTuple):
    """What a call gives that is not made."""

    output: Any


@contextmanager
def hearing_calls(copies: Sequence[nn.Module] | None, entered: Entered, left: Left) -> Iterator[None]:
    """Call `entered(module, args)` before and `left(module, args, kwargs, output)` after each call of a module.

    `copies` are the modules of a shadow: nothing else is written, and no other thread hears of it; None hears of all
    modules of the process. Where a call raised, `left` gets no output. A call for which `entered` has something `Given`
    is not made; it has so only on a shadow.
    """
    with _deeper_calls:
        if copies is None:
            with listening_to_modules(entered, left):
                yield
            return
        for module in copies:
            module_state(module)[COMPILED_CALL] = _Call(module, entered, left)
        try:
            yield
        finally:
            for module in copies:
                module_state(module)[COMPILED_CALL] = None


class _DeeperCalls:
    """Room for twice the frames: hearing of a call takes some itself, and what runs unheard has to run heard.

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


_deeper_calls = _DeeperCalls()


class _Call:
    """Stands where torch looks for a compiled call. What a module's own hooks do lies inside of the call."""

    __slots__ = ("entered", "left", "module")

    def __init__(self, module: nn.Module, entered: Entered, left: Left) -> None:
        self.module, self.entered, self.left = module, entered, left

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.entered(self.module, args)
        if type(given) is Given:
            return given.output
        try:
            output = plain_call_of(self.module)(*args, **kwargs)
        except BaseException:
            self.left(self.module, args, {})
            raise
        self.left(self.module, args, kwargs, output)
        return output
