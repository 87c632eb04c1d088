"""The uncut model beside the cut one: the layers that read what is cut, and what they read and give."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.pruning.cut.edits import Edits, TensorEdit
from modulekg_widgets.engine.pruning.recover.layer_calls import OTHER, LayerCall, LayerWatch, rows
from modulekg_widgets.engine.pruning.recover.passes import Batches, Call, CutStage
from modulekg_widgets.engine.torch_runtime.structure import tensors
from modulekg_widgets.engine.tracing.held import PARAMETER, held_tensors

Tensor = torch.Tensor
MOST_WIDE = 4096  # values that a layer reads at once: the matrix to be solved has as many rows
MOST_OUTPUTS = 1 << 20  # elements of one output of the model that are compared


@dataclass(eq=False, slots=True)
class Reader:
    """A layer that reads what is cut."""

    name: str  # of its weight
    reads: int  # the dimensions of the weight
    makes: int
    bias: str | None  # None where it has none of its own
    edit: TensorEdit
    group: int  # layers that read the same value have the same
    calls: int = 0  # in one pass
    why: str = ""  # why it cannot be compensated


class Seen(NamedTuple):
    """What one call of a layer read and gave, a row for each sample and position."""

    read: Tensor
    gave: Tensor


class Enough(BaseException):
    """All that is wanted of a pass has run; no `Exception`, so that the model's code does not catch it."""


class Reference:
    """The uncut model on a stage of its own."""

    def __init__(
        self, stage: CutStage, full: Mapping[str, Tensor], edits: Edits, batches: Batches, first: Call
    ) -> None:
        self.full = full
        self._stage, self._batches = stage, batches
        self._by_name = {name: edit for edit in edits.tensors for name in edit.names}
        self._last: tuple[Any, int, Tensor] | None = None  # with the input, so that its memory is not taken again
        self.readers: dict[str, Reader] = {}
        watch = LayerWatch({name: stage.tensors[name] for name in self.full}, self._learn)
        with watch:
            batches.run(stage.model, first, 0)
        self._last = None
        for reader in self.readers.values():
            if reader.bias is not None and len(watch.uses[reader.bias]) > 1:
                reader.bias = None
            if len(watch.uses[reader.name]) > 1:
                reader.why = "its weight is read in another way too"
        self._add_others(watch.uses)

    def _learn(self, call: LayerCall) -> None:
        edit = self._by_name.get(call.name)
        if edit is None or len(edit.kept.get(call.reads, ())) in (0, edit.shape[call.reads]):
            return
        key = (call.x.data_ptr(), call.x.shape, call.x.stride(), call.x_at)
        same = self._last is not None and self._last[0] == key
        reader = self.readers.get(call.name)
        if reader is None:
            group = self._last[1] if same and self._last is not None else len(self.readers)
            reader = Reader(call.name, call.reads, call.makes, call.bias, edit, group)
            self.readers[call.name] = reader
        size = edit.shape[call.reads]
        if call.x.shape[call.x_at] != size or edit.values is not None or edit.gain_of is not None:
            reader.why = "it reads several groups, each a part of the axis"
        elif size > MOST_WIDE:
            reader.why = f"it reads {size} values at once, more than {MOST_WIDE}"
        self._last = key, reader.group, call.x
        reader.calls += 1

    def _add_others(self, uses: Mapping[str, Collection[str]]) -> None:
        """The other weights that read what is cut, as those of convolutions in groups: no call shows what they read."""
        for name, edit in self._by_name.items():
            reads = [at for at, kept in edit.kept.items() if at not in edit.produced and len(kept) < edit.shape[at]]
            is_first = name in self.full and name == next(each for each in edit.names if each in self.full)
            if is_first and reads and len(edit.shape) > 1 and self.readers.keys().isdisjoint(edit.names):
                used = " and ".join(sorted(use.removeprefix(OTHER) for use in uses.get(name, ())))
                why = f"not fitted, read by {used}" if used else "it does not run"
                self.readers[name] = Reader(name, reads[0], 0, None, edit, len(self.readers), why=why)

    def seen(self, readers: Collection[Reader], call: Call) -> dict[str, list[Seen]]:
        """What these layers read and give for a batch, their outputs as far as they stay."""
        found: dict[str, list[Seen]] = {reader.name: [] for reader in readers}
        edits = {reader.name: reader.edit for reader in readers}

        def see(each: LayerCall) -> None:
            gave, kept = rows(each.out, each.out_at), edits[each.name].kept.get(each.makes)
            if kept is not None:
                gave = gave.index_select(1, torch.from_numpy(kept).to(gave.device))
            found[each.name].append(Seen(rows(each.x, each.x_at), gave))
            if all(len(found[reader.name]) >= reader.calls for reader in readers):
                raise Enough

        try:
            with LayerWatch({name: self._stage.tensors[name] for name in found}, see):
                self._batches.run(self._stage.model, call)
        except Enough:
            pass
        return found

    def output(self, call: Call) -> list[Tensor]:
        """What the whole model gives for a batch."""
        return comparable(self._batches.run(self._stage.model, call))


def parameters_of_model(model: nn.Module) -> dict[str, Tensor]:
    """The parameters as they are now, by each of their names."""
    walked = walk(model)
    held = held_tensors(walked, walked.places())
    return {each.name: each.tensor.detach() for each in held if each.kind == PARAMETER}


def comparable(output: Any) -> list[Tensor]:
    """Some of the numbers of each tensor that a model gives."""
    found = (tensor.reshape(-1) for _, tensor in tensors(output) if tensor.is_floating_point())
    return [flat[:: -(-len(flat) // MOST_OUTPUTS) or 1].clone() for flat in found]
