"""A recorded forward pass on real inputs, with statistics of each module call and pictures on request."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import (
    TraceError,
    UninitializedModuleError,
    UnknownPathError,
    closest_match_hint,
    printable,
)
from modulekg_widgets.engine.identity.walk import Walk, class_name, walk
from modulekg_widgets.engine.playback.steps import CachedOutput, CallRecorder, ForwardStep, recording_steps
from modulekg_widgets.engine.playback.summaries import FeatureMaps, TopOutputs, feature_maps, item_count, top_outputs
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL
from modulekg_widgets.engine.torch_runtime.modules import registered_tensors, unwrapped
from modulekg_widgets.engine.torch_runtime.pytree import (
    Args,
    Kwargs,
    call_arguments,
    input_tensors,
    with_list_hint,
    with_tensors,
)
from modulekg_widgets.engine.torch_runtime.rng import PythonGenerators, process_states

CACHE_BYTES = 64 << 20  # bytes of outputs that are kept between two questions
CLOSED = "the player was closed: make a new one"


class Playback:
    """A recorded forward pass `model(*args, **kwargs)` on real inputs; the model is not changed.

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
        self.paths = places.paths_only()
        self.title = class_name(root)
        self._places: Walk | None = places
        self._inputs: Any = with_tensors(given, _copy)
        self._random, self._pythons = process_states(), PythonGenerators()
        self._lock = threading.RLock()
        self._outputs: dict[int, CachedOutput] = {}
        recorder = self._run(0, sample or 0, every=True)
        if sample is None and (broken := _broken_item(recorder.steps)):
            recorder = self._run(0, broken, every=True)  # for its pictures
        sample = recorder.sample
        self.steps: tuple[ForwardStep, ...] = tuple(recorder.steps)
        self.dropped = recorder.dropped  # calls beyond the most that are listed
        self.error: str | None = recorder.error and with_list_hint(recorder.error, root, given[0])
        self.failed: int | None = recorder.failed
        self._outputs = recorder.outputs
        self.sample, self.sketches = sample, recorder.sketches
        self._first = {step.path: step.index for step in reversed(self.steps)}

    def __len__(self) -> int:
        return len(self.steps)

    def first_step(self, path: str) -> int | None:
        """The first step of the module at a dotted path; None where it was not called.

        Raises `UnknownPathError` for a path that does not exist.
        """
        return self._first.get(self.canonical_path(path))

    def canonical_path(self, path: str) -> str:
        """The path at which the module's steps are found: the first one of a shared module."""
        index = self.paths.find(path)
        if index is None:
            raise UnknownPathError(
                f"there is no module {printable(path)!r}: {closest_match_hint(path, self.paths.similar_paths(path))}"
            )
        return self.paths.path(index)

    @property
    def inputs(self) -> tuple[Args, Kwargs]:
        """The inputs of the pass."""
        if self._inputs is None:
            raise TraceError(CLOSED)
        return self._inputs

    def close(self) -> None:
        """Let go of the model, the inputs and all outputs; the steps stay."""
        with self._lock:
            self._places, self._inputs, self._outputs = None, None, {}

    def picture(
        self, index: int, sample: int = 0, page: int = 0, may_run: bool = True
    ) -> tuple[FeatureMaps, TopOutputs | None, int] | None:
        """Pictures and largest outputs of one item of a step's output, and the item's number; the last one at most.

        None where the pass would have to run again and may not. Raises `TraceError` when it then gives something else,
        and after `close()`.
        """
        step = self.steps[index]
        if step.statistics is None or step.output is None:
            return FeatureMaps("none"), None, 0
        number = min(sample, item_count(step.output.sizes, step.batch_dim) - 1)
        if number < 0:
            return FeatureMaps("none"), None, 0
        with self._lock, torch.inference_mode(False), torch.no_grad():
            single = self._item(step, number)
            if single is None and may_run:
                self._run_again(step, number)
                single = self._item(step, number)
            return None if single is None else (feature_maps(single, page), top_outputs(single, step.is_result), number)

    def _item(self, step: ForwardStep, number: int) -> torch.Tensor | None:
        output = self._outputs.get(step.index)
        return None if output is None else output.item(number)

    def _run_again(self, step: ForwardStep, sample: int) -> None:
        """Keep the outputs from `step` on in the place of others."""
        recorder = self._run(step.index, sample, every=False)
        again = recorder.steps[step.index] if step.index < len(recorder.steps) else None
        if again is None or not _same(step, again):
            raise TraceError(
                "the model's outputs have changed since the run: its weights, mode or code are different. Run it again"
            )
        self._outputs = recorder.outputs

    def _run(self, first: int, sample: int, every: bool) -> CallRecorder:
        """Runs the model once in isolation and records its steps."""
        if self._places is None:
            raise TraceError(CLOSED)
        places, given = self._places, self.inputs

        def play(sandbox: Sandbox) -> CallRecorder:
            recorder = CallRecorder(places.with_modules(sandbox.modules), first, sample, CACHE_BYTES, every)
            args, kwargs = sandbox.held
            self._pythons.set()
            with recording_steps(recorder, sandbox):
                try:
                    result = sandbox.model(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - the user's forward may raise anything
                    recorder.fail(error)
                else:
                    recorder.finish(result)
            self._pythons.record_use()
            return recorder

        return run_isolated(places.modules, given, play, ALL, self._random)


def _same(one: ForwardStep, other: ForwardStep) -> bool:
    """True if two runs gave the same result at a step, up to rounding."""
    a, b = one.statistics, other.statistics
    if one.path != other.path or one.outputs != other.outputs or a is None or b is None:
        return False
    scale = max(abs(a.minimum), abs(a.maximum))
    pairs = zip((a.minimum, a.maximum, a.mean, a.std), (b.minimum, b.maximum, b.mean, b.std), strict=True)
    return a.non_finite == b.non_finite and all(x == y or x != x or abs(x - y) <= 1e-4 * scale for x, y in pairs)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _broken_item(steps: Sequence[ForwardStep]) -> int | None:
    """Returns the batch index of the first NaN or infinity in the first output that has one."""
    items = {step.index: item_count(step.output.sizes, step.batch_dim) for step in steps if step.output is not None}
    broken = [step for step in steps if step.first_not_finite is not None and items[step.index] == items.get(0)]
    first = min(broken, key=lambda step: step.value or 0, default=None)
    return None if first is None else first.first_not_finite


def _check(places: Walk, given: list[tuple[str, torch.Tensor]]) -> None:
    """Raises an error for lazy modules and for meta tensors."""
    for index, state in enumerate(places.states):
        for name, tensor in registered_tensors(state).items():
            where = ".".join(filter(None, (places.path(index), name)))
            if nn.parameter.is_lazy(tensor):
                raise UninitializedModuleError(
                    f"{printable(where)!r} has no shape yet: run one forward pass of the lazy module, then play it"
                )
            if tensor.is_meta:
                raise TraceError(
                    f"{printable(where)!r} is on the meta device: give the model weights first, as by to_empty"
                )
    for name, tensor in given:
        if tensor.is_meta:
            raise TraceError(f"the input {printable(name)!r} is on the meta device: pass a tensor with data")


# -------------------- The feature maps that are sent with the widget, for kernels that are too busy to answer


MAX_PREVIEW_BYTES = 512 << 10  # bytes of all of them
CHANNEL_LIMITS = (64, 32, 16, 8, 4)  # channels of a small picture, the most that fit into the budget


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of an output, which several steps may share.

    `is_whole` where a question would bring the same.
    """

    steps: tuple[int, ...]
    maps: FeatureMaps
    top: TopOutputs | None
    is_complete: bool


def make_previews(played: Playback, index: int) -> list[Preview]:
    """Small pictures of all outputs as far as there is room; fine ones of step `index`, and then of the others."""
    steps: dict[int, list[int]] = {}
    for step in played.steps:
        if step.value is not None and step.value in played.sketches:
            steps.setdefault(step.value, []).append(step.index)
    order = sorted(steps, key=lambda value: (index not in steps[value], steps[value]))
    small = _fitting({value: played.sketches[value] for value in order})
    room = MAX_PREVIEW_BYTES - sum(len(maps.pixels) for maps in small.values())
    found: list[Preview] = []
    for value, maps in small.items():
        own = tuple(steps[value])
        picture = Preview(own, maps, None, _is_whole(played, maps, played.sketches[value]))
        fine = None if picture.is_complete else played.picture(own[0], played.sample, 0, may_run=False)
        more = 0 if fine is None else len(fine[0].pixels) - len(maps.pixels)
        if fine is not None and more <= room:
            room -= more
            picture = Preview(own, fine[0], fine[1], True)
        found.append(picture)
    return found


def _fitting(every: Mapping[int, FeatureMaps]) -> dict[int, FeatureMaps]:
    """The pictures with as many channels as there is room for; of the last ones none where it does not suffice."""
    found: dict[int, FeatureMaps] = {}
    for most in CHANNEL_LIMITS:
        found = {value: _with_channels(maps, most) for value, maps in every.items()}
        if sum(len(maps.pixels) for maps in found.values()) <= MAX_PREVIEW_BYTES:
            return found
    sums = accumulate(len(maps.pixels) for maps in found.values())
    return dict(
        entry for entry, bytes_so_far in zip(found.items(), sums, strict=True) if bytes_so_far <= MAX_PREVIEW_BYTES
    )


def _with_channels(maps: FeatureMaps, most: int) -> FeatureMaps:
    if maps.form != "channels" or len(maps.ranges) <= most:
        return maps
    return replace(maps, ranges=maps.ranges[:most], pixels=maps.pixels[: most * maps.width * maps.height])


def _is_whole(played: Playback, maps: FeatureMaps, sketch: FeatureMaps) -> bool:
    """True if the preview shows everything at full resolution, with the largest outputs."""
    is_as_fine = maps.form not in ("channels", "heat") or maps.sizes == (maps.height, maps.width)
    return is_as_fine and len(maps.ranges) == len(sketch.ranges) and played.sample == 0
