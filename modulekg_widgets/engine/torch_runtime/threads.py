"""What other threads of this process do, read from their stacks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.modules import module_state

_CALLS = {nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__}
_BACKWARD = {"_engine_run_backward"}
_LIBRARY = os.path.dirname(os.__file__) + os.sep
# the functions of the standard library in which a thread waits, and the packages of a kernel that do nothing else
_WAITING = {"wait", "_wait_for_tstate_lock", "select", "_worker", "accept", "readinto", "read", "_recv", "_poll"}
_OF_KERNELS = {"asyncio", "zmq", "tornado", "ipykernel", "jupyter_client", "prompt_toolkit", "debugpy"}
MOST_NODES = 1_000_000  # of a graph of gradients
MOST_WHILE_WAITING = 5e-4  # seconds of computing of a thread that wakes up to see that it has to wait on


def user_of(modules: Iterable[nn.Module]) -> str | None:
    """What another thread does with some of these modules at this moment, in words; None when nothing."""
    own: dict[int, Any] = {id(module): module for module in modules}
    state = [(module_state(m).get("_parameters") or {}).values() for m in own.values()]
    parameters = {id(tensor) for tensors in state for tensor in tensors if tensor is not None}
    for name, frame in _other_stacks():
        while frame is not None:
            if (found := _use(frame, own, parameters)) is not None:
                return f"the thread {name!r} runs {found}"
            frame = frame.f_back
    return None


class OthersWork:
    """Whether other threads compute from now on: they may draw random numbers, those that wait do not."""

    def __init__(self) -> None:
        self._before = dict(_cpu_seconds())

    def __bool__(self) -> bool:
        frames = sys._current_frames()
        del frames[threading.get_ident()]  # this very frame, which would hold itself
        now = dict(_cpu_seconds())
        if self._before.keys() - now.keys():  # what has ended may have computed first
            return True
        for ident, seconds in now.items():
            if seconds is None:  # no such clock on this system
                if not _waits(frames.get(ident)):
                    return True
            elif seconds - (self._before.get(ident) or 0.0) > (MOST_WHILE_WAITING if _waits(frames.get(ident)) else 0):
                return True
        return False


def _cpu_seconds() -> Iterator[tuple[int, float | None]]:
    """What each of the other threads has computed so far."""
    own = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident is not None and thread.ident != own:
            yield thread.ident, _seconds_of(thread)


def _seconds_of(thread: threading.Thread) -> float | None:
    if sys.platform != "linux" or thread.native_id is None:
        return None
    try:
        # Linux's clock of one thread; asking for one that has ended is an error and no crash
        return time.clock_gettime((~thread.native_id << 3) | 6)
    except OSError:
        return 0.0


def _other_stacks() -> Iterator[tuple[str, FrameType | None]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = threading.get_ident()
    for ident, frame in sys._current_frames().items():
        if ident != own:
            yield names.get(ident, str(ident)), frame


def _use(frame: FrameType, modules: dict[int, Any], parameters: Collection[int]) -> str | None:
    code = frame.f_code
    if code in _CALLS:
        return "its forward pass" if id(frame.f_locals.get("self")) in modules else None
    if code.co_name in _BACKWARD and "autograd" in code.co_filename:
        return "its backward pass" if _reaches(frame.f_locals.get("t_outputs"), parameters) else None
    if code.co_name == "step" and isinstance(optimizer := frame.f_locals.get("self"), torch.optim.Optimizer):
        groups = [group.get("params", ()) for group in optimizer.param_groups]
        return "a step of its optimizer" if any(id(p) in parameters for group in groups for p in group) else None
    return None


def _reaches(outputs: Any, parameters: Collection[int]) -> bool:
    """Whether the graph behind some outputs of a backward pass leads to one of these parameters."""
    waiting = [getattr(output, "grad_fn", None) for output in outputs or ()]
    waiting += [getattr(getattr(output, "node", None), "next_functions", None) for output in outputs or ()]
    entered: set[Any] = set()
    while waiting and len(entered) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in entered or isinstance(node, tuple):
            continue
        entered.add(node)
        if id(getattr(node, "variable", None)) in parameters:
            return True
        waiting += [following for following, _ in node.next_functions]
    return False


def _waits(frame: FrameType | None) -> bool:
    if frame is None:
        return True
    file = frame.f_code.co_filename
    if "site-packages" in file:
        return bool(_OF_KERNELS & set(file.split(os.sep)))
    return file.startswith(_LIBRARY) and frame.f_code.co_name in _WAITING
