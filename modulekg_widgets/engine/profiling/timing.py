"""Interleaved timing of models on their device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import ModuleKGError, TraceError, UninitializedModuleError, printable
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.torch_runtime.modules import registered_tensors, unwrapped
from modulekg_widgets.engine.torch_runtime.parallel import unwrap_model
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.torch_runtime.pytree import Call, tensors, with_tensors

Mark = Any  # a moment: seconds, or an event of the device
WARM_UP = 2  # passes that are not counted: the first ones allocate memory and choose kernels
MIN_ROUNDS, MAX_ROUNDS = 7, 200  # passes that are
SECONDS = 1.0  # for which passes go on beyond the least
LARGE_ALLOCATION = 31 << 20  # bytes: the most that malloc learns from
WALL_TIME_FACTOR = 4  # times as many seconds, where other processes have the machine


class Clock:
    """A clock of a device: CUDA events, thread time for one CPU thread, else wall time.

    What one thread of the CPU computes is told by the clock of that thread, which stands while others have its core.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._is_cpu = device.type == "cpu"
        is_one_thread = self._is_cpu and torch.get_num_threads() == 1
        self.now = time.thread_time if is_one_thread else time.perf_counter

    def synchronize(self) -> None:
        """Waits until the device has finished."""
        if not self._is_cpu:
            torch.get_device_module(self.device).synchronize()

    def mark(self) -> Mark:
        """This moment, in the order of what the device does."""
        if self._is_cpu:
            return self.now()
        event = torch.Event(self.device, enable_timing=True)
        event.record()
        return event

    def between(self, start: Mark, end: Mark) -> float:
        """Milliseconds from one moment to another, once the device has settled."""
        return 1e3 * (end - start) if self._is_cpu else float(start.elapsed_time(end))


class TimedModel:
    """A copy of a model in eval mode with what it is called with.

    `copies` are its modules where they are those of a shadow, None where they are the model's own.
    """

    def __init__(self, walked: Walk, copies: Sequence[nn.Module] | None, call: Call) -> None:
        self.walked = walked
        self.copies = copies
        self.model = unwrap_model(unwrapped(walked.modules[0]))
        self.clock = Clock(device_of(walked, call))
        self._call = call
        self._is_moved = len(_devices(walked)) == 1  # as inputs that a loader left on the CPU

    def warm_up(self) -> None:
        """Run passes that do not count, under whatever modes are on."""
        for _ in range(WARM_UP):
            self._run(self._inputs())

    def time(self) -> float:
        """Returns the milliseconds of one pass, including the work on the device."""
        inputs = self._inputs()  # anew, for forward may write into them or let a cache grow
        self.clock.synchronize()
        start = self.clock.now()
        self._run(inputs)
        self.clock.synchronize()
        return 1e3 * (self.clock.now() - start)

    def _inputs(self) -> Call:
        def own(tensor: torch.Tensor) -> torch.Tensor:
            copy = tensor.detach().clone()
            return copy.to(self.clock.device) if self._is_moved else copy

        return with_tensors(self._call, own)

    def _run(self, inputs: Call) -> None:
        args, kwargs = inputs
        try:
            self.model(*args, **kwargs)
        except ModuleKGError:
            raise
        except Exception as error:
            raise TraceError(
                f"{printable(type(self.model).__name__)} does not run in eval mode on these inputs: "
                f"{type(error).__name__}: {printable(str(error), 300)}; pass inputs that it takes as args="
            ) from error


def interleaved_times(
    models: Sequence[TimedModel], min_rounds: int = MIN_ROUNDS, seconds: float = SECONDS
) -> list[list[float]]:
    """Measures passes of each model in interleaved rounds, in milliseconds, so that noise affects all alike.

    `seconds`: rounds go on for so long for each model, from `min_rounds` to two hundred of them.
    """
    with torch.inference_mode(False), torch.no_grad():
        for model in models:
            model.warm_up()  # under the guards of a look
        with disable_current_modes():
            return timed_rounds([model.time for model in models], min_rounds, seconds * len(models))


def timed_rounds(runs: Sequence[Callable[[], float]], min_rounds: int, seconds: float) -> list[list[float]]:
    """Measures several runs in interleaved rounds and returns their times.

    Rounds go on until they have taken so many seconds by their own clock, or four times as many on the wall.
    """
    _raise_malloc_threshold()
    found: list[list[float]] = [[] for _ in runs]
    taken, start = 0.0, time.perf_counter()
    for done in range(MAX_ROUNDS):
        if done >= min_rounds and (taken > 1e3 * seconds or time.perf_counter() - start > WALL_TIME_FACTOR * seconds):
            break
        for own, run in zip(found, runs, strict=True):
            own.append(run())
            taken += own[-1]
    return found


def _raise_malloc_threshold() -> None:
    """Raises malloc's threshold by freeing a large tensor, so that results reuse memory between passes.

    glibc's gives the pages of large results back to the system and asks for them in each pass until one was freed that
    large, as sooner or later in any session: that takes a quarter of the time of some models, of one of two alone.
    """
    torch.empty(LARGE_ALLOCATION, dtype=torch.uint8)


@dataclass(frozen=True)
class LatencyComparison:
    """Rounds of two models, in milliseconds."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def share(self) -> float:
        """The ratio of the second model's time to the first's, by lower quartiles.

        By lower quartiles: whatever else the machine does makes passes longer and none shorter, so the quick half of
        the passes tells more than the middle one.
        """
        return lower_quartile(self.after) / lower_quartile(self.before)

    @property
    def pair(self) -> tuple[float, float]:
        """Milliseconds of the first, the median, and what the share makes of them."""
        before = statistics.median(self.before)
        return before, before * self.share

    def with_more(self, other: LatencyComparison) -> LatencyComparison:
        """The rounds of both."""
        return LatencyComparison((*self.before, *other.before), (*self.after, *other.after))


def lower_quartile(values: Sequence[float]) -> float:
    """A quarter of the values are below it."""
    return statistics.quantiles(values, n=4, method="inclusive")[0]


def device_of(walked: Walk, call: Call) -> torch.device:
    """Returns the first device of the model's tensors that is not the CPU, else that of its inputs."""
    every = _devices(walked) or [tensor.device for _, tensor in tensors(call)]
    return next((device for device in every if device.type != "cpu"), torch.device("cpu"))


def _devices(walked: Walk) -> list[torch.device]:
    """The devices of parameters and buffers, each once."""
    own = (tensor.device for state in walked.states for tensor in registered_tensors(state).values())
    return list(dict.fromkeys(own))


def check_has_data(walked: Walk, call: Call) -> None:
    """Raises `TraceError` for a model or inputs on the meta device."""
    for index, state in enumerate(walked.states):
        for name, tensor in registered_tensors(state).items():
            where = ".".join(filter(None, (walked.path(index), name)))
            if nn.parameter.is_lazy(tensor):
                raise UninitializedModuleError(f"{printable(where)!r} has no shape yet: run one forward pass first")
            if tensor.is_meta:
                raise TraceError(
                    f"time is measured, and {printable(where)!r} is on the meta device: give the model weights first, "
                    "as by to_empty"
                )
    for name, tensor in tensors(call):
        if tensor.is_meta:
            raise TraceError(
                f"time is measured, and the input {printable(name) or 'of the trace'} is on the meta device: pass a "
                "tensor with data, to mk.trace or as args="
            )
