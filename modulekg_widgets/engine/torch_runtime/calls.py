"""Hearing of the calls of modules. On a shadow nothing else is written, and no other thread hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn

from modulekg_widgets.engine.torch_runtime.hooks import listening_to_modules
from modulekg_widgets.engine.torch_runtime.look import Stage
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import COMPILED_CALL, plain_call_of

Entered = Callable[[nn.Module, Any], Any]
Left = Callable[..., object]


class Given(NamedTuple):
    """What a call gives that is not made."""

    output: Any


@contextmanager
def hearing_calls(stage: Stage, entered: Entered, left: Left) -> Iterator[None]:
    """Call `entered(module, args)` before and `left(module, args, kwargs, output)` after each call of a module.

    Where a call raised, `left` gets no output. A call for which `entered` has something `Given` is not made; it has so
    only on a shadow.
    """
    if stage.shadow is None:
        with listening_to_modules(entered, left):
            yield
        return
    for module in stage.modules:
        module_state(module)[COMPILED_CALL] = _Call(module, entered, left)
    try:
        yield
    finally:
        for module in stage.modules:
            module_state(module)[COMPILED_CALL] = None


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
