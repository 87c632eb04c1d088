"""What an uncut model reads along the axes that are cut, and what its layers give: in one pass of the batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, shown
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit
from modulekg_widgets.engine.pruning.recover.layer_calls import LayerCall, LayerWatch, rows
from modulekg_widgets.engine.pruning.recover.mixing import Moments, wide
from modulekg_widgets.engine.pruning.recover.passes import Batches, CutStage, on_stage
from modulekg_widgets.engine.torch_runtime.structure import tensors
from modulekg_widgets.engine.tracing.held import PARAMETER, held_tensors

Tensor = torch.Tensor
MOST_WIDE = 4096  # values that a layer reads at once: the matrix to be solved has as many rows
MOST_OUTPUTS = 1 << 20  # elements of one output of the model that are compared


@dataclass(eq=False, slots=True)
class Reader:
    """A layer that reads what is cut, and what it read and gave before."""

    name: str  # of its weight
    reads: int  # the dimensions of the weight
    makes: int
    bias: str | None  # None where it has none of its own
    edit: TensorEdit
    group: int  # layers that read the same value have the same
    moments: Moments  # of what it read
    mean: Tensor  # the sum of its outputs, divided at the end
    count: int = 0
    calls: int = 0  # in one pass
    outputs: list[Tensor] = field(default_factory=list)  # of held-out data, in the order of the calls
    square: float = 0.0  # of these
    why: str = ""  # why it cannot be compensated


class Reference:
    """The layers that read what is cut, and what the uncut model gives; `held` are the batches that are held out."""

    def __init__(self, model: nn.Module, edits: Edits, training: bool, batches: Batches) -> None:
        self._by_name = {name: edit for edit in edits.tensors for name in edit.names}
        self.full = parameters_of_model(model)
        self.fit, self.held = batches.split()
        self.readers: dict[str, Reader] = {}
        self.results: list[list[Tensor]] = []
        self._last: tuple[Any, Reader, Tensor] | None = None  # with the input, so that its memory is not taken again
        on_stage(model, Edits(()), training, lambda stage: self._run(stage, batches))

    def _run(self, stage: CutStage, batches: Batches) -> None:
        own = {name: stage.tensors[name] for name in self.full}
        watch = LayerWatch(own, self._learn)
        for number, call in enumerate(self.fit):
            for reader in self.readers.values():
                reader.calls = 0
            with watch:
                batches.run(stage.model, call, number)
            self._last = None
        for reader in self.readers.values():
            _judge(reader, watch.uses)
        comparing = LayerWatch(own, self._keep)
        for call in self.held:
            with comparing:
                output = batches.run(stage.model, call)
            self.results.append(comparable(output))

    def _learn(self, call: LayerCall) -> None:
        edit = self._by_name.get(call.name)
        if edit is None or len(edit.kept.get(call.reads, ())) in (0, edit.shape[call.reads]):
            return
        size = edit.shape[call.reads]
        key = (call.x.data_ptr(), call.x.shape, call.x.stride(), call.x_at)
        known = self._last[1] if self._last is not None and self._last[0] == key else None
        reader = self.readers.get(call.name)
        if reader is None:
            reader = self.readers[call.name] = self._new(call, edit, known)
        if call.x.shape[call.x_at] != size or edit.values is not None:
            reader.why = "it reads several groups, each a part of the axis"
        elif size > MOST_WIDE:
            reader.why = f"it reads {size} values at once, more than {MOST_WIDE}"
        elif known is None or reader.moments is not known.moments:
            reader.moments.add(rows(call.x, call.x_at))
        self._last = key, reader, call.x
        outputs = _kept_rows(call, reader)
        reader.mean += outputs.to(reader.mean.dtype).sum(0)
        reader.count += len(outputs)
        reader.calls += 1

    def _new(self, call: LayerCall, edit: TensorEdit, known: Reader | None) -> Reader:
        size = edit.shape[call.reads]
        moments = Moments(size if size <= MOST_WIDE else 0, call.x) if known is None else known.moments
        group = len(self.readers) if known is None else known.group
        kept = edit.kept.get(call.makes, range(edit.shape[call.makes]))
        mean = torch.zeros(len(kept), dtype=wide(call.x), device=call.x.device)
        return Reader(call.name, call.reads, call.makes, call.bias, edit, group, moments, mean)

    def _keep(self, call: LayerCall) -> None:
        reader = self.readers.get(call.name)
        if reader is not None and not reader.why:
            outputs = _kept_rows(call, reader).clone()
            reader.outputs.append(outputs)
            reader.square += float(outputs.to(wide(outputs)).square().sum())


def _judge(reader: Reader, uses: Mapping[str, set[str]]) -> None:
    """Say why a layer cannot be compensated, and forget a bias that is not its alone."""
    if reader.bias is not None and len(uses[reader.bias]) > 1:
        reader.bias = None
    if len(uses[reader.name]) > 1:
        reader.why = "its weight is read in another way too"
    finite = bool(reader.moments.products.isfinite().all()) and bool(reader.mean.isfinite().all())
    if not reader.why and not finite:
        raise CutError(f"what {shown(reader.name)} reads or gives is not finite: look for NaN in the batches")
    reader.mean /= max(reader.count, 1)


def _kept_rows(call: LayerCall, reader: Reader) -> Tensor:
    """The outputs that stay."""
    found = rows(call.out, call.out_at)
    kept = reader.edit.kept.get(call.makes)
    return found if kept is None else found.index_select(1, torch.from_numpy(kept).to(found.device))


def parameters_of_model(model: nn.Module) -> dict[str, Tensor]:
    """The parameters as they are now, by each of their names."""
    walked = walk(model)
    held = held_tensors(walked, walked.places())
    return {each.name: each.tensor.detach() for each in held if each.kind == PARAMETER}


def comparable(output: Any) -> list[Tensor]:
    """Some of the numbers of each tensor that a model gives."""
    found = (tensor.reshape(-1) for _, tensor in tensors(output) if tensor.is_floating_point())
    return [flat[:: -(-len(flat) // MOST_OUTPUTS) or 1].clone() for flat in found]
