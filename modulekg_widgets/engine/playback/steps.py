"""The recorder of a forward pass on real tensors: module calls in order, with statistics of their outputs."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from modulekg_widgets.engine.errors import printable
from modulekg_widgets.engine.identity.walk import Walk, class_name
from modulekg_widgets.engine.playback.summaries import (
    FeatureMaps,
    Statistics,
    TensorLayout,
    TopOutputs,
    feature_maps,
    first_not_finite,
    has_data,
    item,
    item_count,
    layouts,
    main_tensor,
    statistics,
    top_outputs,
)
from modulekg_widgets.engine.torch_runtime.decompose import AttentionSlowPath
from modulekg_widgets.engine.torch_runtime.hooks import module_call_hooks
from modulekg_widgets.engine.torch_runtime.isolation.progress import report_progress
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import DisableTorchFunctionSubclass, version_of
from modulekg_widgets.engine.torch_runtime.pytree import Args, Kwargs, tensors

MAX_STEPS = 10_000
SKETCH_SIDE = 24  # pixels of the longer side of a channel in a sketch
MAX_SKETCH_BYTES = 32 << 20  # bytes of all sketches
_RAISED = object()


@dataclass(slots=True)
class ForwardStep:
    """One call of one module."""

    index: int
    path: str
    class_name: str
    depth: int  # calls that were open around it
    inputs: tuple[TensorLayout, ...] = ()
    outputs: tuple[TensorLayout, ...] = ()
    sources: tuple[int, ...] = ()  # numbers of the values that it took, equal where two steps share one
    value: int | None = None  # number of the value that it gave first
    statistics: Statistics | None = None  # of the first tensor of the output
    top: TopOutputs | None = None  # of the first item of that
    first_not_finite: int | None = None  # item with a NaN or an infinity
    batch_dim: int = 0
    is_result: bool = False  # gives what the model returns, a row of classes
    error: str | None = None  # what it raised

    @property
    def output(self) -> TensorLayout | None:
        """The tensor that statistics, largest outputs and pictures are of."""
        return self.outputs[0] if self.outputs else None


class CachedOutput:
    """An output in host memory, whole or one item of it."""

    def __init__(self, tensor: torch.Tensor, batch_dim: int, only: int | None = None) -> None:
        single = tensor if only is None else item(tensor, only, batch_dim)
        self._tensor = single.detach().to("cpu", copy=True)
        self._batch_dim, self._only = batch_dim, only

    def item(self, number: int) -> torch.Tensor | None:
        """Returns sample `number`; None where another one is cached."""
        if self._only is None:
            return item(self._tensor, number, self._batch_dim)
        return self._tensor if self._only == number else None


class CallRecorder:
    """The recorder of one pass: steps, statistics, and outputs from step `first` on within `budget` bytes.

    Of step `first` at least item `sample` is kept. With `every` all steps have statistics, and all values a sketch: a
    small picture of item `sample`, of the last item at most; without it that step alone has statistics.
    """

    def __init__(self, places: Walk, first: int, sample: int, budget: int, every: bool) -> None:
        self.steps: list[ForwardStep] = []
        self.dropped = 0
        self.error: str | None = None
        self.failed: int | None = None
        self.outputs: dict[int, CachedOutput] = {}
        self.sketches: dict[int, FeatureMaps] = {}  # by the number of the value
        self._unsketched = MAX_SKETCH_BYTES
        self._places = places
        self._index_of = {id(module): index for index, module in enumerate(places.modules)}
        self.sample = sample
        self._first, self._free, self._every = first, budget, every
        self._open: list[ForwardStep | None] = []  # None: a call that is no step
        self._values: dict[int, tuple[weakref.ref[torch.Tensor], int, int]] = {}
        self._shared: dict[int, CachedOutput] = {}  # by the number of the value
        self._count = 0
        self._thread = threading.get_ident()

    def fail(self, error: Exception) -> None:
        """Records the error that ended the pass."""
        self.error = error_text(error)
        if self.failed is None and self.steps:
            self.failed = 0  # the model's own code, outside of its call

    def finish(self, result: object) -> None:
        """Ends the recording; an output that is returned as (batch, classes) is marked as the result."""
        self.failed = None
        tensor = main_tensor(result)
        if tensor is None or tensor.dim() != 2 or not tensor.is_floating_point() or tensor.shape[1] < 2:
            return
        number = self._number(tensor)
        for step in self.steps:
            if step.value == number and step.statistics is not None:
                step.is_result = True
                if self._every and len(tensor):
                    step.top = top_outputs(tensor.detach()[0], are_classes=True)

    # ------------------------------------------------------------- the hooks

    def on_enter(self, module: nn.Module, args: Args) -> None:
        """A module is called."""
        if threading.get_ident() == self._thread:
            report_progress("modules run", len(self.steps))
            self._open.append(self._begin_step(module, args))

    def on_exit(self, module: nn.Module, args: Args, kwargs: Kwargs, output: object = _RAISED) -> None:
        """A module's call ended; when it raised, torch passes neither keywords nor an output."""
        if threading.get_ident() != self._thread or not self._open:
            return
        step = self._open.pop()
        if step is None:
            return
        if output is _RAISED:
            self._fail_step(step)
            return
        self.failed = None  # what was raised inside was caught inside
        try:
            with torch.no_grad(), DisableTorchFunctionSubclass():
                self._end_step(step, module, kwargs, output)
        except Exception:  # noqa: BLE001 - an output that cannot be read must not end the user's forward
            step.statistics, step.top = None, None

    def _begin_step(self, module: nn.Module, args: Args) -> ForwardStep | None:
        place = self._index_of.get(id(module))
        if place is None:
            return None
        if len(self.steps) == MAX_STEPS:
            self.dropped += 1
            return None
        depth = sum(step is not None for step in self._open)
        step = ForwardStep(len(self.steps), self._places.path(place), class_name(module), depth)
        self.steps.append(step)
        try:
            self._add_inputs(step, args)
        except Exception:  # noqa: BLE001 - as above
            step.inputs = ()
        return step

    def _add_inputs(self, step: ForwardStep, value: object) -> None:
        step.inputs += layouts(value)
        step.sources += tuple(self._number(tensor) for _, tensor in tensors(value))

    def _fail_step(self, step: ForwardStep) -> None:
        error = sys.exc_info()[1]
        step.error = error_text(error) if error is not None else "it raised an error"
        if self.failed is None:
            self.failed = step.index  # the innermost one leaves first

    def _end_step(self, step: ForwardStep, module: nn.Module, kwargs: Kwargs, output: object) -> None:
        if kwargs:
            self._add_inputs(step, kwargs)
        step.outputs = layouts(output)
        tensor = main_tensor(output)
        if tensor is None:
            return
        step.value = self._number(tensor)
        # the recurrent and attention layers of torch have time first unless they say otherwise
        step.batch_dim = 1 if tensor.dim() == 3 and module_state(module).get("batch_first") is False else 0
        if not has_data(tensor):
            return
        if self._every or step.index == self._first:
            step.statistics = statistics(tensor)
            if step.statistics.non_finite:
                step.first_not_finite = first_not_finite(tensor, step.batch_dim)
            if item_count(step.outputs[0].sizes, step.batch_dim):
                step.top = top_outputs(item(tensor, 0, step.batch_dim))
        if self._every:
            self._sketch(step, tensor)
        self._cache_output(step, tensor)

    def _number(self, tensor: torch.Tensor) -> int:
        """The number of a value: another one once the tensor has been written."""
        version = 0 if tensor.is_inference() else version_of(tensor)
        known = self._values.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == version:
            return known[2]
        self._count += 1
        self._values[id(tensor)] = (weakref.ref(tensor), version, self._count)
        return self._count

    def _sketch(self, step: ForwardStep, tensor: torch.Tensor) -> None:
        number = min(self.sample, item_count(step.outputs[0].sizes, step.batch_dim) - 1)
        if number < 0 or step.value is None or step.value in self.sketches or self._unsketched < 0:
            return
        found = feature_maps(item(tensor, number, step.batch_dim), 0, SKETCH_SIDE)
        self._unsketched -= len(found.pixels)
        self.sketches[step.value] = found

    def _cache_output(self, step: ForwardStep, tensor: torch.Tensor) -> None:
        if step.index < self._first:
            return
        assert step.value is not None
        shared = self._shared.get(step.value)
        if shared is not None and not tensor.is_inference():
            self.outputs[step.index] = shared  # as of a container and the last module in it
            return
        size = tensor.numel() * tensor.element_size()
        if size <= self._free:
            self._free -= size
            self.outputs[step.index] = self._shared[step.value] = CachedOutput(tensor, step.batch_dim)
        elif step.index == self._first:
            self.outputs[step.index] = CachedOutput(tensor, step.batch_dim, self.sample)


@contextmanager
def recording_steps(recorder: CallRecorder, sandbox: Sandbox) -> Iterator[None]:
    """The recorder at work."""
    with (
        module_call_hooks(sandbox.copies, recorder.on_enter, recorder.on_exit),
        AttentionSlowPath(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        yield


def error_text(error: BaseException) -> str:
    """Kind and message of an error on one line, whatever its own text does."""
    try:
        message = printable(str(error).strip(), 300)
    except Exception:  # noqa: BLE001 - a class of the user's
        message = "its text cannot be read"
    return f"{printable(type(error).__name__)}: {message}" if message else printable(type(error).__name__)
