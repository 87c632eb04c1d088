"""The parts of a receipt: how each kind of model state is written, undone and restored."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, a_type, printable
from modulekg_widgets.engine.identity.walk import Walk
from modulekg_widgets.engine.pruning.cut.derived_state import DerivedState, recompute_buffers
from modulekg_widgets.engine.pruning.cut.edits import (
    AttributeTarget,
    Edits,
    NewValue,
    TensorEdit,
    TensorTarget,
    is_plain_object,
    locate_attributes,
    locate_tensors,
    slicer,
    tensors_with_names,
)
from modulekg_widgets.engine.pruning.cut.notes import KEY, TEXT, CutNote, configurations
from modulekg_widgets.engine.pruning.cut.receipt import ReceiptPart, Way
from modulekg_widgets.engine.pruning.cut.tensor_cuts import CutTensor
from modulekg_widgets.engine.pruning.cut.transaction import Items, Snapshot, Write, item_write
from modulekg_widgets.engine.torch_runtime.modules import Attributes, module_state, registered_tensors
from modulekg_widgets.engine.torch_runtime.private import BUFFERS, FLAT_WEIGHT_REFS, FLAT_WEIGHTS
from modulekg_widgets.engine.tracing.unregistered_tensors import (
    attribute_swaps,
    named_registered_tensors,
    rebuild_containers,
)

Slots = list[tuple[Items, Any]]  # where an object stands: a dictionary or list, and the key

# torch.nn.utils.prune and the old spectral_norm keep weight_orig, the old weight_norm weight_v, each beside a `weight`
MAX_DEPTH = 4  # plain objects in each other
_SOURCE_SUFFIXES = ("_orig", "_v")


def relocate_tensors(walked: Walk, before: Iterable[TensorTarget], edits: Iterable[TensorEdit]) -> list[TensorTarget]:
    """The present tensors of a receipt; raises `CutError` if the model was changed otherwise."""
    targets = locate_tensors(walked, Edits(tuple(edits)))
    for target, old in zip(targets, before, strict=True):
        # a module may put another buffer in place of its own; another Parameter is none that an optimizer knows
        if isinstance(old.tensor, nn.Parameter) and target.tensor is not old.tensor:
            raise _replaced_parameter_error(target.edit.names[0])
    return targets


def _replaced_parameter_error(name: str) -> CutError:
    return CutError(
        f"{printable(name)} is no longer the Parameter that it was when the receipt was made, as after "
        "load_state_dict(assign=True): put that one back, or plan again"
    )


class EditedTensors(ReceiptPart):
    """Parameters and buffers that are cut in place; `values` are new values by name.

    Those that are `derived` from others are renewed once more where training has changed these since.
    """

    def __init__(
        self,
        targets: Iterable[TensorTarget],
        values: Mapping[str, NewValue] | None = None,
        derived: Sequence[DerivedState] = (),
    ) -> None:
        self._derived = derived
        self._cuts = [(target, CutTensor.of(target.tensor, target.edit)) for target in targets]
        self._values = {target.edit.names[0]: (values or {})[name] for target, _ in self._cuts
                        for name in target.edit.names if name in (values or {})}  # fmt: skip
        self._by_name = {name: (target, cut) for target, cut in self._cuts for name in target.edit.names}
        edits = Edits(tuple(target.edit for target, _ in self._cuts))
        slice_of = slicer(edits, lambda name: self._by_name[name][1].before.data)
        self._gains = {target.edit.names[0]: slice_of(target.edit) for target, _ in self._cuts if target.edit.gain_of}

    def cut(self) -> Iterator[Write]:
        return (self._write(target, cut) for target, cut in self._cuts)

    def _write(self, target: TensorTarget, cut: CutTensor) -> Write:
        new = self._values.get(target.edit.names[0])
        made = self._gains.get(target.edit.names[0]) if new is None else new.tensor
        with torch.inference_mode(target.tensor.is_inference()):  # in which the caller may be
            kept = None if made is None else made.clone(memory_format=torch.preserve_format)
        return cut.cut(target.tensor, kept)

    def cut_one_by_one(self) -> Iterator[Write]:
        """The writes of `cut`, made one at a time so that the old memory is freed in between."""
        for target, _ in self._cuts:  # whoever lets go must hold nothing by name
            for name in target.edit.names:
                self._by_name.pop(name, None)
        waiting, self._cuts = self._cuts[::-1], []
        while waiting:
            yield self._write(*waiting.pop())

    def undo(self, walked: Walk) -> Iterator[Write]:
        for target, cut, now in self._current_tensors(walked):
            yield cut.undo(target.tensor)
            if now is not target.tensor:
                yield from _buffer_writes(target, target.tensor)

    def restore(self, walked: Walk) -> Iterator[Write]:
        now = list(self._current_tensors(walked))
        back = {target.edit.names: cut.restore(target.tensor, self._without_correction(target, cut))
                for target, cut, own in now if own is target.tensor}  # fmt: skip
        again = self._recomputed_buffers({name: write.after.data for names, write in back.items() for name in names})
        for target, cut, own in now:
            new = next((again[name] for name in target.edit.names if name in again), None)
            if own is not target.tensor:  # a buffer that its module has put another in place of
                yield from _buffer_writes(target, target.edit.scatter(own.data, cut.before.data))
            elif new is None:
                yield back[target.edit.names]
            else:
                write = back[target.edit.names]
                yield replace(write, after=write.after._replace(data=new.tensor))

    def _recomputed_buffers(self, restored: Mapping[str, torch.Tensor]) -> dict[str, NewValue]:
        """The derived buffers for restored weights, if these or the buffers were trained since."""
        before = self.before()

        def is_trained(name: str) -> bool:
            return name in restored and not torch.equal(restored[name], before[name])

        every = (each for each in self._derived if restored.keys() >= {*each.weights, *each.buffers})
        trained = [each for each in every if any(map(is_trained, (*each.weights, *each.buffers)))]
        return recompute_buffers(trained, restored.__getitem__)

    def tensors(self, way: Way) -> list[torch.Tensor]:
        return [target.tensor for target, _ in self._cuts]

    def before(self) -> dict[str, torch.Tensor]:
        return {name: cut.before.data for name, (_, cut) in self._by_name.items()}

    def _without_correction(self, target: TensorTarget, cut: CutTensor) -> torch.Tensor | None:
        """The remaining slices without the added correction; None if nothing was added."""
        new = self._values.get(target.edit.names[0])
        if new is None:
            return self._restored_gain(target, cut)
        now, before = target.tensor.data, target.edit.slice(cut.before.data)
        if torch.equal(now, new.tensor):  # not trained since: byte for byte what it was
            return before
        return now - (new.tensor - before) if new.is_sum else None

    def _restored_gain(self, target: TensorTarget, cut: CutTensor) -> torch.Tensor | None:
        """The gain of a weight-normalised parameter after a restore; None for all others."""
        made = self._gains.get(target.edit.names[0])
        if made is None or target.edit.gain_of is None:
            return None
        gain = target.tensor.data
        if torch.equal(gain, made):  # not trained since: byte for byte what it was
            return target.edit.slice(cut.before.data)
        name, dim = target.edit.gain_of
        own, direction = self._by_name[name]
        now = own.tensor.data
        kept = {at: kept for at, kept in own.edit.kept.items() if at == dim}
        rows = TensorEdit(own.edit.names, own.edit.shape, kept).slice(own.edit.scatter(now, direction.before.data))
        return target.edit.rescaled(gain, now, rows)

    def _current_tensors(self, walked: Walk) -> Iterator[tuple[TensorTarget, CutTensor, torch.Tensor]]:
        before = [target for target, _ in self._cuts]
        after = [TensorEdit(target.edit.names, target.edit.shape_after, {}) for target in before]
        for (target, cut), now in zip(self._cuts, relocate_tensors(walked, before, after), strict=True):
            yield target, cut, now.tensor


def _buffer_writes(target: TensorTarget, buffer: torch.Tensor) -> Iterator[Write]:
    return (item_write(container, name, buffer) for container, name in _buffer_slots(target))


@dataclass(frozen=True, slots=True)
class ComputedTensor(ReceiptPart):
    """A computed tensor that a module holds; it is replaced by a new object."""

    edit: TensorEdit
    tensor: torch.Tensor
    slots: Callable[[], Slots]
    value: torch.Tensor | None = None  # once it is cut, where that is more than the slices that stay

    def cut(self) -> Iterator[Write]:
        return self._swapped(self.edit.slice(self.tensor.data) if self.value is None else self.value)

    def undo(self, walked: Walk) -> Iterator[Write]:
        return self._swapped(self.tensor)

    def restore(self, walked: Walk) -> Iterator[Write]:
        container, key = self.slots()[0]
        now = container[key]
        if not isinstance(now, torch.Tensor) or now.shape != self.edit.shape_after:
            raise CutError(
                f"{printable(str(key))}, which follows {printable(self.edit.names[0])}, has changed since the cut"
            )
        return self._swapped(self.edit.scatter(now.data, self.tensor.data))

    def _swapped(self, new: torch.Tensor) -> Iterator[Write]:
        return (item_write(container, key, new) for container, key in self.slots())


def computed_tensors(
    targets: Sequence[TensorTarget], derived: Iterable[DerivedState] = (), values: Mapping[str, NewValue] | None = None
) -> list[ComputedTensor]:
    """Buffers with a graph behind them, and what pruned and old normalised modules compute from an edited tensor.

    Of what is `derived` the renewed `values` are known.
    """
    out: dict[int, ComputedTensor] = {}
    effective = _recomputed_attributes(targets, derived, values or {})
    for target in targets:
        if target.tensor.grad_fn is not None:
            out[id(target.tensor)] = ComputedTensor(target.edit, target.tensor, partial(_buffer_slots, target))
        for state, name in target.owners:
            base = next((name[: -len(end)] for end in _SOURCE_SUFFIXES if name.endswith(end)), "")
            plain = state.get(base)
            if isinstance(plain, torch.Tensor) and plain.shape == target.edit.shape:
                new = effective.get((id(state), base))
                out[id(plain)] = ComputedTensor(target.edit, plain, partial(_plain_slots, state, base), new)
    return list(out.values())


def _recomputed_attributes(
    targets: Iterable[TensorTarget], derived: Iterable[DerivedState], values: Mapping[str, NewValue]
) -> dict[tuple[int, str], torch.Tensor]:
    """The attributes that hooks compute from edited tensors and recomputed buffers."""
    every = [
        each
        for each in derived
        if each.recompute_attribute is not None and all(name in values for name in each.buffers)
    ]
    by_name = {name: target for target in targets for name in target.edit.names} if every else {}

    def value_of(name: str) -> torch.Tensor:
        return values[name].tensor if name in values else by_name[name].edit.slice(by_name[name].tensor)

    with torch.inference_mode(False), torch.no_grad():
        made = [each.recompute_attribute(value_of) for each in every if each.recompute_attribute is not None]
    return {(id(state), name): tensor for state, name, tensor in made}


def _buffer_slots(target: TensorTarget) -> Slots:
    return [(state[BUFFERS], name) for state, name in target.owners]


def _plain_slots(state: Attributes, name: str) -> Slots:
    if name not in state:
        raise CutError(f"a module has no {printable(name)!r} any more, which the cut changed: undo what removed it")
    listed = state.get(FLAT_WEIGHTS, ())  # recurrent layers list their weights once more
    return [(state, name), *((listed, at) for at, each in enumerate(listed) if each is state[name])]


class EditedAttributes(ReceiptPart):
    """Attributes of modules, and of plain objects in them, that hold sizes.

    A plain object may serve other models too, as a configuration does: this one gets a copy of its own.
    """

    def __init__(self, walked: Walk, edits: Edits) -> None:
        targets = locate_attributes(walked, edits)
        self._settings = [setting for setting in targets if setting.holder is None]
        self._before = [setting.state[setting.name] for setting in self._settings]
        self._after = Edits((), {name: (after, before) for name, (before, after) in edits.all_attributes.items()})
        resized = edits.removal or any(edit.shape != edit.shape_after for edit in edits.tensors)
        noted = list(configurations(walked)) if resized else []
        self._swaps = _object_swaps(walked, [setting for setting in targets if setting.holder is not None], noted)
        self.copies = {id(old): new for _, _, old, new in self._swaps}  # of the plain objects, by their identity

    def cut(self) -> Iterator[Write]:
        # a copy: a list of sizes belongs to the edits, which serve more than one model
        yield from (item_write(each.state, each.name, copy.copy(each.after)) for each in self._settings)
        yield from (item_write(state, name, new) for state, name, _, new in self._swaps)

    def undo(self, walked: Walk) -> Iterator[Write]:
        locate_attributes(walked, self._after)  # they have to be as the cut left them
        for each, before in zip(self._settings, self._before, strict=True):
            yield item_write(each.state, each.name, before)
        yield from (item_write(state, name, old) for state, name, old, _ in self._swaps)

    restore = undo


class PlainTensors(ReceiptPart):
    """Tensors in plain attributes; they are replaced, and the old ones come back with their containers.

    `copies` are those of plain objects that other parts of the cut put in place.
    """

    def __init__(self, targets: Sequence[TensorTarget], copies: Mapping[int, object]) -> None:
        self._targets = targets
        self._locations = [held for target in targets for held in target.attribute_locations]
        self._swaps = attribute_swaps(
            self._locations, {id(target.tensor): target.edit.slice(target.tensor) for target in targets}, copies
        )
        self._before = [each._replace(value=each.state[each.attribute]) for each in self._swaps]

    def cut(self) -> Iterator[Write]:
        return (item_write(*swap) for swap in self._swaps)

    def undo(self, walked: Walk) -> Iterator[Write]:
        self._current_tensors(walked)  # they have to be of the sizes that the cut left
        return (item_write(*swap) for swap in self._before)

    def restore(self, walked: Walk) -> Iterator[Write]:
        """Put the old tensors back, except where the remaining slices were changed since."""
        whole = {
            id(target.tensor): target.edit.scatter(now, target.tensor)
            for target, now in zip(self._targets, self._current_tensors(walked), strict=True)
        }
        whole = {id(each.tensor): whole[id(each.tensor)] for each in self._targets
                 if not torch.equal(whole[id(each.tensor)], each.tensor)}  # fmt: skip
        again = {
            (id(state), name): value for state, name, value in rebuild_containers(self._before, self._locations, whole)
        }
        return (item_write(state, name, again[id(state), name]) for state, name, _ in self._before)

    def _current_tensors(self, walked: Walk) -> list[torch.Tensor]:
        if not self._targets:
            return []
        after = Edits(tuple(TensorEdit(target.edit.names, target.edit.shape_after, {}) for target in self._targets))
        return [target.tensor for target in locate_tensors(walked, after)]


def _object_swaps(
    walked: Walk, edited: Iterable[AttributeTarget], noted: Iterable[object]
) -> list[tuple[Attributes, str, object, object]]:
    """The replacements of edited plain objects: state, attribute, old object, edited copy.

    The copies of those that are `noted` say that they are of a cut model.
    """
    copies: dict[int, tuple[object, object]] = {}
    for old in noted:
        if id(old) not in copies:
            copies[id(old)] = old, _shallow_copy(old)
            vars(copies[id(old)][1])[KEY] = CutNote(TEXT)
    for setting in edited:
        old = setting.holder
        if id(old) not in copies:
            copies[id(old)] = old, _shallow_copy(old)
        vars(copies[id(old)][1])[setting.name] = copy.copy(setting.after)
    held = {id(value): value for state in walked.states for value in state.values()} if copies else {}
    for value in held.values():
        _copy_with_edits(value, copies)
    return [
        (state, name, *copies[id(value)]) for state in walked.states for name, value in state.items()
        if id(value) in copies
    ]  # fmt: skip


def _copy_with_edits(holder: object, copies: dict[int, tuple[object, object]], depth: int = MAX_DEPTH) -> object:
    """The edited copy of a plain object, or of one that holds an edited object; else the object itself."""
    if not is_plain_object(holder) or not depth:
        return holder
    held = copies[id(holder)][1] if id(holder) in copies else holder
    others = {
        name: new
        for name, value in vars(held).items()
        if (new := _copy_with_edits(value, copies, depth - 1)) is not value
    }
    if others and id(holder) not in copies:
        copies[id(holder)] = holder, _shallow_copy(holder)
    if others:
        vars(copies[id(holder)][1]).update(others)
    return copies[id(holder)][1] if id(holder) in copies else holder


def _shallow_copy(holder: object) -> object:
    """A shallow copy; raises `CutError` for objects that cannot be copied."""
    try:
        new = copy.copy(holder)
        if vars(new) is vars(holder):
            raise TypeError("its copy is the same object")
    except Exception as error:
        raise CutError(
            f"{a_type(holder)}, whose sizes the plan changes, cannot be copied: {printable(str(error))}"
        ) from error
    return new


class RecurrentWeights(ReceiptPart):
    """The weights of recurrent layers on CUDA, which cuDNN needs in one block of memory."""

    def __init__(self, layers: list[nn.RNNBase]) -> None:
        self._layers = layers

    def cut(self) -> Iterator[Write]:
        return (Write(partial(_flatten, layer), False, True) for layer in self._layers)

    def restore(self, walked: Walk) -> Iterator[Write]:  # `undo` gives them the memory that they had
        return self.cut()


def _flatten(layer: nn.RNNBase, wanted: bool) -> None:
    if wanted:
        layer.flatten_parameters()


def layers_to_flatten(walked: Walk, targets: Iterable[TensorTarget]) -> list[nn.RNNBase]:
    """The recurrent layers on CUDA with an edited weight."""
    edited = {id(state) for target in targets if target.tensor.is_cuda for state, _ in target.owners}
    return [each for each in walked.modules if isinstance(each, nn.RNNBase) and id(module_state(each)) in edited]


def flattening_edits(walked: Walk, layers: Iterable[nn.RNNBase], edits: Edits) -> list[TensorEdit]:
    """Edits without changes for weights that only flattening moves."""
    edited = {name for edit in edits.tensors for name in edit.names}
    weights = {id(tensor) for layer in layers for tensor in registered_tensors(module_state(layer)).values()}
    every = tensors_with_names(walked) if weights else []
    return [
        TensorEdit(names, tuple(tensor.shape), {})
        for tensor, names in every
        if id(tensor) in weights and edited.isdisjoint(names)
    ]


class UncutTensors(ReceiptPart):
    """Parameters, buffers and gradients that the cut does not change; `undo` takes back later training."""

    def __init__(self, walked: Walk, edited: Iterable[TensorTarget], computed: Iterable[ComputedTensor]) -> None:
        theirs = {id(target.tensor) for target in edited} | {id(each.tensor) for each in computed}
        self._snapshot = Snapshot()
        self._parameters: dict[str, nn.Parameter] = {}
        self._tensors: list[torch.Tensor] = []
        for held in named_registered_tensors(walked, walked.all_paths()):
            if id(held.tensor) not in theirs:
                self._tensors.append(held.tensor)
                if isinstance(held.tensor, nn.Parameter):
                    self._parameters[held.name] = held.tensor
                self._snapshot.record_bytes(held.name, held.tensor)
                self._snapshot.record_gradient(f"the gradient of {held.name}", held.tensor)
        for state in walked.states:
            for name in state.get(BUFFERS) or ():
                if id(state[BUFFERS][name]) not in theirs:
                    self._snapshot.record_entry(state[BUFFERS], name)
            self._record_attributes(state, theirs)

    def _record_attributes(self, state: Attributes, theirs: Container[int]) -> None:
        """Record tensors in plain attributes, and the weight lists of recurrent layers."""
        for name, value in state.items():
            listed = name == FLAT_WEIGHTS and isinstance(value, list)
            if listed or (isinstance(value, torch.Tensor) and id(value) not in theirs):
                self._snapshot.record_entry(state, name)
            if listed:
                self._snapshot.record(name, value, set(map(id, value)))
            if name == FLAT_WEIGHT_REFS and isinstance(value, list):
                self._snapshot.record_references(state, name)

    def tensors(self, way: Way) -> list[torch.Tensor]:
        return self._tensors if way == "undo" else []

    def undo(self, walked: Walk) -> Iterator[Write]:
        now = {held.name: held.tensor for held in named_registered_tensors(walked, walked.all_paths())}
        for name, parameter in self._parameters.items():
            if now.get(name) is not parameter:
                raise _replaced_parameter_error(name)
        return self._snapshot.writes()
