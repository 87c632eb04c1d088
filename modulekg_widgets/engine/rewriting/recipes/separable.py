"""Depthwise-separable convolutions in place of dense ones, with the nearest weights.

A dense kernel W[o, i, k] becomes pointwise P[o, i] times depthwise D[i, k]. For each input channel i these are the best
approximation of the matrix W[:, i, :] of rank 1, from its largest singular value and vectors (Eckart and Young 1936);
with a multiplier m the m largest, that is m depthwise filters for each channel (Guo et al. 2018, "Network Decoupling",
arXiv 1808.05517).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.adapters import CONVOLUTIONS
from modulekg_widgets.engine.errors import RewritingError, printable
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.recipes.replaceable_layers import (
    ReplaceableLayers,
    accumulation_dtype,
    modules_by_name,
    torch_class,
)
from modulekg_widgets.engine.rewriting.replace import replace_layers
from modulekg_widgets.engine.rewriting.undo import Recipe


class Separated(NamedTuple):
    """A convolution that was separated: the error of its weight, relative, None on meta; its parameters."""

    name: str
    error: float | None
    before: int
    after: int


class Separation(Recipe):
    """The result of `depthwise_separable`: the replaced convolutions; `undo()` reverts it.

    Attributes
    ----------
    layers : tuple of Separated
        (name, relative error of the weight, parameters before, after) of each.
    parameters : (int, int)
        The parameters of the rewritten layers before and after.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> mk.rewrite.depthwise_separable(nn.Sequential(nn.Conv2d(8, 8, 3))).parameters
    (584, 144)
    """

    layers: tuple[Separated, ...]

    @property
    def parameters(self) -> tuple[int, int]:
        """The parameters of the rewritten layers before and after."""
        return sum(layer.before for layer in self.layers), sum(layer.after for layer in self.layers)

    def headline(self) -> str:
        return f"{len(self.layers)} convolutions, {self.parameters[0]:,} → {self.parameters[1]:,} parameters"

    def lines(self) -> Iterator[str]:
        for name, error, before, after in self.layers:
            relative = "" if error is None else f", error of the weight {error:.1%}"
            yield f"{printable(name)}: {before:,} → {after:,} parameters{relative}"


@explain_keywords("mk.rewrite.depthwise_separable")
def depthwise_separable(
    model: nn.Module,
    names: Iterable[str] | str | None = None,
    *,
    multiplier: int = 1,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    check: bool = True,
) -> Separation:
    """Replace dense convolutions, in place, by a depthwise and a pointwise one in an `nn.Sequential`.

    Dense: one group, several input channels, a kernel larger than 1. Stride, padding, dilation, padding mode, bias,
    dtype and device stay; the weights are the nearest with `multiplier` filters for each input channel.

    Parameters
    ----------
    model : nn.Module
        The model.
    names : str or iterable of str, optional
        The convolutions; None for all that get smaller.
    multiplier : int
        Filters for each input channel, at least 1.
    args, kwargs : tuple and dict, optional
        Inputs on which the new model's forward is tried.
    check : bool
        Whether it must then give the same shapes.

    Returns
    -------
    Separation
        The layers, and the way back.

    Raises
    ------
    UnknownPathError
        For a name that does not exist.
    RewritingError
        For a named layer that cannot be separated; nothing is changed then.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(8, 8, 3))
    >>> separation = mk.rewrite.depthwise_separable(model)
    >>> [type(module).__name__ for module in model[0]]
    ['Conv2d', 'Conv2d']
    """
    if not isinstance(multiplier, int) or multiplier < 1:
        raise RewritingError(f"multiplier is {printable(repr(multiplier))}: pass a whole number of at least 1")
    layers = ReplaceableLayers(model)
    chosen = _smaller(layers, multiplier) if names is None else modules_by_name(model, names, layers)
    for name, module in chosen.items():
        if why := rejection_reason(module, layers, multiplier):
            raise RewritingError(f"{printable(name) or 'the model'} cannot be made depthwise-separable: {why}")
    with torch.inference_mode(False), torch.no_grad():
        new = {name: separate(module, multiplier) for name, module in chosen.items()}
    rows = [Separated(name, _error(chosen[name], pair), _size(chosen[name]), _size(pair)) for name, pair in new.items()]
    return Separation(replace_layers(model, new, args, kwargs, check), layers=tuple(rows))


def separate(conv: Any, multiplier: int = 1) -> nn.Sequential:
    """A depthwise and a pointwise convolution that together come nearest to a dense one."""
    cls = torch_class(conv, CONVOLUTIONS)
    assert cls is not None
    weight = conv.weight
    depthwise, pointwise = _factors(weight, multiplier)
    inner = len(depthwise)
    options = {"device": weight.device, "dtype": weight.dtype}
    first: Any = nn.utils.skip_init(
        cls, conv.in_channels, inner, conv.kernel_size, stride=conv.stride, padding=conv.padding,
        dilation=conv.dilation, groups=conv.in_channels, bias=False, padding_mode=conv.padding_mode, **options,
    )  # fmt: skip
    second: Any = nn.utils.skip_init(cls, inner, conv.out_channels, 1, bias=conv.bias is not None, **options)
    for layer, values in ((first, depthwise), (second, pointwise)):
        layer.weight = nn.Parameter(layer.weight.copy_(values), weight.requires_grad)
    if conv.bias is not None:
        second.bias = nn.Parameter(conv.bias.detach().clone(), conv.bias.requires_grad)
    pair = nn.Sequential()
    pair.add_module("depthwise", first)
    pair.add_module("pointwise", second)
    return pair.train(conv.training)


def rejection_reason(module: Any, layers: ReplaceableLayers, multiplier: int = 1) -> str:
    """Returns the reason why a module cannot be made depthwise-separable; else an empty text."""
    why = layers.rejection_reason(module, CONVOLUTIONS)
    if why:
        return why
    if module.groups != 1:
        return f"it has {module.groups} groups already"
    if module.in_channels < 2:
        return "it has one input channel"
    size = math.prod(module.kernel_size)
    if size == 1:
        return "its kernel has the size 1"
    return f"multiplier is {multiplier}, its kernel has {size} entries" if multiplier > size else ""


def _smaller(layers: ReplaceableLayers, multiplier: int) -> dict[str, nn.Module]:
    """The convolutions that can be separated and have fewer weights then."""
    return {
        path: module
        for path, module in layers
        if torch_class(module, CONVOLUTIONS)
        and not rejection_reason(module, layers, multiplier)
        and _shrinks(module, multiplier)
    }


def _shrinks(conv: Any, multiplier: int) -> bool:
    size = math.prod(conv.kernel_size)
    return multiplier * (size + conv.out_channels) < size * conv.out_channels


def _factors(weight: torch.Tensor, multiplier: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The depthwise weight (inputs * multiplier, 1, *kernel) and the pointwise (outputs, inputs * multiplier, 1, …)."""
    outputs, inputs, *kernel = weight.shape
    matrices = weight.detach().to(accumulation_dtype(weight)).flatten(2).transpose(0, 1)  # inputs, outputs, kernel
    # the right singular vectors are eigenvectors of a small matrix; the left ones follow, multiplied by the values
    right = torch.linalg.eigh(matrices.mT @ matrices).eigenvectors.flip(-1)[..., :multiplier]
    left = matrices @ right
    scale = left.norm(dim=1).clamp_min(torch.finfo(left.dtype).tiny).sqrt()  # both factors get the same norm
    depthwise = (right * scale[:, None]).mT.reshape(inputs * multiplier, 1, *kernel)
    pointwise = (left / scale[:, None]).permute(1, 0, 2).reshape(outputs, inputs * multiplier, *(1 for _ in kernel))
    return depthwise, pointwise


def _error(conv: Any, pair: Any) -> float | None:
    """The norm of what the weight loses, relative to its own; None where there are no data."""
    weight = conv.weight.detach()
    if weight.is_meta:
        return None
    dtype = accumulation_dtype(weight)
    first, second = pair.depthwise.weight.detach().to(dtype), pair.pointwise.weight.detach().to(dtype)
    inputs = weight.shape[1]
    left = second.flatten(1).unflatten(1, (inputs, -1))
    right = first.flatten(1).unflatten(0, (inputs, -1))
    near = torch.einsum("oim,imk->oik", left, right)
    exact = weight.to(dtype).flatten(2)
    norm = exact.norm()
    return float((near - exact).norm() / norm) if norm else 0.0


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
