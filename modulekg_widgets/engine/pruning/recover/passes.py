"""Batches of the user's through a model as it would be cut; the model itself is not touched."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, ModuleKGError, shown
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.operators.signature import signature_of
from modulekg_widgets.engine.pruning.cut.derived import renewed_values
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, places, slices
from modulekg_widgets.engine.pruning.cut.transaction import put_in_place
from modulekg_widgets.engine.pruning.importance.calibration import (
    ONE_BATCH,
    check_batches,
    check_samples,
    is_one_pair,
    model_inputs,
)
from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.decompose import OperatorMode, Unfused
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Stage, look
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, LOOSE
from modulekg_widgets.engine.torch_runtime.private import disable_current_modes
from modulekg_widgets.engine.torch_runtime.rng import drawn_apart
from modulekg_widgets.engine.torch_runtime.state import registered_tensors, set_mode
from modulekg_widgets.engine.torch_runtime.structure import tensors, with_tensors
from modulekg_widgets.engine.tracing.unregistered_tensors import BUFFER, held_tensors

Tensor = torch.Tensor
Call = tuple[tuple[Any, ...], dict[str, Any]]
T = TypeVar("T")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
HELD_OUT = 4  # of so many batches or samples one is held out


class TracedCall(NamedTuple):
    """How a model was called for its trace: the structure of its arguments with tensors without data, and the mode."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    training: bool | None = None

    @classmethod
    def of(cls, call: Call, training: bool | None) -> TracedCall:
        args, kwargs = with_tensors(call, lambda tensor: torch.empty_like(tensor, device="meta"))
        return cls(args, kwargs, training)

    @classmethod
    def of_signature(cls, model: nn.Module) -> TracedCall:
        """What forward must be given by its signature, where no trace tells."""
        try:
            every = inspect.signature(model.forward).parameters.values()
        except (TypeError, ValueError):
            every = ()
        wanted = [each for each in every if each.default is each.empty and each.kind in _POSITIONAL]
        return cls((None,) * max(len(wanted), 1), {})


class Batches:
    """What the user gave as batches, as calls of the model.

    `once` says that they are gone through once; else, and of a generator, they are kept.
    """

    def __init__(self, model: nn.Module, given: Any, traced: TracedCall, once: bool) -> None:
        check_batches(given)
        if isinstance(given, str | nn.Module) or not isinstance(given, Iterable):
            raise CutError(f"recalibrate= is a {shown(type(given).__name__)}: pass a list of batches or a DataLoader")
        self._given = given
        self._call = (traced.args, traced.kwargs)
        self._name = shown(type(model).__name__)
        every = {tensor.device for tensor in _state(walk(model)).values()}
        self._device = next(iter(every)) if len(every) == 1 else None
        once = once and not isinstance(given, Iterator)  # a pass may have to begin anew
        self._kept: list[Call] | None = None if once else [self._own(call) for call in self._read()]
        self._numbers = {id(call): number for number, call in enumerate(self._kept or ())}

    def __iter__(self) -> Iterator[Call]:
        return self._read() if self._kept is None else iter(self._kept)

    def _read(self) -> Iterator[Call]:
        count = 0
        for batch in _outside_of_modes(self._given):
            count += 1
            call = model_inputs(batch, self._call)
            if any(tensor.is_meta for _, tensor in tensors(call)):
                raise CutError(
                    f"batch {count - 1} is on the meta device and has no data: pass batches with real inputs"
                )
            check_samples(call, f"batch {count - 1}")
            yield call
        if not count:
            raise CutError("the batches are empty: pass a list or a DataLoader, for a generator gives its items once")

    def _own(self, call: Call) -> Call:
        """A batch to keep: a loader may fill the same memory anew for each, the items of a sequence stay."""
        if isinstance(self._given, Sequence):
            return call
        return with_tensors(call, lambda tensor: tensor.detach().clone())

    def split(self) -> tuple[list[Call], list[Call]]:
        """Those to learn from, and those held out; of a single batch some of the samples."""
        every = list(self)
        if len(every) > 1:
            out = set(range(HELD_OUT - 1, len(every), HELD_OUT)) or {len(every) - 1}
            return [c for at, c in enumerate(every) if at not in out], [c for at, c in enumerate(every) if at in out]
        sizes = Counter(len(tensor) for _, tensor in tensors(every[0]) if tensor.dim())
        count = sizes.most_common(1)[0][0] if sizes else 0
        if count < 2:
            raise CutError(
                "compensate=True holds out a part of the data, and there is one batch of "
                f"{'one sample' if sizes else 'no tensors'}: pass more batches"
            )
        places = torch.arange(count, device="cpu")
        held = places % HELD_OUT == HELD_OUT - 1 if count >= HELD_OUT else places == count - 1

        def part(chosen: Tensor) -> Call:
            own = places[chosen]
            return with_tensors(
                every[0], lambda t: t.index_select(0, own.to(t.device)) if t.dim() and len(t) == count else t
            )

        return [part(~held)], [part(held)]

    def run(self, model: nn.Module, call: Call, number: int | None = None) -> Any:
        """The output of a model; raises `CutError` for a batch that does not go through."""
        number = self._numbers.get(id(call), number)
        which = "a batch" if number is None else f"batch {number}"

        def copy(tensor: Tensor) -> Tensor:
            return tensor.detach().clone().to(tensor.device if self._device is None else self._device)

        args, kwargs = with_tensors(call, copy)
        try:
            return model(*args, **kwargs)
        except ModuleKGError:
            raise
        except Exception as error:
            hint = f"; recalibrate is a pair: {ONE_BATCH}" if is_one_pair(self._given) else ""
            raise CutError(
                f"{which} does not go through {self._name}: {type(error).__name__}: "
                f"{shown(str(error), 300)}; a batch is what the model takes, or a pair of that and a target{hint}"
            ) from error


def _outside_of_modes(given: Iterable[Any]) -> Iterator[Any]:
    """The items, made by code of the user's that may well use the model."""
    every = drawn_apart(given)
    end = object()
    while True:
        with disable_current_modes():
            item = next(every, end)
        if item is end:
            return
        yield item


# -------------------------------------------------------------------- stages


class CutStage:
    """The modules of a shadow as a cut leaves them: slices and buffers are its own, other parameters the model's."""

    def __init__(self, walked: Walk, stage: Stage) -> None:
        self.walked = walked
        self.model = stage.model
        self.copies = stage.copies
        self.tensors = {held.name: held.tensor for held in held_tensors(walked, walked.places())}
        self.names: dict[int, str] = {}
        for name, tensor in self.tensors.items():
            self.names.setdefault(id(tensor), name)

    def put(self, name: str, value: Tensor) -> None:
        """Give a parameter or buffer another value."""
        self.tensors[name].data = value


def on_stage(
    model: nn.Module,
    edits: Edits,
    training: bool,
    run: Callable[[CutStage], T],
    values: Mapping[str, NewValue] | None = None,
    step_by_step: bool = False,
    own: int = LOOSE,
) -> T:
    """What `run` makes of the model as it would be cut, without gradients; the model stays as it is.

    `step_by_step`: recurrent layers as the operators that they are made of. `own`: with `ALL` no memory is the model's.
    Memory: the slices that stay and the buffers. Parameters are not copied, but where forward writes into one.
    Raises `CutError` where the plan or the data of the model do not fit.
    """
    walked = walk(model)
    live = _state(walked)
    for name, tensor in live.items():
        if tensor.is_meta:
            raise CutError(f"{shown(name)} is on the meta device and has no data: batches cannot go through the model")
    with disable_current_modes():  # of a stage around this one, on which the model itself counts as left
        before = {name: place.tensor.detach() for place in places(walked, edits) for name in place.edit.names}
        derived = renewed_values(walked, edits, values)
    slice_of = slices(edits, before.__getitem__)

    def prepared(stage: Stage) -> T:
        stage.replaces = True
        copied = walked.with_modules(stage.modules)
        set_mode(copied.states, training)
        held = held_tensors(copied, copied.places())
        others = {each.name: each.tensor.detach().clone() if each.kind == BUFFER else each.tensor.detach()
                  for each in held}  # fmt: skip
        put_in_place(copied, stage, edits, lambda edit, _: slice_of(edit), others)
        cut = CutStage(copied, stage)
        for name, new in {**derived, **(values or {})}.items():
            cut.put(name, new.tensor.clone(memory_format=torch.preserve_format))
        with torch.inference_mode(False), torch.no_grad(), Unfused() if step_by_step else nullcontext():
            return run(cut)

    def guarded(stage: Stage) -> T:
        with _NoWrites(live.values()):
            return prepared(stage)

    if own == ALL:
        return look(walked.modules, (), prepared, ALL, 0)
    try:
        return look(walked.modules, (), guarded, LOOSE, 0)
    except _WouldWriteError:
        return look(walked.modules, (), prepared, ALL, 0)


def _state(walked: Walk) -> dict[str, Tensor]:
    places = walked.places()
    return {
        f"{path}.{name}" if path else name: tensor
        for path, index in places
        for name, tensor in registered_tensors(walked.states[index]).items()
    }


class _WouldWriteError(BaseException):
    """Forward is about to write into memory of the model; no `Exception`, so that its code does not catch it."""


class _NoWrites(OperatorMode):
    """Stops a forward before it writes into the memory of some tensors."""

    def __init__(self, kept: Iterable[Tensor]) -> None:
        super().__init__()
        plain = (tensor for tensor in kept if tensor.layout is torch.strided and tensor.numel())
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in plain}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        signature = signature_of(func)
        if not signature.is_pure:
            written = [args[at] for at in signature.writes if at < len(args)]
            written += [kwargs[name] for name in signature.writes_named if name in kwargs]
            for tensor in tensors_in(written):
                if tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in self._memory:
                    raise _WouldWriteError
        return func(*args, **kwargs)


def each_run(
    batches: Batches, calls: Iterable[Call], model: nn.Module, around: Callable[[], AbstractContextManager[Any]]
) -> Iterator[Any]:
    """The outputs of the calls, each made inside of the context that `around` makes."""
    for number, call in enumerate(calls):
        with around():
            output = batches.run(model, call, number)
        yield output
