"""Mutations of a model that keep it valid: depth, width, blocks, activations, norms, kernels, attention heads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.knowledge.suggestion.candidates import Builder, ForwardPass, Shape
from modulekg_widgets.engine.knowledge.suggestion.resizing import ModuleResize, reset_weights
from modulekg_widgets.engine.torch_runtime.private import modules_of

MAX_PERIOD = 3  # siblings that repeat together, such as convolution, norm and activation
ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "SiLU": nn.SiLU,
    "GELU": nn.GELU,
    "Hardswish": nn.Hardswish,
    "LeakyReLU": nn.LeakyReLU,
    "ELU": nn.ELU,
}
CONTAINERS = (nn.Sequential, nn.ModuleList)
KERNEL_SIZES = (3, 5, 7)
MIN_HEAD_WIDTH = 8  # width of a head


@dataclass(frozen=True, slots=True)
class DepthChange:
    """Repeats (if `repeat`) or drops `length` consecutive children of a container, from position `first` on."""

    path: str
    first: int
    length: int
    repeat: bool

    def apply(self, model: nn.Module, builders: Mapping[str, Builder]) -> None:
        container = model.get_submodule(self.path)
        items = list(modules_of(container).items())
        segment = items[self.first : self.first + self.length]
        behind = self.first + self.length
        if self.repeat:
            copies = [(name, deepcopy(module)) for name, module in segment]
            for _, module in copies:
                if module is not None:
                    reset_weights(module)
            items[behind:behind] = copies
        else:
            del items[self.first : behind]
        modules_of(container).clear()
        modules_of(container).update(_renumber(items))

    def __str__(self) -> str:
        last = self.first + self.length - 1
        which = f"{self.path}[{self.first}]" if last == self.first else f"{self.path}[{self.first}…{last}]"
        return f"{'repeat' if self.repeat else 'drop'} {which}"


@dataclass(frozen=True, slots=True)
class WidthChange:
    """Scales all channel counts by a factor; `changes` holds the new sizes of each layer."""

    factor: float
    changes: tuple[ModuleResize, ...] = field(repr=False)

    def apply(self, model: nn.Module, builders: Mapping[str, Builder]) -> None:
        for change in self.changes:
            change.apply(model)

    def __str__(self) -> str:
        return f"width × {self.factor:g}"


@dataclass(frozen=True, slots=True)
class BlockSwap:
    """Replaces the block at `path` by the block at `donor_path` of the known model `donor`."""

    path: str
    donor: str
    donor_path: str

    def apply(self, model: nn.Module, builders: Mapping[str, Builder]) -> None:
        block = builders[self.donor]().get_submodule(self.donor_path)
        parent, _, name = self.path.rpartition(".")
        model.get_submodule(parent).add_module(name, block)

    def __str__(self) -> str:
        return f"{self.path} := {self.donor_path} of {self.donor}"


@dataclass(frozen=True, slots=True)
class LayerSwap:
    """Replaces one class of layers by another, everywhere: activations, or batch norms by group norms."""

    old: str
    new: str

    def apply(self, model: nn.Module, builders: Mapping[str, Builder]) -> None:
        _replace_layers(model, getattr(nn, self.old), _group_norm if self.new == "GroupNorm" else self._activation)

    def _activation(self, old: nn.Module) -> nn.Module:
        new = ACTIVATIONS[self.new]()
        if hasattr(new, "inplace") and hasattr(old, "inplace"):
            new.inplace = old.inplace
        return new

    def __str__(self) -> str:
        return f"{self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class KernelChange:
    """Changes the kernel size of a convolution, with padding that keeps the output shape."""

    path: str
    size: int

    def apply(self, model: nn.Module, builders: Mapping[str, Builder]) -> None:
        old: Any = model.get_submodule(self.path)
        new = type(old)(
            old.in_channels, old.out_channels, self.size, old.stride, self.size // 2, 1, old.groups,
            old.bias is not None, old.padding_mode, old.weight.device, old.weight.dtype,
        )  # fmt: skip
        parent, _, name = self.path.rpartition(".")
        modules_of(model.get_submodule(parent))[name] = new.train(old.training)

    def __str__(self) -> str:
        return f"{self.path} with a kernel of {self.size}"


@dataclass(frozen=True, slots=True)
class HeadCountChange:
    """Changes the number of heads in each attention of a class; their total width stays."""

    kind: str  # the qualified class
    old: int
    new: int

    def apply(self, model: nn.Module, builders: Mapping[str, Builder]) -> None:
        for module in model.modules():
            if _attention_heads(module) == (self.kind, self.old):
                _set_head_count(module, self.new)

    def __str__(self) -> str:
        return f"{self.old} heads → {self.new}"


Mutation = DepthChange | WidthChange | BlockSwap | LayerSwap | KernelChange | HeadCountChange


def _attention_heads(module: nn.Module) -> tuple[str, int] | None:
    """Returns class and number of heads of an attention module; None for other modules."""
    count, width = getattr(module, "num_heads", None), getattr(module, "head_dim", None)
    if type(count) is not int or type(width) is not int or min(count, width) < 1:
        return None
    return f"{type(module).__module__}.{type(module).__qualname__}", count


def _set_head_count(module: Any, count: int) -> None:
    width = module.num_heads * module.head_dim // count
    scale = getattr(module, "scale", None)
    if isinstance(scale, float) and math.isclose(scale, module.head_dim**-0.5, rel_tol=1e-3):
        module.scale = width**-0.5
    module.num_heads, module.head_dim = count, width


def _group_norm(module: Any) -> nn.Module:
    size = next(size for size in range(min(16, module.num_features), 0, -1) if module.num_features % size == 0)
    device = module.weight.device if module.weight is not None else None
    return nn.GroupNorm(module.num_features // size, module.num_features, module.eps, module.affine, device=device)


def _replace_layers(model: nn.Module, kind: type, make: Callable[[nn.Module], nn.Module]) -> None:
    for parent in list(model.modules()):
        for name, child in list(modules_of(parent).items()):
            if child is not None and type(child) is kind:
                modules_of(parent)[name] = make(child)


def _renumber(items: list[tuple[str, nn.Module | None]]) -> Iterator[tuple[str, nn.Module | None]]:
    """Yields the children renamed with consecutive numbers, without duplicate names."""
    seen: set[str] = set()
    every = all(name.isdigit() for name, _ in items)
    for index, (name, module) in enumerate(items):
        if every:
            name = str(index)
        stem, number = re.fullmatch(r"(.*?)(\d*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
        count = int(number or 1)
        while name in seen:
            count += 1
            name = f"{stem}{count}"
        seen.add(name)
        yield name, module


# ----------------------------------------------------------------- proposals


@dataclass(frozen=True, slots=True)
class DonorBlock:
    """A block of a known model that contains a weight matrix and keeps the shape of its input."""

    model: str
    path: str
    shape: Shape
    kind: str


def depth_changes(model: nn.Module, run: ForwardPass) -> list[DepthChange]:
    """Returns segments of containers that keep the shape, with the same classes right before or behind them."""
    found: list[DepthChange] = []
    for path, container in model.named_modules():
        if not isinstance(container, CONTAINERS):
            continue
        prefix = f"{path}." if path else ""
        names, kinds = list(modules_of(container)), [type(child) for child in modules_of(container).values()]
        for length in range(1, MAX_PERIOD + 1):
            for first in range(len(names) - length + 1):
                segment = kinds[first : first + length]
                again = segment in (kinds[first + length : first + 2 * length], kinds[max(first - length, 0) : first])
                ends = prefix + names[first], prefix + names[first + length - 1]
                weighs = any(
                    _has_parameters(model.get_submodule(prefix + name)) for name in names[first : first + length]
                )
                if again and weighs and _same_shape(run, *ends):
                    found += [DepthChange(path, first, length, more) for more in (True, False)]
    return found


def donor_blocks(name: str, model: nn.Module, run: ForwardPass) -> list[DonorBlock]:
    """Returns the blocks of a model with several layers that keep the shape of their input.

    What repeats in the model tells which these are: not their parts, nor stages.
    """
    found: list[DonorBlock] = []
    known = hierarchy(model)
    levels = known.levels("repetition")
    for path, module in model.named_modules():
        is_block = path and levels[known[path].index] == "block"
        if is_block and modules_of(module) and _has_matrix(module) and _same_shape(run, path, path):
            found.append(DonorBlock(name, path, run.input_shapes[path][0], type(module).__qualname__))
    return found


def block_swaps(name: str, model: nn.Module, run: ForwardPass, library: list[DonorBlock]) -> list[BlockSwap]:
    """Returns for each block of the model the blocks of known models with the same number of channels.

    That one gives in its new place what the old one gave is seen when the whole model runs.
    """
    return [
        BlockSwap(own.path, other.model, other.path)
        for own in donor_blocks(name, model, run)
        for other in library
        if other.kind != own.kind
        and _channels(own.shape) == _channels(other.shape)
        and not (other.model == name and _is_nested(own.path, other.path))
    ]


def _is_nested(one: str, other: str) -> bool:
    """True if one path is inside of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def layer_swaps(model: nn.Module) -> list[LayerSwap]:
    kinds = {type(module) for module in model.modules()}
    used = [name for name in ACTIVATIONS if getattr(nn, name) in kinds]
    found = [LayerSwap(old, new) for old in used for new in ACTIVATIONS if new != old]
    return [*found, *([LayerSwap("BatchNorm2d", "GroupNorm")] if nn.BatchNorm2d in kinds else [])]


def _channels(shape: Shape) -> tuple[int, int]:
    """Number of dimensions, and the channels: the second of images, the last of sequences."""
    return len(shape), shape[1] if len(shape) == 4 else shape[-1]


def kernel_changes(model: nn.Module) -> list[KernelChange]:
    """Returns other odd kernel sizes of convolutions whose padding keeps the output shape."""
    found: list[KernelChange] = []
    for path, module in model.named_modules():
        if not path or type(module) is not nn.Conv2d or len(set(module.kernel_size)) > 1:
            continue
        size = module.kernel_size[0]
        if size in KERNEL_SIZES and module.padding == (size // 2, size // 2) and module.dilation == (1, 1):
            found += [KernelChange(path, other) for other in KERNEL_SIZES if other != size]
    return found


def head_count_changes(model: nn.Module) -> list[HeadCountChange]:
    """Returns half and twice as many heads, where these divide the width."""
    known = {each: module for module in model.modules() if (each := _attention_heads(module)) is not None}
    found: list[HeadCountChange] = []
    for (kind, count), module in known.items():
        width: Any = module.head_dim
        found += [HeadCountChange(kind, count, 2 * count)] if width % 2 == 0 and width > 2 * MIN_HEAD_WIDTH else []
        found += [HeadCountChange(kind, count, count // 2)] if count % 2 == 0 else []
    return found


def _has_matrix(module: nn.Module) -> bool:
    """True if the module contains a parameter of two or more dimensions."""
    return any(parameter.dim() > 1 for parameter in module.parameters())


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _same_shape(run: ForwardPass, first: str, last: str) -> bool:
    given, taken = run.output_shapes.get(last, ()), run.input_shapes.get(first, ())
    return len(given) == len(taken) == 1 and given == taken
