"""Scaling of the widths of a model: new sizes of the free axes, tensors and attributes of each module."""

from __future__ import annotations

import math
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from modulekg_widgets.engine.axes.attributes import changed_attributes
from modulekg_widgets.engine.axes.axis import Axes
from modulekg_widgets.engine.axes.graph import trace
from modulekg_widgets.engine.axes.terms.algebra import SUM, Term, atoms, find
from modulekg_widgets.engine.axes.terms.term_positions import remaining_size
from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.knowledge.facts.traced import CallArguments
from modulekg_widgets.engine.torch_runtime.modules import module_state
from modulekg_widgets.engine.torch_runtime.private import RESET_PARAMETERS, buffers_of, parameters_of
from modulekg_widgets.engine.torch_runtime.pytree import with_tensors

Shape = tuple[int, ...]
AxisSizes = dict[Term, int]  # the new sizes of axes
CHANNEL_MULTIPLE = 8  # channel counts are multiples of it


@dataclass(frozen=True, slots=True)
class ModuleResize:
    """New attributes and tensor shapes of one module."""

    path: str
    attributes: tuple[tuple[str, object], ...]
    shapes: tuple[tuple[str, Shape], ...]

    def apply(self, model: nn.Module) -> None:
        module = model.get_submodule(self.path)
        for name, value in self.attributes:
            setattr(module, name, value)
        for name, shape in self.shapes:
            _set_tensor(module, name, shape)
        reset_weights(module, recurse=False)


def reset_weights(module: nn.Module, recurse: bool = True) -> None:
    """Initialises weights anew by `reset_parameters`, where modules have it and their tensors are real."""
    for each in module.modules() if recurse else (module,):
        again = getattr(each, "reset_parameters", None) or getattr(each, RESET_PARAMETERS, None)
        if callable(again) and not any(tensor.is_meta for tensor in _direct_tensors(each).values()):
            again()


def resize_model(model: nn.Module, call: CallArguments, factor: float) -> list[ModuleResize] | None:
    """Scales a model on the meta device in place, and returns the changes; None if they do not fit together.

    Its inputs and outputs keep their sizes. Where the code of the model itself holds channel counts, the attributes of
    its own modules that are one of them are scaled, too.
    """
    for training in (True, False):  # heads that are for training alone run in it; not every model does
        axes = _axes(model, call, training)
        if axes is not None:
            break
    else:
        return None
    counts = _scaled_sizes(axes, factor)
    try:
        said = changed_attributes(axes, counts)
    except ModuleKGError:  # an adapter of a user's that cannot say
        return None
    for own in ({}, _scaled_attributes(model, axes, counts)):
        changes = _changes(axes, counts, {**own, **{name: after for name, (_, after) in said.items()}})
        tried = deepcopy(model)
        for change in changes:
            change.apply(tried)
        if changes and runs_forward(tried, call, training):
            for change in changes:
                change.apply(model)
            return changes
    return None


def runs_forward(model: nn.Module, call: CallArguments, training: bool) -> bool:
    """True if a model on the meta device runs in that mode."""
    try:
        with torch.no_grad():
            args, kwargs = _double_batch(call) if training else call
            model.train(training)(*args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever a forward pass raises, it does not run
        return False
    return True


def _double_batch(call: CallArguments) -> CallArguments:
    """Returns the call with a batch of twice the size, which norms need in training."""
    return with_tensors(call, lambda tensor: tensor if tensor.dim() == 0 else torch.cat([tensor, tensor]))


def _axes(model: nn.Module, call: CallArguments, training: bool) -> Axes | None:
    """The axes of one forward pass; None where the model does not run."""
    try:
        args, kwargs = _double_batch(call) if training else call
        return trace(model, args, dict(kwargs), training=training).axes
    except (ModuleKGError, RuntimeError, ValueError):
        return None


# --------------------------------------------------------------------- sizes


def _scaled_sizes(axes: Axes, factor: float) -> AxisSizes:
    """Returns the new sizes of the free axes, multiples of eight and of the number of heads.

    Heads stay and are made wider or narrower; groups become more or fewer, where that goes, and their width stays.
    Axes whose order could not be aligned are of one size where they meet: those of one size get one new size.
    """
    steps = _steps(axes)
    counts: AxisSizes = {}
    unaligned: dict[int, int] = {}
    kept: set[Term] = set()
    # an order of indices that cannot be followed is of no concern to sizes
    free = [axis for axis in axes if axis.term.frozen is None or axis.term.frozen.order_only]
    heads = {axis.term for axis in axes if axis.role == "heads"}
    grouped = [axis for axis in free if axis.role == "groups"]
    for axis in [*grouped, *(axis for axis in free if axis.role not in ("groups", "heads"))]:
        dims = [find(axes.inference.dims(node)[at]) for node, at in axis.tensor_dims]
        whole = min(dims, key=lambda term: (term.size, term.kind != SUM))
        if axis.term in kept or whole.size < CHANNEL_MULTIPLE:
            continue
        scaled = [atom.size for atom in atoms(whole) if atom not in heads]
        unit = math.gcd(*scaled) if whole.kind == SUM else axis.size
        step = math.lcm(1 if whole.kind == SUM else CHANNEL_MULTIPLE, whole.size // unit, *steps[axis.term])
        count = axis.size * max(step, step * round(whole.size * factor / step)) // whole.size
        counts[axis.term] = count if axis.term.frozen is None else unaligned.setdefault(axis.size, count)
        if axis in grouped:
            kept.update(atom for term in dims for atom in atoms(term))
    return counts


def _steps(axes: Axes) -> dict[Term, set[int]]:
    """Returns for axes that attention projects the numbers of heads, of which they are multiples."""
    found: dict[Term, set[int]] = defaultdict(set)
    for axis in axes.free:
        if axis.role == "heads":
            for node, _ in axis.tensor_dims:
                for term in axes.inference.dims(node):
                    for atom in atoms(term):
                        found[atom].add(axis.size)
    return found


# ------------------------------------------------------------------- changes


def _changes(axes: Axes, counts: AxisSizes, attributes: dict[str, object]) -> list[ModuleResize]:
    """The new shapes of tensors and values of attributes by module, the inner modules first."""
    shapes: dict[str, dict[str, Shape]] = defaultdict(dict)
    values: dict[str, dict[str, object]] = defaultdict(dict)
    for name, node in axes.graph.state.items():
        shape = tuple(remaining_size(term, counts) for term in axes.inference.dims(node))
        if shape != node.shape:
            path, _, own = name.rpartition(".")
            shapes[path][own] = shape
    for name, value in attributes.items():
        path, _, own = name.rpartition(".")
        values[path][own] = value
    paths = sorted({*shapes, *values}, key=lambda path: (-path.count(".") - bool(path), path))
    return [ModuleResize(path, tuple(values[path].items()), tuple(shapes[path].items())) for path in paths]


def _scaled_attributes(model: nn.Module, axes: Axes, counts: AxisSizes) -> dict[str, int]:
    """Returns integer attributes of the model's own modules that equal a scaled size, with the new size."""
    sizes: dict[int, set[int]] = defaultdict(set)
    dims = {term for node in axes.graph.state.values() for term in axes.inference.dims(node)}
    for term in [*dims, *counts]:
        sizes[term.size].add(remaining_size(term, counts))
    after = {
        size: (found - {size}).pop()
        for size, found in sizes.items()
        if size >= CHANNEL_MULTIPLE and len(found - {size}) == 1
    }
    return {
        f"{path}.{name}" if path else name: after[value]
        for path, module in model.named_modules()
        if not type(module).__module__.startswith("torch.nn.")
        for name, value in module_state(module).items()
        if type(value) is int and value in after
    }


def _direct_tensors(module: nn.Module) -> dict[str, Tensor]:
    every = {**parameters_of(module), **buffers_of(module)}
    return {name: tensor for name, tensor in every.items() if tensor is not None}


def _set_tensor(module: nn.Module, name: str, shape: Shape) -> None:
    """Sets a tensor of another shape under that name, filled with repeated values of the old one."""
    old = getattr(module, name)
    if tuple(old.shape) == shape:
        return
    new = old.detach()
    if new.is_meta or new.dim() != len(shape):
        new = torch.empty(shape, dtype=old.dtype, device=old.device)
    else:
        for dim, size in enumerate(shape):
            new = new.index_select(dim, torch.arange(size, device=new.device) % new.shape[dim])
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new.clone(), requires_grad=old.requires_grad)
    setattr(module, name, new)
