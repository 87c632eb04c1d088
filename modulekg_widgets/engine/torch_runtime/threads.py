"""Detection of other threads that use a model or compute, from their stacks and CPU times."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.torch_runtime.modules import module_state, registry
from modulekg_widgets.engine.torch_runtime.private import (
    BACKWARD_FUNCTION,
    CALL_CODE,
    MODULES,
    OUTER_CALL_CODE,
    PARAMETERS,
)

_CALLS = {CALL_CODE, OUTER_CALL_CODE}
_BACKWARD = {BACKWARD_FUNCTION}
_LIBRARY = os.path.dirname(os.__file__) + os.sep
# the functions of the standard library in which a thread waits, and the packages of a kernel that do nothing else
_WAITING = {"wait", "_wait_for_tstate_lock", "select", "_worker", "accept", "readinto", "read", "_recv", "_poll"}
_KERNEL_PACKAGES = {"asyncio", "zmq", "tornado", "ipykernel", "jupyter_client", "prompt_toolkit", "debugpy"}
PROGRESS_THREAD = "modulekg-progress"  # shows the first line of long work: it draws nothing, and runs no model
# the first is of a multiprocessing.Queue, as a loader with workers has
_HARMLESS = {"QueueFeederThread", PROGRESS_THREAD}
MAX_GRAPH_NODES = 1_000_000  # of a graph of gradients
MAX_WAITING_CPU = 5e-4  # seconds of computing of a thread that wakes up to see that it has to wait on
WATCH_SECONDS = 0.2  # seconds in which a thread that trains a model is seen to compute
MAX_WATCHED_CPU = 2e-3  # seconds of computing in that time of one that only waits; more where watching costs more


class _ModelIdentity:
    """The identities of some modules and their parameters."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.modules: dict[int, Any] = {id(module): module for module in modules}
        state = [registry(module_state(m), PARAMETERS).values() for m in self.modules.values()]
        self.parameters = {id(tensor) for tensors in state for tensor in tensors if tensor is not None}

    def is_of(self, optimizer: torch.optim.Optimizer) -> bool:
        groups = [group.get("params", ()) for group in getattr(optimizer, "param_groups", ())]
        return any(id(p) in self.parameters for group in groups for p in group)


def current_use(modules: Iterable[nn.Module]) -> str | None:
    """Returns a description of another thread's current use of these modules; None if there is none."""
    return _current_use(_ModelIdentity(modules))


def _current_use(model: _ModelIdentity) -> str | None:
    for ident, top in _other_stacks():
        frame: FrameType | None = top
        while frame is not None:
            if (found := _use_in_frame(frame, model)) is not None:
                return f"the thread {_name_of(ident)!r} runs {found}"
            frame = frame.f_back
    return None


def training_thread(modules: Iterable[nn.Module]) -> str | None:
    """Returns a description of a thread that trains these modules, also between its passes; else None.

    Between two passes the stack of a thread that trains shows neither. So threads that know the model are watched for
    a moment: one that computes is at work on it, one that waits, for a lock say, leaves it alone.
    """
    model = _ModelIdentity(modules)
    if (found := _current_use(model)) is not None:
        return found
    seconds = dict(_cpu_seconds())
    before = {ident: seconds.get(ident) for ident, frame in _other_stacks() if _references_model(frame, model)}
    end, own = time.monotonic() + WATCH_SECONDS, time.thread_time()
    while found is None and before and time.monotonic() < end:
        time.sleep(WATCH_SECONDS / 100)
        # this thread wakes up to look too: one that computes no more than that only looks, on a slow machine as well
        at_work = _computing_thread(before, max(MAX_WATCHED_CPU, time.thread_time() - own))
        found = _current_use(model) or (at_work and f"the thread {_name_of(at_work)!r} is at work on it") or None
    return found


def _computing_thread(before: Mapping[int, float | None], most: float) -> int | None:
    """Returns the first of these threads whose CPU time grew by more than `most` seconds."""
    seconds, frames = dict(_cpu_seconds()), sys._current_frames()
    for ident, earlier in before.items():
        now = seconds.get(ident)
        if earlier is None or now is None:  # no such clock on this system
            if not _waits(frames.get(ident)):
                return ident
        elif now - earlier > most:
            return ident
    return None


def _references_model(frame: FrameType | None, model: _ModelIdentity) -> bool:
    """True if a stack references the model in its variables, their attributes or its globals."""
    while frame is not None:
        variables = frame.f_globals
        values = [variables.get(name) for name in frame.f_code.co_names]
        if frame.f_locals is not variables:
            values += frame.f_locals.values()
        if any(_leads_to(value, model) or any(_leads_to(v, model) for v in _attributes(value)) for value in values):
            return True
        frame = frame.f_back
    return False


def _attributes(value: object) -> Collection[object]:
    if issubclass(type(value), (type, ModuleType)):
        return ()
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()
    return list(found.values()) if type(found) is dict else ()


def _leads_to(value: Any, model: _ModelIdentity) -> bool:
    kind = type(value)  # what a stranger's object calls its class may be code
    if issubclass(kind, nn.Module):
        return _contains(value, model)
    return model.is_of(value) if issubclass(kind, torch.optim.Optimizer) else id(value) in model.parameters


def _contains(module: nn.Module, model: _ModelIdentity) -> bool:
    waiting, seen = [module], {id(module)}
    while waiting:
        next_one = waiting.pop()
        if id(next_one) in model.modules:
            return True
        children = list(registry(module_state(next_one), MODULES).values())
        waiting += [child for child in children if child is not None and id(child) not in seen]
        seen.update(map(id, children))
    return False


class ThreadActivity:
    """The detection of computing in other threads since a moment, which may draw random numbers."""

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
            elif seconds - (self._before.get(ident) or 0.0) > (MAX_WAITING_CPU if _waits(frames.get(ident)) else 0):
                return True
        return False


def other_threads_compute() -> bool:
    """True if another thread computes at this moment, judged by its stack."""
    return any(not _waits(frame) for _, frame in _other_stacks())


def _cpu_seconds() -> Iterator[tuple[int, float | None]]:
    """Yields the CPU seconds of the other threads."""
    own = threading.get_ident()
    for thread in threading.enumerate():
        if thread.ident is not None and thread.ident != own and thread.name not in _HARMLESS:
            yield thread.ident, _seconds_of(thread)


def _seconds_of(thread: threading.Thread) -> float | None:
    if sys.platform != "linux" or thread.native_id is None:
        return None
    try:
        # Linux's clock of one thread; asking for one that has ended is an error and no crash
        return time.clock_gettime((~thread.native_id << 3) | 6)
    except OSError:
        return 0.0


def _other_stacks() -> Iterator[tuple[int, FrameType]]:
    ours = {
        threading.get_ident(),
        *(thread.ident for thread in threading.enumerate() if thread.name == PROGRESS_THREAD),
    }
    return ((ident, frame) for ident, frame in sys._current_frames().items() if ident not in ours)


def _name_of(ident: int) -> str:
    return next((thread.name for thread in threading.enumerate() if thread.ident == ident), str(ident))


def _use_in_frame(frame: FrameType, model: _ModelIdentity) -> str | None:
    code = frame.f_code
    if code in _CALLS:
        return "its forward pass" if id(frame.f_locals.get("self")) in model.modules else None
    if code.co_name in _BACKWARD and "autograd" in code.co_filename:
        return "its backward pass" if _reaches(frame.f_locals.get("t_outputs"), model.parameters) else None
    if code.co_name == "step" and isinstance(optimizer := frame.f_locals.get("self"), torch.optim.Optimizer):
        return "a step of its optimizer" if model.is_of(optimizer) else None
    return None


def _reaches(outputs: Any, parameters: Collection[int]) -> bool:
    """True if the autograd graph of some outputs leads to one of these parameters."""
    waiting = [getattr(output, "grad_fn", None) for output in outputs or ()]
    waiting += [getattr(getattr(output, "node", None), "next_functions", None) for output in outputs or ()]
    entered: set[Any] = set()
    while waiting and len(entered) < MAX_GRAPH_NODES:
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
        return bool(_KERNEL_PACKAGES & set(file.split(os.sep)))
    return file.startswith(_LIBRARY) and frame.f_code.co_name in _WAITING
