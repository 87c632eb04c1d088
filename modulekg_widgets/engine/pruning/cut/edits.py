"""Edits of a model by name: remaining positions of tensors, and new values of attributes.

An `Edits` object is what a plan comes to: one `TensorEdit` for each tensor, with the positions that
remain in each dimension, attribute changes such as `conv1.out_channels`, and removed modules. It
refers to tensors by name, so that the same edits apply to the model, to copies of it, to sandboxed
runs and to saved files. `locate_tensors` and `locate_attributes` find the targets in a model, and
raise `CutError` if it is not the model that the plan was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from modulekg_widgets.engine.axes.attributes import SizeValue as SizeValue
from modulekg_widgets.engine.errors import CutError, closest_match_hint, printable
from modulekg_widgets.engine.identity.walk import Walk, walk
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED, ModuleRemoval
from modulekg_widgets.engine.torch_runtime.isolation.shadow import has_strided_memory
from modulekg_widgets.engine.torch_runtime.modules import Attributes
from modulekg_widgets.engine.tracing.unregistered_tensors import (
    ATTRIBUTE,
    ModelTensor,
    model_tensors_by_name,
    named_registered_tensors,
)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TensorEdit:
    """The remaining positions of one parameter, buffer or plain tensor."""

    names: tuple[str, ...]  # every name that the tensor has, several when it is tied
    shape: tuple[int, ...]  # before
    kept: dict[int, Ints]  # dimension → the positions that stay, ascending
    produced: frozenset[int] = frozenset()  # the dimensions along which it makes the axis, for masks
    gain_of: tuple[str, int] | None = None  # of weight_norm's gain: the direction, and the dimension it keeps or -1
    values: Ints | None = None  # of a buffer of indices: those that stay, ascending, which are numbered anew
    by_gain: frozenset[int] = frozenset()  # of a direction: the dimensions that a mask sets to zero in the gain alone

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorEdit):
            return NotImplemented
        same = (self.names, self.shape, self.produced, self.gain_of, self.by_gain) == (
            other.names, other.shape, other.produced, other.gain_of, other.by_gain,
        )  # fmt: skip
        same = same and self.kept.keys() == other.kept.keys() and _equal(self.values, other.values)
        return same and all(np.array_equal(positions, other.kept[at]) for at, positions in self.kept.items())

    def __hash__(self) -> int:
        return hash((self.names, self.shape, self.produced))

    @property
    def shape_after(self) -> tuple[int, ...]:
        return tuple(len(self.kept[at]) if at in self.kept else size for at, size in enumerate(self.shape))

    def slice(self, tensor: torch.Tensor) -> torch.Tensor:
        """The remaining slices of a tensor, in new memory with the same stride order; no autograd."""
        return _in_matching_mode(self._slice, tensor)

    def _slice(self, tensor: torch.Tensor) -> torch.Tensor:
        layout = _memory_order(tensor)
        part = tensor.permute(layout)  # selecting gives rows of the last dimension: of the innermost one
        for at, positions in self.kept.items():
            part = part.index_select(layout.index(at), _index(positions, tensor))
        part = part if self.kept else part.clone(memory_format=torch.contiguous_format)
        part = part if self.values is None else _renumbered(part, self.values)
        return part.permute([layout.index(at) for at in range(tensor.dim())]).data

    def rescaled(self, gain: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """`gain` for a direction that changed from `before` to `after`, so that the remaining weight is equal.

        The weight is gain · direction / norm(direction), and the norm runs over what goes as well.
        """
        if not gain.is_floating_point() or not before.is_floating_point():
            raise CutError(f"{printable(self.names[0])} is not a gain of a normalised weight: plan for this model")
        dim = -1 if self.gain_of is None else self.gain_of[1]
        old, new = (torch.norm_except_dim(direction, 2, dim).reshape(gain.shape) for direction in (before, after))
        return gain * torch.where(old > 0, new / old, torch.ones_like(old))

    def scatter(self, part: torch.Tensor, before: torch.Tensor | None = None) -> torch.Tensor:
        """A full-size tensor with `part` at the remaining positions, and `before` or zeros elsewhere.

        It has the dtype, the device and the order of strides of `part`.
        """
        return _in_matching_mode(self._scatter, part, before)

    def _scatter(self, part: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        layout = _memory_order(part if before is None else before)
        if not part.permute(layout).is_contiguous():  # dimensions of size 1 tell nothing of the order, `before` may
            layout = _memory_order(part)
        out = torch.empty_permuted(self.shape, layout, dtype=part.dtype, device=part.device)
        out = out.zero_() if before is None else out.copy_(before)
        if self.values is not None:
            part = _index(self.values, part)[part.long()].to(part.dtype)
        _write_slices(as_integers(out), list(self.kept.items()), as_integers(part.resolve_conj().resolve_neg()))
        return out


def _equal(left: Ints | None, right: Ints | None) -> bool:
    return left is right if left is None or right is None else np.array_equal(left, right)


def _renumbered(indices: torch.Tensor, stay: Ints) -> torch.Tensor:
    """The rank of each index among the remaining ones."""
    known = _index(stay, indices).to(indices.dtype)
    if not indices.is_meta and not bool(torch.isin(indices, known).all()):
        raise CutError("a buffer holds other indices than it did when the plan was made: plan again")
    return torch.searchsorted(known, indices.contiguous()).to(indices.dtype)


def _in_matching_mode(
    make: Callable[..., torch.Tensor], tensor: torch.Tensor, *others: torch.Tensor | None
) -> torch.Tensor:
    """Call `make` in or out of inference mode, as the tensor was made."""
    return torch.inference_mode(tensor.is_inference())(make)(tensor, *others)


def _memory_order(tensor: torch.Tensor) -> list[int]:
    """The dimensions from the outermost to the innermost, as channels_last has them in another order."""
    return sorted(range(tensor.dim()), key=lambda at: -tensor.stride(at))


def _index(positions: Ints, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(positions).to(like.device)


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, which any dtype allows to copy by index and compare exactly."""
    if tensor.is_complex():
        return as_integers(torch.view_as_real(tensor))
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])


def _write_slices(out: torch.Tensor, kept: list[tuple[int, Ints]], part: torch.Tensor) -> None:
    """Write `part` at the remaining positions of all dimensions."""
    if not kept:
        out.copy_(part)
        return
    (at, positions), *others = kept
    index = _index(positions, out)
    if others:
        slices = out.index_select(at, index)
        _write_slices(slices, others, part)
        part = slices
    out.index_copy_(at, index, part)


class NewValue(NamedTuple):
    """The value of a tensor after the cut, if it is more than the remaining slices."""

    tensor: torch.Tensor
    is_sum: bool = True  # of these slices and a correction, which a restore takes out; else it stands for itself


@dataclass(frozen=True, slots=True)
class Edits:
    """All changes of a cut."""

    tensors: tuple[TensorEdit, ...]
    attributes: dict[str, tuple[SizeValue, SizeValue]] = field(
        default_factory=dict, hash=False
    )  # "conv1.out_channels" → before, after
    removal: ModuleRemoval = NOTHING_REMOVED  # whole modules that go; every name is that of before

    @property
    def all_attributes(self) -> dict[str, tuple[SizeValue, SizeValue]]:
        """All attribute changes, including those that follow from removed modules."""
        return {**self.attributes, **self.removal.attributes}


def slicer(edits: Edits, value_of: Callable[[str], torch.Tensor]) -> Callable[[TensorEdit], torch.Tensor]:
    """A function that returns the remaining slices of an edit; `value_of` returns tensors by name."""
    by_name = {name: edit for edit in edits.tensors for name in edit.names}

    def slice_of(edit: TensorEdit) -> torch.Tensor:
        part = edit.slice(value_of(edit.names[0]))
        if edit.gain_of is None:
            return part
        name, dim = edit.gain_of
        direction, cut = value_of(name), by_name[name]
        alike = TensorEdit(cut.names, cut.shape, {at: kept for at, kept in cut.kept.items() if at == dim})
        return edit.rescaled(part, alike.slice(direction), cut.slice(direction))

    return slice_of


class TensorTarget(NamedTuple):
    """One tensor of a model that is edited."""

    edit: TensorEdit
    tensor: torch.Tensor
    owners: tuple[tuple[Attributes, str], ...]  # the state of each module that registers it, and its name there
    attribute_locations: tuple[ModelTensor, ...] = ()  # its places, where it is no parameter or buffer


class AttributeTarget(NamedTuple):
    """One attribute that is edited: of a module, or of a plain object in it, as `config.hidden_size`."""

    state: Attributes  # the `__dict__` that holds it
    name: str
    before: SizeValue
    after: SizeValue
    holder: object = None  # the plain object, None where it is a module


def locate_tensors(model: nn.Module | Walk, edits: Edits) -> list[TensorTarget]:
    """The edited tensors of a model; raises `CutError` if the model does not match the edits."""
    walked = model if isinstance(model, Walk) else walk(model)
    held = model_tensors_by_name(walked, (name for edit in edits.tensors for name in edit.names))
    names: dict[int, set[str]] = {}
    for each in held.values():
        names.setdefault(id(each.tensor), set()).add(each.name)
    return [_tensor_target(held, names, edit) for edit in edits.tensors]


def tensors_with_names(walked: Walk) -> list[tuple[torch.Tensor, tuple[str, ...]]]:
    """Each parameter and buffer with all of its names."""
    names: dict[int, list[str]] = {}
    tensors: dict[int, torch.Tensor] = {}
    for held in named_registered_tensors(walked, walked.all_paths()):
        names.setdefault(id(held.tensor), []).append(held.name)
        tensors[id(held.tensor)] = held.tensor
    return [(tensors[key], tuple(every)) for key, every in names.items()]


def _tensor_target(held: dict[str, ModelTensor], names: dict[int, set[str]], edit: TensorEdit) -> TensorTarget:
    missing = next((name for name in edit.names if name not in held), None)
    if missing is not None:
        raise CutError(
            f"the model has no tensor {printable(missing)!r}: {closest_match_hint(missing, held)}; plan for this model"
        )
    entries = [held[name] for name in edit.names]
    tensor = entries[0].tensor
    if any(each.tensor is not tensor for each in entries):
        raise CutError(f"{' and '.join(map(printable, edit.names))} are not one tensor any more: plan for this model")
    if unknown := names[id(tensor)].difference(edit.names):
        raise CutError(
            f"{printable(edit.names[0])} is {printable(min(unknown))} too, which is not so in the plan: plan again"
        )
    check_sliceable(edit.names[0], tensor)
    if edit.values is not None and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool):
        raise CutError(f"{printable(edit.names[0])} is {tensor.dtype}, and holds no indices: plan for this model")
    if tuple(tensor.shape) != edit.shape:
        raise CutError(
            f"{printable(edit.names[0])} has shape {list(tensor.shape)} where {list(edit.shape)} is expected: "
            "undo the cut that changed it, or plan again",
        )
    owners = tuple((each.state, each.attribute) for each in entries if each.kind != ATTRIBUTE)
    return TensorTarget(edit, tensor, owners, tuple(each for each in entries if each.kind == ATTRIBUTE))


def check_sliceable(name: str, tensor: torch.Tensor) -> None:
    """Raise `CutError` for a tensor that cannot be sliced, by its name."""
    if nn.parameter.is_lazy(tensor):
        raise CutError(f"{printable(name)} has no shape before the first forward pass: run one, and plan again")
    if not has_strided_memory(tensor):
        layout = str(tensor.layout).removeprefix("torch.")
        raise CutError(
            f"{printable(name)} is a {layout} {printable(type(tensor).__name__)}: only dense tensors can be sliced"
        )


class ChangedAttributeError(CutError):
    """An attribute that has another value than when the edit was made; `path` names it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def locate_attributes(model: nn.Module | Walk, edits: Edits) -> list[AttributeTarget]:
    """The edited attributes of a model; raises `CutError` if the model does not match the edits.

    Only what lies in the instance dictionaries of modules and of the plain objects in them is reached.
    """
    walked = model if isinstance(model, Walk) else walk(model)
    states = {path: walked.states[index] for path, index in walked.all_paths()}
    targets = [_attribute_target(states, name, before, after) for name, (before, after) in edits.all_attributes.items()]
    becomes: dict[tuple[int, str], SizeValue] = {}  # a shared module has its attributes under several names
    for setting, name in zip(targets, edits.all_attributes, strict=True):
        if becomes.setdefault((id(setting.state), setting.name), setting.after) != setting.after:
            raise CutError(
                f"{printable(name)} is one attribute under several names, which differ in the plan: plan again"
            )
    return targets


def is_plain_object(value: object) -> bool:
    """True if a value is a plain object that may hold sizes, as a configuration, and no code."""
    other = torch.Tensor | nn.Module | type | FunctionType | MethodType | ModuleType | torch.dtype | torch.device
    return not isinstance(value, other) and type(getattr(value, "__dict__", None)) is dict


def _attribute_target(
    states: Mapping[str, Attributes], path: str, before: SizeValue, after: SizeValue
) -> AttributeTarget:
    parts = path.split(".")
    home = next(at for at in range(len(parts) - 1, -1, -1) if ".".join(parts[:at]) in states)
    state = states[".".join(parts[:home])]
    holder = None
    for name in parts[home:-1]:
        if holder is not None or not is_plain_object(state.get(name)):
            raise CutError(f"the model has no {printable(path)!r}, which the plan changes: plan for this model")
        holder = state[name]
        state = vars(holder)
    now = state.get(parts[-1])
    if isinstance(now, list):  # a plan that was saved knows tuples only
        before, after = (list(value) if isinstance(value, tuple) else value for value in (before, after))
    kinds = [int if isinstance(value, np.integer) else type(value) for value in (now, before)]
    if kinds[0] is not kinds[1] or now != before:
        raise ChangedAttributeError(
            path,
            f"{printable(path)} is {printable(repr(now))} where {printable(repr(before))} is expected: "
            "undo the cut that changed it, or plan again",
        )
    return AttributeTarget(state, parts[-1], before, after, holder)
