"""Batches run through a sandbox of the model as it would be cut."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeVar

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, ModuleKGError, a_type, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.operators.signature import signature_of
from modulekg_widgets.engine.pruning.cut.derived_state import recomputed_values
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, locate_tensors, slicer
from modulekg_widgets.engine.pruning.cut.transaction import apply_edits
from modulekg_widgets.engine.pruning.importance.calibration import (
    ONE_BATCH_HINT,
    check_batches,
    check_samples,
    is_one_pair,
    model_inputs,
)
from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.decompose import DecomposedLayers, OperatorMode
from modulekg_widgets.engine.torch_runtime.isolation.progress import count_progress
from modulekg_widgets.engine.torch_runtime.isolation.sandbox import Sandbox, run_isolated
from modulekg_widgets.engine.torch_runtime.isolation.shadow import ALL, UNREGISTERED
from modulekg_widgets.engine.torch_runtime.modules import registered_tensors, set_mode
from modulekg_widgets.engine.torch_runtime.private import OpOverload, disable_current_modes
from modulekg_widgets.engine.torch_runtime.pytree import Args, Call, Kwargs, tensors, with_tensors
from modulekg_widgets.engine.torch_runtime.rng import with_isolated_rng
from modulekg_widgets.engine.tracing.unregistered_tensors import BUFFER, named_registered_tensors

Tensor = torch.Tensor
T = TypeVar("T")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
HOLD_OUT_EVERY = 4  # of so many batches or samples one is held out


class TracedCall(NamedTuple):
    """The traced call of a model: its arguments with meta tensors, and the mode."""

    args: Args
    kwargs: Kwargs
    training: bool | None = None

    @classmethod
    def of(cls, call: Call, training: bool | None) -> TracedCall:
        args, kwargs = with_tensors(call, lambda tensor: torch.empty_like(tensor, device="meta"))
        return cls(args, kwargs, training)

    @classmethod
    def of_signature(cls, model: nn.Module) -> TracedCall:
        """The required arguments of forward by its signature, if no trace is known."""
        try:
            every = inspect.signature(model.forward).parameters.values()
        except (TypeError, ValueError):
            every = ()
        wanted = [each for each in every if each.default is each.empty and each.kind in _POSITIONAL]
        return cls((None,) * max(len(wanted), 1), {})


class Batches:
    """The user's batches as calls of the model.

    `once` says that they are gone through once; else, and of a generator, they are kept.
    """

    def __init__(self, model: nn.Module, source: object, traced: TracedCall, once: bool) -> None:
        check_batches(source)
        if isinstance(source, str | nn.Module) or not isinstance(source, Iterable):
            raise CutError(f"recalibrate= is {a_type(source)}: pass a list of batches or a DataLoader")
        self._source = source
        self._call = (traced.args, traced.kwargs)
        self._name = printable(type(model).__name__)
        every = {tensor.device for tensor in _registered_state(walk(model)).values()}
        self._device = next(iter(every)) if len(every) == 1 else None
        once = once and not isinstance(source, Iterator)  # a pass may have to begin anew
        self._calls: list[Call] | None = None if once else [self._copied_call(call) for call in self._read_calls()]
        self._numbers = {id(call): number for number, call in enumerate(self._calls or ())}

    def __iter__(self) -> Iterator[Call]:
        return self._read_calls() if self._calls is None else iter(self._calls)

    def _read_calls(self) -> Iterator[Call]:
        count = 0
        for batch in _items_outside_modes(self._source):
            count += 1
            call = model_inputs(batch, self._call)
            if any(tensor.is_meta for _, tensor in tensors(call)):
                raise CutError(
                    f"batch {count - 1} is on the meta device and has no data: pass batches with real inputs"
                )
            check_samples(call, f"batch {count - 1}")
            yield call
        if not count:
            raise CutError(
                "the batches are empty: pass a list or a DataLoader, because a generator yields its items once"
            )

    def _copied_call(self, call: Call) -> Call:
        """A batch to store: copied, as a loader may reuse its memory."""
        if isinstance(self._source, Sequence):
            return call
        return with_tensors(call, lambda tensor: tensor.detach().clone())

    def split(self) -> tuple[list[Call], list[Call]]:
        """The batches to fit on and those held out; a single batch is split by samples."""
        every = list(self)
        if len(every) > 1:
            out = set(range(HOLD_OUT_EVERY - 1, len(every), HOLD_OUT_EVERY)) or {len(every) - 1}
            return [c for at, c in enumerate(every) if at not in out], [c for at, c in enumerate(every) if at in out]
        sizes = Counter(len(tensor) for _, tensor in tensors(every[0]) if tensor.dim())
        count = sizes.most_common(1)[0][0] if sizes else 0
        if count < 2:
            raise CutError(
                "compensate=True holds out a part of the data, and there is one batch of "
                f"{'one sample' if sizes else 'no tensors'}: pass more batches"
            )
        places = torch.arange(count, device="cpu")
        held = places % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1 if count >= HOLD_OUT_EVERY else places == count - 1

        def part(chosen: Tensor) -> Call:
            own = places[chosen]
            return with_tensors(
                every[0], lambda t: t.index_select(0, own.to(t.device)) if t.dim() and len(t) == count else t
            )

        return [part(~held)], [part(held)]

    def run(self, model: nn.Module, call: Call, number: int | None = None) -> object:
        """The output of a model; raises `CutError` for a batch that does not run."""
        count_progress("batches run")
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
            hint = f"; recalibrate is a pair: {ONE_BATCH_HINT}" if is_one_pair(self._source) else ""
            raise CutError(
                f"{which} does not go through {self._name}: {type(error).__name__}: "
                f"{printable(str(error), 300)}; a batch is what the model takes, or a pair of that and a target{hint}"
            ) from error


def _items_outside_modes(batches: Iterable[object]) -> Iterator[object]:
    """The items, made outside of torch modes, as the user's code may use the model."""
    every = with_isolated_rng(batches)
    end = object()
    while True:
        with disable_current_modes():
            item = next(every, end)
        if item is end:
            return
        yield item


# -------------------------------------------------------------------- sandboxes


class CutSandbox:
    """The modules of a sandbox as a cut leaves them."""

    def __init__(self, walked: Walk, sandbox: Sandbox) -> None:
        self.walked = walked
        self.model = sandbox.model
        self.copies = sandbox.copies
        self.tensors = {held.name: held.tensor for held in named_registered_tensors(walked, walked.all_paths())}
        self.names: dict[int, str] = {}
        for name, tensor in self.tensors.items():
            self.names.setdefault(id(tensor), name)

    def set_value(self, name: str, value: Tensor) -> None:
        """Set the value of a parameter or buffer."""
        self.tensors[name].data = value


def run_as_cut(
    model: nn.Module,
    edits: Edits,
    training: bool,
    run: Callable[[CutSandbox], T],
    values: Mapping[str, NewValue] | None = None,
    step_by_step: bool = False,
    own: int = UNREGISTERED,
) -> T:
    """Run a function on the model as it would be cut, without gradients; the model is unchanged.

    `step_by_step`: recurrent layers as the operators that they are made of. `own`: with `ALL` no memory is the model's.
    Memory: the slices that stay and the buffers. Parameters are not copied, but where forward writes into one.
    Raises `CutError` where the plan or the data of the model do not fit.
    """
    walked = walk(model)
    live = _registered_state(walked)
    for name, tensor in live.items():
        if tensor.is_meta:
            raise CutError(
                f"{printable(name)} is on the meta device and has no data: batches cannot go through the model"
            )
    with disable_current_modes():  # of a sandbox around this one, on which the model itself counts as left
        before = {name: place.tensor.detach() for place in locate_tensors(walked, edits) for name in place.edit.names}
        derived = recomputed_values(walked, edits, values)
    slice_of = slicer(edits, before.__getitem__)

    def prepared(sandbox: Sandbox) -> T:
        sandbox.replaces = True
        copied = walked.with_modules(sandbox.modules)
        set_mode(copied.states, training)
        held = named_registered_tensors(copied, copied.all_paths())
        others = {each.name: each.tensor.detach().clone() if each.kind == BUFFER else each.tensor.detach()
                  for each in held}  # fmt: skip
        apply_edits(copied, sandbox, edits, lambda edit, _: slice_of(edit), others)
        cut = CutSandbox(copied, sandbox)
        for name, new in {**derived, **(values or {})}.items():
            cut.set_value(name, new.tensor.clone(memory_format=torch.preserve_format))
        with torch.inference_mode(False), torch.no_grad(), DecomposedLayers() if step_by_step else nullcontext():
            return run(cut)

    def guarded(sandbox: Sandbox) -> T:
        with _WriteGuard(live.values()):
            return prepared(sandbox)

    if own == ALL:
        return run_isolated(walked.modules, (), prepared, ALL, 0)
    try:
        return run_isolated(walked.modules, (), guarded, UNREGISTERED, 0)
    except _ModelWriteError:
        return run_isolated(walked.modules, (), prepared, ALL, 0)


def _registered_state(walked: Walk) -> dict[str, Tensor]:
    places = walked.all_paths()
    return {
        f"{path}.{name}" if path else name: tensor
        for path, index in places
        for name, tensor in registered_tensors(walked.states[index]).items()
    }


class _ModelWriteError(BaseException):
    """Forward is about to write into the model's memory."""


class _WriteGuard(OperatorMode):
    """Stops a forward pass before it writes into some tensors."""

    def __init__(self, protected: Iterable[Tensor]) -> None:
        super().__init__()
        plain = (tensor for tensor in protected if tensor.layout is torch.strided and tensor.numel())
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in plain}

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        signature = signature_of(func)
        if not signature.is_pure:
            written = [args[at] for at in signature.writes if at < len(args)]
            written += [kwargs[name] for name in signature.writes_by_keyword if name in kwargs]
            for tensor in tensors_in(written):
                if tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() in self._memory:
                    raise _ModelWriteError
        return func(*args, **kwargs)


def run_each(
    batches: Batches, calls: Iterable[Call], model: nn.Module, around: Callable[[], AbstractContextManager[object]]
) -> Iterator[object]:
    """The outputs of the calls, each made inside the context of `around`."""
    for number, call in enumerate(calls):
        with around():
            output = batches.run(model, call, number)
        yield output
