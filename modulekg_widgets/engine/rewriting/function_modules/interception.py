"""Interception of the torch functions that a module's forward calls, with the calling line."""

from __future__ import annotations

import copy
import inspect
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import CodeType, FrameType, MethodType
from typing import NoReturn, SupportsIndex

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from modulekg_widgets.engine.errors import RewritingError
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import CALL_CODE, function_modes, without_innermost_mode
from modulekg_widgets.engine.torch_runtime.pytree import Args, Function, Kwargs

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OF_MODULES = tuple(os.path.join(_TORCH, "nn", part) + os.sep for part in ("modules", "utils"))
_ENGINE = str(Path(__file__).resolve().parents[2]) + os.sep


class ForwardInterceptor:
    """A replacement for a module's forward that intercepts the functions which it calls.

    The module holds the listener, and not the other way round: a model dies when nobody holds it.
    """

    def __init__(self, owner: nn.Module, path: str) -> None:
        self._owner = weakref.ref(owner)
        self.path = path
        self.before: Function | None = None  # a forward that the user gave to this instance
        self.installed = False
        self.forward = MethodType(_replacement_forward(owner), self)

    @property
    def owner(self) -> nn.Module:
        """The module whose forward is replaced."""
        owner = self._owner()
        assert owner is not None
        return owner

    def begin_run(self) -> ForwardRun | None:
        """Returns the handler of the functions in this call; None to ignore them."""
        raise NotImplementedError

    def call_context(self) -> AbstractContextManager[None]:
        """Returns the context around the module's own forward."""
        return nullcontext()

    def install(self) -> None:
        """Take the place of the module's forward."""
        state = module_state(self.owner)
        self.before = state.get("forward")
        state["forward"] = self.forward
        self.installed = True

    def remove(self) -> None:
        """Give the module its own forward back, unless another was put over this one since."""
        self.installed = False
        owner = self._owner()
        if owner is None or interceptor_of(owner) is not self:
            return
        state = module_state(owner)
        if self.before is None:
            del state["forward"]
        else:
            state["forward"], self.before = self.before, None

    def call_original(self, args: Args, kwargs: Kwargs) -> object:
        """The module's own forward."""
        if self.before is not None:
            return self.before(*args, **kwargs)
        owner = self.owner
        return inspect.getattr_static(type(owner), "forward").__get__(owner, type(owner))(*args, **kwargs)

    def run(self, args: Args, kwargs: Kwargs) -> object:
        run = self.begin_run() if self.installed else None  # found by this name in this frame
        if run is None:
            with _without_function_mode():
                return self.call_original(args, kwargs)
        with self.call_context(), _function_mode():
            result = self.call_original(args, kwargs)
        run.finish()
        return result

    def __deepcopy__(self, memo: dict[int, object]) -> ForwardInterceptor:
        new = object.__new__(type(self))
        memo[id(self)] = new
        for name, value in vars(self).items():
            if name == "_owner":
                new._owner = weakref.ref(copy.deepcopy(self.owner, memo))
            elif name == "forward":
                new.forward = MethodType(self.forward.__func__, new)
            else:
                setattr(new, name, copy.deepcopy(value, memo))
        return new

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise RewritingError(
            "a model whose function modules are active cannot be pickled: save its state_dict, or deactivate them first"
        )


class ForwardRun:
    """One call of a module's forward."""

    def call_function(self, function: Function, frame: FrameType, args: Args, kwargs: Kwargs) -> object:
        """Serve the call of a function from a frame of the forward."""
        raise NotImplementedError

    def finish(self) -> None:
        """The forward has ended without an error."""


def interceptor_of(module: nn.Module) -> ForwardInterceptor | None:
    """Returns the interceptor of a module's forward, or None."""
    forward = module_state(module).get("forward")
    found = forward.__self__ if type(forward) is MethodType else None
    return found if isinstance(found, ForwardInterceptor) else None


def _replacement_forward(owner: nn.Module) -> Function:
    """Returns a forward function with the signature of the module's own."""

    @torch.compiler.disable  # lines and frames are nothing that a compiler can follow
    def forward(self: ForwardInterceptor, /, *args: object, **kwargs: object) -> object:
        return self.run(args, kwargs)

    try:
        own = inspect.signature(owner.forward)
    except (TypeError, ValueError):
        return forward
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    others = [p for p in own.parameters.values() if p.name != "self"]
    forward.__signature__ = own.replace(parameters=[first, *others])  # type: ignore[attr-defined]
    return forward


# --------------------------------------------------------------------- hearing


class _FunctionMode(TorchFunctionMode):
    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in _ACCESSES and (found := _innermost_run(sys._getframe(1))) is not None:
            run, frame = found
            return run.call_function(func, frame, args, kwargs)
        return func(*args, **kwargs)


_ACCESSES = {"__get__", "__set__", "__delete__"}  # of attributes, as x.shape


@contextmanager
def _function_mode() -> Iterator[None]:
    """The context of a mode that intercepts functions, entered once per thread."""
    if any(type(mode) is _FunctionMode for mode in function_modes()):
        yield
        return
    with _FunctionMode():
        yield


@contextmanager
def _without_function_mode() -> Iterator[None]:
    """Without the mode, whose presence alone lets torch leave its fused operators."""
    stack = function_modes()
    if not stack or type(stack[-1]) is not _FunctionMode:
        yield
        return
    with without_innermost_mode():
        yield


def _innermost_run(frame: FrameType | None) -> tuple[ForwardRun, FrameType] | None:
    """Returns the innermost intercepted run and the calling frame; None inside modules without interceptor."""
    place: FrameType | None = None
    while frame is not None:
        code = frame.f_code
        if code is _RUN:
            run = frame.f_locals["run"]
            return None if run is None or place is None else (run, place)
        kind = _kinds.get(code)
        if kind is None:
            kind = _kinds[code] = _kind(code)
        if kind == _END:
            return None
        if place is None and kind == _PLACE:
            place = frame
        frame = frame.f_back
    return None


_RUN = ForwardInterceptor.run.__code__
_CALL = CALL_CODE
_CHECKPOINT = os.path.join(_TORCH, "utils", "checkpoint.py")
_RECORDER = os.path.join(_ENGINE, "tracing") + os.sep
_HOOKS = os.path.join(_ENGINE, "torch_runtime", "hooks.py")
_PLACE, _END, _BETWEEN = range(3)
_kinds: dict[CodeType, int] = {}


def _kind(code: CodeType) -> int:
    """Returns whether code belongs to a forward, ends the search, or is internal to torch or this engine."""
    file = code.co_filename
    # what a checkpoint holds runs a second time, outside of the forward: it would find other functions there
    if code is _CALL or file in (_CHECKPOINT, _HOOKS) or file.startswith(_RECORDER):
        return _END
    inner = file.startswith(_TORCH) and not file.startswith(_OF_MODULES)
    return _BETWEEN if inner or file.startswith(_ENGINE) else _PLACE
