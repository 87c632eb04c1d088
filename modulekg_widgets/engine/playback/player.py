"""The forward pass on real inputs, call by call: what each module took and gave, and pictures of it on request."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import TraceError, UninitializedModuleError, UnknownPathError, nearest, shown
from modulekg_widgets.engine.identity.walk import Walk, class_name, walk
from modulekg_widgets.engine.playback.feature_maps import Maps, maps_of
from modulekg_widgets.engine.playback.steps import CallRecorder, ForwardStep, HeldOutput, listening
from modulekg_widgets.engine.playback.summaries import Top, item_count, top
from modulekg_widgets.engine.torch_runtime.inputs import call_arguments, input_tensors, list_hint
from modulekg_widgets.engine.torch_runtime.look import Stage, look
from modulekg_widgets.engine.torch_runtime.rng import PythonGenerators, process_states
from modulekg_widgets.engine.torch_runtime.shadow import ALL
from modulekg_widgets.engine.torch_runtime.state import registered_tensors, unwrapped
from modulekg_widgets.engine.torch_runtime.structure import with_tensors

CACHE = 64 << 20  # bytes of outputs that are kept between two questions
CLOSED = "the model was let go by close(): there is nothing left to run"


class Playback:
    """One forward pass `model(*args, **kwargs)` in the model's own mode, without gradients; the model stays as it is.

    Outputs stay in host memory as far as they go into 64 MiB; for others the pass runs again, with the random states
    of the first time. Where forward raises, `steps` ends there, `failed` is the innermost step that raised and `error`
    says what. Keeps the model, and a copy of the inputs, until `close()`. `sketches` are small pictures of item
    `sample` of each output, by the number of its value; where none is asked for, that is the first item of the batch in
    which something is not finite, else item 0.
    Raises `NotAModuleError`, `BrokenModuleError`, `UninitializedModuleError` and `TraceError`.
    """

    def __init__(
        self, model: nn.Module, args: Any = (), kwargs: Mapping[str, Any] | None = None, sample: int | None = None
    ) -> None:
        places = walk(model)
        root = unwrapped(model)
        given = call_arguments(args, kwargs)
        _check(places, input_tensors(root, *given))
        self.paths = places.paths_alone()
        self.title = class_name(root)
        self._places: Walk | None = places
        self._given: Any = with_tensors(given, _copy)
        self._random, self._pythons = process_states(), PythonGenerators()
        self._lock = threading.RLock()
        self._held: dict[int, HeldOutput] = {}
        recorder = self._run(0, sample or 0, every=True)
        if sample is None and (broken := _broken_item(recorder.steps)):
            recorder = self._run(0, broken, every=True)  # for its pictures
        sample = recorder.sample
        self.steps: tuple[ForwardStep, ...] = tuple(recorder.steps)
        self.dropped = recorder.dropped  # calls beyond the most that are listed
        self.error: str | None = recorder.error and recorder.error + list_hint(given[0])
        self.failed: int | None = recorder.failed
        self._held = recorder.held
        self.sample, self.sketches = sample, recorder.sketches
        self._first = {step.path: step.index for step in reversed(self.steps)}

    def __len__(self) -> int:
        return len(self.steps)

    def first(self, path: str) -> int | None:
        """The first step of the module at a dotted path; None where it was not called.

        Raises `UnknownPathError` for a path that does not exist.
        """
        return self._first.get(self.known(path))

    def known(self, path: str) -> str:
        """The path at which the module's steps are found: the first one of a shared module."""
        index = self.paths.find(path)
        if index is None:
            raise UnknownPathError(f"there is no module {shown(path)!r}: {nearest(path, self.paths.near(path))}")
        return self.paths.path(index)

    @property
    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs of the pass."""
        if self._given is None:
            raise TraceError(CLOSED)
        return self._given

    def close(self) -> None:
        """Let go of the model, the inputs and all outputs; the steps stay."""
        with self._lock:
            self._places, self._given, self._held = None, None, {}

    def picture(
        self, index: int, sample: int = 0, page: int = 0, may_run: bool = True
    ) -> tuple[Maps, Top | None, int] | None:
        """Pictures and largest outputs of one item of a step's output, and the item's number; the last one at most.

        None where the pass would have to run again and may not. Raises `TraceError` when it then gives something else,
        and after `close()`.
        """
        step = self.steps[index]
        if step.statistics is None or step.output is None:
            return Maps("none"), None, 0
        number = min(sample, item_count(step.output.sizes, step.batch_dim) - 1)
        if number < 0:
            return Maps("none"), None, 0
        with self._lock, torch.inference_mode(False), torch.no_grad():
            single = self._item(step, number)
            if single is None and may_run:
                self._run_again(step, number)
                single = self._item(step, number)
            return None if single is None else (maps_of(single, page), top(single, step.is_result), number)

    def _item(self, step: ForwardStep, number: int) -> torch.Tensor | None:
        output = self._held.get(step.index)
        return None if output is None else output.item(number)

    def _run_again(self, step: ForwardStep, sample: int) -> None:
        """Keep the outputs from `step` on in the place of others."""
        recorder = self._run(step.index, sample, every=False)
        again = recorder.steps[step.index] if step.index < len(recorder.steps) else None
        if again is None or not _same(step, again):
            raise TraceError(
                "the model no longer gives what it gave at the run: its weights, its mode or its code have changed "
                "since. Run it again"
            )
        self._held = recorder.held

    def _run(self, first: int, sample: int, every: bool) -> CallRecorder:
        """One pass, after which all is as before."""
        if self._places is None:
            raise TraceError(CLOSED)
        places, given = self._places, self.given

        def play(stage: Stage) -> CallRecorder:
            recorder = CallRecorder(places.with_modules(stage.modules), first, sample, CACHE, every)
            args, kwargs = stage.held
            self._pythons.set()
            with listening(recorder, stage):
                try:
                    result = stage.model(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - the user's forward may raise anything
                    recorder.fail(error)
                else:
                    recorder.finish(result)
            self._pythons.passed()
            return recorder

        return look(places.modules, given, play, ALL, self._random)


def _same(one: ForwardStep, other: ForwardStep) -> bool:
    """Whether two runs gave the same at this step, but for the order in which a device adds."""
    a, b = one.statistics, other.statistics
    if one.path != other.path or one.outputs != other.outputs or a is None or b is None:
        return False
    scale = max(abs(a.minimum), abs(a.maximum))
    pairs = zip((a.minimum, a.maximum, a.mean, a.std), (b.minimum, b.maximum, b.mean, b.std), strict=True)
    return a.non_finite == b.non_finite and all(x == y or x != x or abs(x - y) <= 1e-4 * scale for x, y in pairs)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _broken_item(steps: Sequence[ForwardStep]) -> int | None:
    """The first item that is not finite in what was given first of all that is not, of outputs with as many items as
    the model's has.
    """
    items = {step.index: item_count(step.output.sizes, step.batch_dim) for step in steps if step.output is not None}
    broken = [step for step in steps if step.first_not_finite is not None and items[step.index] == items.get(0)]
    first = min(broken, key=lambda step: step.value or 0, default=None)
    return None if first is None else first.first_not_finite


def _check(places: Walk, given: list[tuple[str, torch.Tensor]]) -> None:
    """Refuse what cannot run on real numbers: lazy modules, and tensors without data."""
    for index, state in enumerate(places.states):
        for name, tensor in registered_tensors(state).items():
            where = ".".join(filter(None, (places.path(index), name)))
            if nn.parameter.is_lazy(tensor):
                raise UninitializedModuleError(
                    f"{shown(where)!r} has no shape yet: run one forward pass of the lazy module, then play it"
                )
            if tensor.is_meta:
                raise TraceError(
                    f"{shown(where)!r} is on the meta device: give the model weights first, as by to_empty"
                )
    for name, tensor in given:
        if tensor.is_meta:
            raise TraceError(f"the input {shown(name)!r} is on the meta device: pass a tensor with data")
