"""The uncut model beside the cut one: the inputs and outputs of layers that read a cut axis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.operators.arguments import Arguments
from modulekg_widgets.engine.operators.signature import signature_of
from modulekg_widgets.engine.operators.traits import CONVOLUTION, LINEAR, MATRIX_PRODUCT, VECTOR_PRODUCT, traits_of
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit
from modulekg_widgets.engine.pruning.recover.sandbox_runs import Batches, CutSandbox
from modulekg_widgets.engine.torch_runtime.caches import tensors_in
from modulekg_widgets.engine.torch_runtime.decompose import OperatorMode
from modulekg_widgets.engine.torch_runtime.private import OpOverload
from modulekg_widgets.engine.torch_runtime.pytree import Args, Call, Kwargs, tensors
from modulekg_widgets.engine.tracing.unregistered_tensors import PARAMETER, named_registered_tensors

# -------------------- Layer calls as they run: the weight, the dimension it reads along, the input and the output


Tensor = torch.Tensor
OTHER_USE = "another operator, "
MAX_ROWS = 1 << 13  # of one call: samples and positions that are looked at


class Operands(NamedTuple):
    """The tensors of a layer's call, and their channel dimensions."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    reads: int  # the dimension of the weight along which it reads
    makes: int  # the one along which it makes its output
    x_at: int  # the channels of the input
    out_at: int  # and of the output


class LayerCall(NamedTuple):
    """One call of a layer whose weight is a whole parameter."""

    name: str  # of the weight
    bias: str | None  # the parameter that is added
    reads: int  # dimensions of the parameter
    makes: int
    x: Tensor
    x_at: int
    out: Tensor
    out_at: int
    rerun: Callable[[Tensor], Tensor]  # the output with another value of the parameter


class LayerCallMode(OperatorMode):
    """Reports the calls of layers with these parameters, and records other uses of them."""

    def __init__(self, tensors: Mapping[str, Tensor], on_call: Callable[[LayerCall], None]) -> None:
        super().__init__()
        self._on_call = on_call
        self._tensors = tensors
        self._names = {t.data_ptr(): name for name, t in tensors.items() if t.numel() and t.layout is torch.strided}
        self.uses: dict[str, set[str]] = {}  # by the name of a parameter

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        known = [name for tensor in tensors_in([*args, *kwargs.values()]) if (name := self._name(tensor))]
        if not known or signature_of(func).views is not None:
            return out
        operands = _operands(func, args, kwargs)
        call = None if operands is None else self._call(func, args, kwargs, operands, out)
        for name in known:
            use = f"{OTHER_USE}{func}"
            if call is not None and name in (call.name, call.bias):
                use = f"reads {call.reads}" if name == call.name else f"the bias of {call.name}"
            self.uses.setdefault(name, set()).add(use)
        if call is not None:
            self._on_call(call)
        return out

    def _name(self, tensor: Tensor) -> str | None:
        return self._names.get(tensor.data_ptr()) if tensor.layout is torch.strided and tensor.numel() else None

    def _call(self, func: OpOverload, args: Args, kwargs: Kwargs, operands: Operands, out: object) -> LayerCall | None:
        weight = operands.weight
        name = self._name(weight)
        if name is None or not isinstance(out, Tensor):
            return None
        own = self._tensors[name]
        reads, makes = (_same_dimension(weight, at, own) for at in (operands.reads, operands.makes))
        if reads is None or makes is None or weight.numel() != own.numel() or weight.dtype != own.dtype:
            return None
        bias = None if operands.bias is None or operands.bias.dim() != 1 else self._name(operands.bias)

        def again(value: Tensor) -> Tensor:
            other = torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device).copy_(value)
            put = other.as_strided(weight.shape, weight.stride())
            changed = [put if each is weight else each for each in args]
            return func(*changed, **{key: put if each is weight else each for key, each in kwargs.items()})

        return LayerCall(name, bias, reads, makes, operands.x, operands.x_at, out, operands.out_at, again)


def _same_dimension(view: Tensor, at: int, own: Tensor) -> int | None:
    """The dimension of a tensor that equals a dimension of its view."""
    size, stride = view.shape[at], view.stride(at)
    dims = [dim for dim in range(own.dim()) if (own.shape[dim], own.stride(dim)) == (size, stride)]
    return dims[0] if len(dims) == 1 else None


def _operands(func: OpOverload, args: Args, kwargs: Kwargs) -> Operands | None:
    kind = traits_of(func).layer
    if kind not in (CONVOLUTION, LINEAR, MATRIX_PRODUCT, VECTOR_PRODUCT):
        return None
    call = Arguments(func, args, kwargs)
    if kind == CONVOLUTION:
        return _of_convolution(call)
    if kind == LINEAR:
        return (
            Operands(call["input"], call["weight"], call["bias"], -1, 0, -1, -1) if call["weight"].dim() == 2 else None
        )
    operands = [each for each in args if isinstance(each, Tensor)]
    if len(operands) < 2 or call.get("beta", 1) != 1 or call.get("alpha", 1) != 1:
        return None
    left, right = operands[-2:]
    bias = operands[0] if len(operands) == 3 else None
    if kind == VECTOR_PRODUCT:
        return Operands(right, left, bias, 1, 0, -1, -1)
    if right.dim() == 2 and left.dim() >= 2:
        return Operands(left, right, bias, 0, 1, -1, -1)
    return None


def _of_convolution(call: Arguments) -> Operands | None:
    if not all(map(call.has, ("input", "weight", "bias", "groups", "transposed"))) or call["groups"] != 1:
        return None
    x, weight = call["input"], call["weight"]
    channels = x.dim() - (weight.dim() - 2) - 1
    reads, makes = (0, 1) if call["transposed"] else (1, 0)
    return Operands(x, weight, call["bias"], reads, makes, channels, channels)


def sample_rows(tensor: Tensor, at: int) -> Tensor:
    """(rows, channels): the entries along a dimension, at a fixed sample of positions."""
    moved = tensor.movedim(at, -1)
    flat = moved.reshape(-1, moved.shape[-1])
    step = -(-len(flat) // MAX_ROWS)
    return flat if step == 1 else flat[:: step | 1]  # odd, so that not one column of an image alone is met


# ----------------------------------------


MAX_INPUTS = 4096  # values that a layer reads at once: the matrix to be solved has as many rows
MAX_OUTPUT_ELEMENTS = 1 << 20  # elements of one output of the model that are compared


@dataclass(eq=False, slots=True)
class ReadingLayer:
    """A layer that reads a cut axis."""

    name: str  # of its weight
    reads: int  # the dimensions of the weight
    makes: int
    bias: str | None  # None where it has none of its own
    edit: TensorEdit
    group: int  # layers that read the same value have the same
    calls: int = 0  # in one pass
    reason: str = ""  # why it cannot be compensated


class LayerValues(NamedTuple):
    """The input and the output of one layer call, a row for each sample and position."""

    input: Tensor
    output: Tensor


class StopForward(BaseException):
    """Ends a forward pass once all needed layers have run."""


class UncutReference:
    """The uncut model in a sandbox of its own."""

    def __init__(
        self, sandbox: CutSandbox, full: Mapping[str, Tensor], edits: Edits, batches: Batches, first: Call
    ) -> None:
        self.full = full
        self._sandbox, self._batches = sandbox, batches
        self._by_name = {name: edit for edit in edits.tensors for name in edit.names}
        self._last: tuple[tuple[object, ...], int, Tensor] | None = (
            None  # with the input, so that its memory is not taken again
        )
        self.readers: dict[str, ReadingLayer] = {}
        watch = LayerCallMode({name: sandbox.tensors[name] for name in self.full}, self._add_call)
        with watch:
            batches.run(sandbox.model, first, 0)
        self._last = None
        for reader in self.readers.values():
            if reader.bias is not None and len(watch.uses[reader.bias]) > 1:
                reader.bias = None
            if len(watch.uses[reader.name]) > 1:
                reader.reason = "its weight is read in another way too"
        self._add_others(watch.uses)

    def _add_call(self, call: LayerCall) -> None:
        edit = self._by_name.get(call.name)
        if edit is None or len(edit.kept.get(call.reads, ())) in (0, edit.shape[call.reads]):
            return
        key = (call.x.data_ptr(), call.x.shape, call.x.stride(), call.x_at)
        same = self._last is not None and self._last[0] == key
        reader = self.readers.get(call.name)
        if reader is None:
            group = self._last[1] if same and self._last is not None else len(self.readers)
            reader = ReadingLayer(call.name, call.reads, call.makes, call.bias, edit, group)
            self.readers[call.name] = reader
        size = edit.shape[call.reads]
        if call.x.shape[call.x_at] != size or edit.values is not None or edit.gain_of is not None:
            reader.reason = "it reads several groups, each a part of the axis"
        elif size > MAX_INPUTS:
            reader.reason = f"it reads {size} values at once, more than {MAX_INPUTS}"
        self._last = key, reader.group, call.x
        reader.calls += 1

    def _add_others(self, uses: Mapping[str, Collection[str]]) -> None:
        """Add weights that read a cut axis but cannot be fitted, with the reason."""
        for name, edit in self._by_name.items():
            reads = [at for at, kept in edit.kept.items() if at not in edit.produced and len(kept) < edit.shape[at]]
            is_first = name in self.full and name == next(each for each in edit.names if each in self.full)
            if is_first and reads and len(edit.shape) > 1 and self.readers.keys().isdisjoint(edit.names):
                used = " and ".join(sorted(use.removeprefix(OTHER_USE) for use in uses.get(name, ())))
                why = f"not fitted, read by {used}" if used else "it does not run"
                self.readers[name] = ReadingLayer(name, reads[0], 0, None, edit, len(self.readers), reason=why)

    def layer_values(self, readers: Collection[ReadingLayer], call: Call) -> dict[str, list[LayerValues]]:
        """The inputs and remaining outputs of these layers for a batch."""
        values: dict[str, list[LayerValues]] = {reader.name: [] for reader in readers}
        edits = {reader.name: reader.edit for reader in readers}

        def see(each: LayerCall) -> None:
            outputs, kept = sample_rows(each.out, each.out_at), edits[each.name].kept.get(each.makes)
            if kept is not None:
                outputs = outputs.index_select(1, torch.from_numpy(kept).to(outputs.device))
            values[each.name].append(LayerValues(sample_rows(each.x, each.x_at), outputs))
            if all(len(values[reader.name]) >= reader.calls for reader in readers):
                raise StopForward

        try:
            with LayerCallMode({name: self._sandbox.tensors[name] for name in values}, see):
                self._batches.run(self._sandbox.model, call)
        except StopForward:
            pass
        return values

    def output(self, call: Call) -> list[Tensor]:
        """The model's output for a batch."""
        return comparable_outputs(self._batches.run(self._sandbox.model, call))


def parameters_of_model(model: nn.Module) -> dict[str, Tensor]:
    """The present parameters by each of their names."""
    walked = walk(model)
    held = named_registered_tensors(walked, walked.all_paths())
    return {each.name: each.tensor.detach() for each in held if each.kind == PARAMETER}


def comparable_outputs(output: object) -> list[Tensor]:
    """A sample of the entries of each floating-point output."""
    outputs = (tensor.reshape(-1) for _, tensor in tensors(output) if tensor.is_floating_point())
    return [flat[:: -(-len(flat) // MAX_OUTPUT_ELEMENTS) or 1].clone() for flat in outputs]
