"""Copies of a model that are cut along with it: averaged weights, as modules or dictionaries of tensors."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, a_type, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.pruning.cut.distributed_models import refuse_resizing, refuse_sharded_values
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, locate_attributes, locate_tensors, slicer
from modulekg_widgets.engine.pruning.cut.receipt import Children, ReceiptPart, Way
from modulekg_widgets.engine.pruning.cut.receipt_parts import UncutTensors
from modulekg_widgets.engine.pruning.cut.transaction import Snapshot, Write, describe_tensor, item_write
from modulekg_widgets.engine.torch_runtime.modules import module_state, registry, unwrapped
from modulekg_widgets.engine.torch_runtime.private import MODULES
from modulekg_widgets.engine.tracing.unregistered_tensors import named_registered_tensors

TensorDict = MutableMapping[Hashable, object]
WRAPPED_ATTRIBUTE = "module"  # where AveragedModel and the wrappers for several devices keep the model that they wrap


@contextmanager
def copy_error_context(position: int) -> Iterator[None]:
    """Name the copy in errors that are raised inside."""
    try:
        yield
    except CutError as error:
        raise CutError(f"copies[{position}] does not fit: {error}") from error


class CopyTarget(NamedTuple):
    """One copy of the model to cut, and what its tensors hold then."""

    inner: nn.Module | TensorDict
    wrapper: nn.Module | None = None  # of a module
    values: Mapping[str, NewValue] = {}


def checked_copies(walked: Walk, copies: object, edits: Edits) -> list[CopyTarget]:
    """The modules and dictionaries to cut.

    Raises `CutError` for anything else, and where two of them, or one and the model, share a tensor.
    """
    if isinstance(copies, nn.Module | Mapping) or not isinstance(copies, Sequence):
        raise CutError(f"copies= is {a_type(copies)}: pass a list of them, as copies=[ema]")
    names = {name for edit in edits.tensors for name in edit.names}
    owners = {id(held.tensor): "the model" for held in named_registered_tensors(walked, walked.all_paths())}
    targets = []
    for at, copy in enumerate(copies):
        target = _target(copy, names, f"copies[{at}]")
        with copy_error_context(at):
            _check_alone(copy)
            _check_fit(target, edits)
        tensors = _tensors(target.inner, names)
        for name, tensor in tensors.items():
            if (other := owners.get(id(tensor))) is not None:
                raise CutError(
                    f"copies[{at}] has its {printable(name)!r} in common with {other}: pass an independent copy"
                )
        owners.update(dict.fromkeys(map(id, tensors.values()), f"copies[{at}]"))
        targets.append(target)
    return targets


def _check_alone(copy: object) -> None:
    if isinstance(copy, nn.Module):
        refuse_resizing(copy)
    elif isinstance(copy, Mapping):
        refuse_sharded_values(copy)


def _check_fit(target: CopyTarget, edits: Edits) -> None:
    if isinstance(target.inner, nn.Module):
        walked = walk(target.inner)
        locate_tensors(walked, edits)
        locate_attributes(walked, edits)
    else:
        CutDict(target.inner, edits, {})


def _target(copy: object, names: set[str], label: str) -> CopyTarget:
    if isinstance(copy, nn.Module):
        module = unwrapped(copy)
        inner = registry(module_state(module), MODULES).get(WRAPPED_ATTRIBUTE)
        if isinstance(inner, nn.Module) and names.isdisjoint(_tensors(module, names)):
            return CopyTarget(unwrapped(inner), module)
        return CopyTarget(module)
    if not isinstance(copy, MutableMapping):
        raise CutError(
            f"{label} is {a_type(copy)}: pass a module, as AveragedModel or a deepcopy of the "
            "model, "
            "or a dictionary of tensors by their names"
        )
    return CopyTarget(copy)


def _tensors(target: nn.Module | TensorDict, names: set[str]) -> dict[str, torch.Tensor]:
    """The tensors of a copy that are cut, by name."""
    if isinstance(target, nn.Module):
        walked = walk(target)
        return {
            held.name: held.tensor
            for held in named_registered_tensors(walked, walked.all_paths())
            if held.name in names
        }
    return {name: tensor for name, tensor in tensors_by_model_name(target).items() if name in names}


def tensors_by_model_name(target: Mapping[Hashable, object]) -> dict[str, torch.Tensor]:
    """The tensors of a dictionary by the names that the model uses for them."""
    keys = ((key, str(key).removeprefix(f"{WRAPPED_ATTRIBUTE}.")) for key in target)
    values = {name: target[key] for key, name in keys}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


class CutCopy(ReceiptPart):
    """A module that is cut like the model: the changed parts, and the state that the cut does not change.

    The latter is that of `whole`, which is the module or what wraps it.
    """

    def __init__(self, module: nn.Module, parts: Sequence[ReceiptPart], whole: nn.Module, uncut: UncutTensors) -> None:
        self._module, self._parts = module, parts
        self._whole, self._uncut = whole, uncut

    def modules(self) -> list[nn.Module]:
        return walk(self._whole, self.children).modules

    def tensors(self, way: Way) -> list[torch.Tensor]:
        return [tensor for part in (*self._parts, self._uncut) for tensor in part.tensors(way)]

    @property
    def children(self) -> Children:
        return {at: own for part in self._parts for at, own in part.children.items()}

    def cut(self) -> Iterator[Write]:
        return (write for part in self._parts for write in part.cut())

    def undo(self, walked: Walk) -> Iterator[Write]:
        own = self._walk_copy()
        for part in self._parts:
            yield from part.undo(own)
        yield from self._uncut.undo(walk(self._whole, self.children))

    def restore(self, walked: Walk) -> Iterator[Write]:
        own = self._walk_copy()
        return (write for part in self._parts for write in part.restore(own))

    def _walk_copy(self) -> Walk:
        refuse_resizing(self._whole)
        return walk(self._module, self.children)


class CutDict(ReceiptPart):
    """A dictionary of tensors whose entries are replaced by slices."""

    def __init__(self, target: TensorDict, edits: Edits, values: Mapping[str, NewValue]) -> None:
        self._target = target
        if edits.removal:
            raise CutError("modules are removed, and a dictionary has none: pass the copy as a module, as a deepcopy")
        keys = {str(key).removeprefix(f"{WRAPPED_ATTRIBUTE}."): key for key in target}
        self._edits = {keys[name]: edit for edit in edits.tensors for name in edit.names if name in keys}
        missing = [edit.names[0] for edit in edits.tensors if edit.produced and not keys.keys() & set(edit.names)]
        if missing or not self._edits:
            what = missing[0] if missing else next((edit.names[0] for edit in edits.tensors), "")
            raise CutError(f"it has no tensor {printable(what)!r}: {closest_match_hint(what, keys)}")
        self._before = {key: _checked(str(key), target[key], edit.shape) for key, edit in self._edits.items()}
        whole = {name: keys[name] for name in values if name in keys and keys[name] not in self._edits}
        self._values = {keys[name]: value for name, value in values.items() if name in keys}
        for key in whole.values():
            self._before[key] = _checked(str(key), target[key], tuple(self._values[key].tensor.shape))
        slice_of = slicer(edits, lambda name: self._before[keys[name]])
        self._parts = {id(edit): slice_of(edit) for edit in self._edits.values()}  # one for all names of a tied tensor
        self._after = {key: self._new_value(key) for key in self._before}
        self._snapshot = Snapshot()
        # what is cut is replaced, and nothing writes to it any more
        self._snapshot.record("a copy", target, set(map(id, self._before.values())))

    def _new_value(self, key: Hashable) -> torch.Tensor:
        if key in self._values:
            new = self._values[key].tensor
            return new.to(self._before[key])
        part = self._parts[id(self._edits[key])]
        return part.requires_grad_(self._before[key].requires_grad) if part.is_floating_point() else part

    def cut(self) -> Iterator[Write]:
        return (item_write(self._target, key, new) for key, new in self._after.items())

    def undo(self, walked: Walk) -> Iterator[Write]:
        self._current_values()
        return self._snapshot.writes()

    def restore(self, walked: Walk) -> Iterator[Write]:
        """Put the removed slices back; remaining slices keep their values, minus the added correction."""
        for key, now in self._current_values().items():
            before, edit = self._before[key], self._edits.get(key)
            part = before if edit is None else edit.slice(before)
            new = self._values.get(key)
            kept = now.detach()
            if new is not None and torch.equal(now, self._after[key]):
                kept = part
            elif new is not None and new.is_sum:
                kept = now.detach() - (self._after[key] - part)
            yield item_write(self._target, key, kept if edit is None else edit.scatter(kept, before.detach()))

    def _current_values(self) -> dict[Hashable, torch.Tensor]:
        return {
            key: _checked(str(key), self._target.get(key), tuple(after.shape)) for key, after in self._after.items()
        }


def _checked(name: str, tensor: object, shape: tuple[int, ...]) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise CutError(f"{printable(name)} is {a_type(tensor)}, not a tensor")
    if tuple(tensor.shape) != shape:
        raise CutError(f"{printable(name)} is {describe_tensor(tensor)} where the shape {list(shape)} is expected")
    return tensor
