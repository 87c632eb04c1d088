"""Copies of a model that are cut along with it: averaged weights, as modules or dictionaries of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.errors import CutError, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.pruning.cut.distributed_models import refuse_resizing, refuse_sharded_values
from modulekg_widgets.engine.pruning.cut.edits import Edits, NewValue, locate_attributes, locate_tensors, slicer
from modulekg_widgets.engine.pruning.cut.receipt_parts import UncutTensors
from modulekg_widgets.engine.pruning.cut.transaction import Snapshot, Write, describe_tensor, item_write
from modulekg_widgets.engine.torch_runtime.modules import module_state, registry, unwrapped
from modulekg_widgets.engine.torch_runtime.private import MODULES
from modulekg_widgets.engine.tracing.unregistered_tensors import named_registered_tensors

WRAPPED_ATTRIBUTE = "module"  # where AveragedModel and the wrappers for several devices keep the model that they wrap


@contextmanager
def copy_error_context(position: int) -> Iterator[None]:
    """Name the copy in errors that are raised inside."""
    try:
        yield
    except CutError as error:
        raise CutError(f"copies[{position}] does not fit: {error}") from error


class CopyTarget(NamedTuple):
    """The module or dictionary of one copy to cut."""

    inner: Any  # a module, or a dictionary
    whole: Any  # the same, or what wraps it


def checked_copies(walked: Walk, copies: Any, edits: Edits) -> list[CopyTarget]:
    """The modules and dictionaries to cut.

    Raises `CutError` for anything else, and where two of them, or one and the model, share a tensor.
    """
    if isinstance(copies, nn.Module | Mapping) or not isinstance(copies, Sequence):
        raise CutError(f"copies= is a {printable(type(copies).__name__)}: pass a list of them, as copies=[ema]")
    names = {name for edit in edits.tensors for name in edit.names}
    owners = {id(held.tensor): "the model" for held in named_registered_tensors(walked, walked.all_paths())}
    found = []
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
        found.append(target)
    return found


def _check_alone(copy: Any) -> None:
    if isinstance(copy, nn.Module):
        refuse_resizing(copy)
    else:
        refuse_sharded_values(copy)


def _check_fit(target: CopyTarget, edits: Edits) -> None:
    if isinstance(target.inner, nn.Module):
        found = walk(target.inner)
        locate_tensors(found, edits)
        locate_attributes(found, edits)
    else:
        CutDict(target.inner, edits, {})


def _target(copy: Any, names: set[str], label: str) -> CopyTarget:
    if isinstance(copy, nn.Module):
        module = unwrapped(copy)
        inner = registry(module_state(module), MODULES).get(WRAPPED_ATTRIBUTE)
        if isinstance(inner, nn.Module) and names.isdisjoint(_tensors(module, names)):
            return CopyTarget(unwrapped(inner), module)
        return CopyTarget(module, module)
    if not isinstance(copy, MutableMapping):
        raise CutError(
            f"{label} is a {printable(type(copy).__name__)}: pass a module, as AveragedModel or a deepcopy of the "
            "model, "
            "or a dictionary of tensors by their names"
        )
    return CopyTarget(copy, copy)


def _tensors(target: Any, names: set[str]) -> dict[str, torch.Tensor]:
    """The tensors of a copy that are cut, by name."""
    if isinstance(target, nn.Module):
        found = walk(target)
        return {
            held.name: held.tensor for held in named_registered_tensors(found, found.all_paths()) if held.name in names
        }
    return {name: tensor for name, tensor in tensors_by_model_name(target).items() if name in names}


def tensors_by_model_name(target: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    """The tensors of a dictionary by the names that the model uses for them."""
    keys = ((key, str(key).removeprefix(f"{WRAPPED_ATTRIBUTE}.")) for key in target)
    return {name: target[key] for key, name in keys if isinstance(target[key], torch.Tensor)}


class CutCopy:
    """A module that is cut like the model: the changed parts, and the state that the cut does not change.

    The latter is that of `whole`, which is the module or what wraps it.
    """

    def __init__(self, module: nn.Module, parts: Sequence[Any], whole: nn.Module, uncut: UncutTensors) -> None:
        self._module, self._parts = module, parts
        self._whole, self._uncut = whole, uncut

    def modules(self) -> list[nn.Module]:
        """The modules of the copy."""
        return walk(self._whole, self.children).modules

    def tensors(self, way: str) -> list[torch.Tensor]:
        """The tensors that `undo` or `restore` writes to."""
        return [tensor for part in (*self._parts, self._uncut) for tensor in _tensors_of(part, way)]

    @property
    def children(self) -> dict[int, Any]:
        """The children of modules before the cut, by module identity."""
        return {at: own for part in self._parts for at, own in getattr(part, "children", {}).items()}

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


def _tensors_of(part: Any, way: str) -> list[torch.Tensor]:
    return part.tensors(way) if hasattr(part, "tensors") else []


class CutDict:
    """A dictionary of tensors whose entries are replaced by slices."""

    def __init__(self, target: MutableMapping[Any, Any], edits: Edits, values: Mapping[str, NewValue]) -> None:
        self._target = target
        if edits.removal:
            raise CutError("modules are removed, and a dictionary has none: pass the copy as a module, as a deepcopy")
        keys = {str(key).removeprefix(f"{WRAPPED_ATTRIBUTE}."): key for key in target}
        self._edits = {keys[name]: edit for edit in edits.tensors for name in edit.names if name in keys}
        missing = [edit.names[0] for edit in edits.tensors if edit.produced and not keys.keys() & set(edit.names)]
        if missing or not self._edits:
            what = missing[0] if missing else next((edit.names[0] for edit in edits.tensors), "")
            raise CutError(f"it has no tensor {printable(what)!r}: {closest_match_hint(what, keys)}")
        for key, edit in self._edits.items():
            _check(str(key), target[key], edit.shape)
        whole = {name: keys[name] for name in values if name in keys and keys[name] not in self._edits}
        self._before: dict[Any, torch.Tensor] = {key: target[key] for key in (*self._edits, *whole.values())}
        self._values = {keys[name]: value for name, value in values.items() if name in keys}
        for key in whole.values():
            _check(str(key), target[key], tuple(self._values[key].tensor.shape))
        slice_of = slicer(edits, lambda name: target[keys[name]])
        self._parts = {id(edit): slice_of(edit) for edit in self._edits.values()}  # one for all names of a tied tensor
        self._after = {key: self._new_value(key) for key in self._before}
        self._snapshot = Snapshot()
        # what is cut is replaced, and nothing writes to it any more
        self._snapshot.record("a copy", target, set(map(id, self._before.values())))

    def _new_value(self, key: Any) -> torch.Tensor:
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
            stays = now.detach()
            if new is not None and torch.equal(now, self._after[key]):
                stays = part
            elif new is not None and new.is_sum:
                stays = now.detach() - (self._after[key] - part)
            yield item_write(self._target, key, stays if edit is None else edit.scatter(stays, before.detach()))

    def _current_values(self) -> dict[Any, torch.Tensor]:
        for key, after in self._after.items():
            _check(str(key), self._target.get(key), tuple(after.shape))
        return {key: self._target[key] for key in self._after}


def _check(name: str, tensor: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise CutError(f"{printable(name)} is a {printable(type(tensor).__name__)}, not a tensor")
    if tuple(tensor.shape) != shape:
        raise CutError(f"{printable(name)} is {describe_tensor(tensor)} where the shape {list(shape)} is expected")
