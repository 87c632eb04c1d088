"""Low-rank adapters: a frozen layer plus a trainable update of small rank.

h = W x + (alpha / rank) B A x with W frozen, A random and B zero (Hu et al. 2021, section 4.1, arXiv 2106.09685). For a
convolution A has its kernel and B is pointwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from modulekg_widgets.engine.adapters import CONVOLUTIONS
from modulekg_widgets.engine.errors import RewritingError, printable
from modulekg_widgets.engine.identity.walk import walk
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.recipes.replaceable_layers import (
    ReplaceableLayers,
    accumulation_dtype,
    clone_module,
    modules_by_name,
    torch_class,
)
from modulekg_widgets.engine.rewriting.replace import replace_layers, replace_modules
from modulekg_widgets.engine.rewriting.undo import Recipe, Rewrite
from modulekg_widgets.engine.torch_runtime.private import parameters_of
from modulekg_widgets.engine.torch_runtime.rng import seeded_generator

ADAPTED = (*CONVOLUTIONS, nn.Linear)


class LowRank(nn.Module):
    """A frozen `base` layer plus `scale` times `up` after `down`, which alone are trained."""

    def __init__(self, base: nn.Module, down: nn.Module, up: nn.Module, scale: float, trained: Iterable[str]) -> None:
        super().__init__()
        self.base: Any = base
        self.down: Any = down
        self.up: Any = up
        self.scale = scale
        self.trained = frozenset(trained)  # the parameters of the base that were trained before

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.base(input) + self.scale * self.up(self.down(input))

    @property
    def weight(self) -> torch.Tensor:
        """The merged weight of base and update, for code that reads the weight without calling the layer."""
        base, down, up = self.base.weight, self.down.weight, self.up.weight
        return base + self.scale * (up.flatten(1) @ down.flatten(1)).view_as(base)

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of the base."""
        return self.base.bias

    def extra_repr(self) -> str:
        return f"rank={len(self.down.weight)}, scale={self.scale:g}"


class Adapted(NamedTuple):
    """A layer with an adapter: its rank and the trainable parameters before and after."""

    name: str
    rank: int
    before: int
    after: int


class Adaptation(Recipe):
    """The result of `low_rank`: the layers with adapters; `undo()` reverts it.

    Attributes
    ----------
    layers : tuple of Adapted
        One for each layer.
    trainable : (int, int)
        Trainable parameters of the whole model before and after.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> adaptation = mk.rewrite.low_rank(nn.Sequential(nn.Linear(16, 16)), rank=2)
    >>> adaptation.trainable
    (272, 64)
    >>> adaptation.merge().names
    ['0']
    """

    layers: tuple[Adapted, ...]
    trainable: tuple[int, int]

    def merge(self) -> Rewrite:
        """Put plain layers with the merged weights in the adapters' places; its `undo()` brings the adapters back."""
        return merge_low_rank(self.model)

    def headline(self) -> str:
        return f"{len(self.layers)} layers, {self.trainable[0]:,} → {self.trainable[1]:,} trainable parameters"

    def lines(self) -> Iterator[str]:
        yield from (f"{printable(name)}: rank {rank}, {old:,} → {new:,}" for name, rank, old, new in self.layers)


@explain_keywords("mk.rewrite.low_rank")
def low_rank(
    model: nn.Module,
    names: Iterable[str] | str | None = None,
    *,
    rank: int = 8,
    alpha: float | None = None,
    seed: int = 0,
    args: object = None,
    kwargs: Mapping[str, object] | None = None,
    check: bool = True,
) -> Adaptation:
    """Freeze linear layers and convolutions and give each a trainable update of rank `rank`, in place.

    The frozen weight shares the memory of the old one; other layers keep their `requires_grad`. The update begins at
    zero, so outputs are the same at first.

    Parameters
    ----------
    model : nn.Module
        The model.
    names : str or iterable of str, optional
        The layers; None for all linear layers that `rank` makes smaller.
    rank : int
        Of the update, at least 1.
    alpha : float, optional
        The update is scaled by `alpha / rank`; by 1 for None.
    seed : int
        Of the random factor.
    args, kwargs : tuple and dict, optional
        Inputs on which the new model's forward is tried.
    check : bool
        Whether it must then give the same shapes.

    Returns
    -------
    Adaptation
        The layers, and the way back.

    Raises
    ------
    UnknownPathError
        For a name that does not exist.
    RewritingError
        For a named layer that cannot be adapted; nothing is changed then.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(16, 16))
    >>> adaptation = mk.rewrite.low_rank(model, rank=2)
    >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
    64
    """
    if not isinstance(rank, int) or rank < 1:
        raise RewritingError(f"rank is {printable(repr(rank))}: pass a whole number of at least 1")
    scale = 1.0 if alpha is None else _scale(alpha, rank)
    layers = ReplaceableLayers(model)
    chosen = _smaller(layers, rank) if names is None else modules_by_name(model, names, layers)
    for name, module in chosen.items():
        if why := rejection_reason(module, layers):
            raise RewritingError(f"{printable(name) or 'the model'} cannot get a low-rank update: {why}")
    generator = seeded_generator(seed)
    with torch.inference_mode(False), torch.no_grad():
        new = {name: add_adapter(module, rank, scale, generator) for name, module in chosen.items()}
    before = _trainable(model)
    rewrite = replace_layers(model, new, args, kwargs, check)
    rows = [Adapted(name, rank, _trainable(chosen[name]), _trainable(made)) for name, made in new.items()]
    after = before + sum(row.after - row.before for row in rows)
    return Adaptation(rewrite, layers=tuple(rows), trainable=(before, after))


def merge_low_rank(model: nn.Module) -> Rewrite:
    """Replace every `LowRank` of a model, in place, by a plain layer that computes the same.

    Parameters
    ----------
    model : nn.Module
        The model.

    Returns
    -------
    Rewrite
        What was replaced, and the way back.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(16, 16))
    >>> adaptation = mk.rewrite.low_rank(model, rank=2)
    >>> mk.rewrite.merge_low_rank(model).names, model[0]
    (['0'], Linear(in_features=16, out_features=16, bias=True))
    """
    walked = walk(model)
    found = {walked.path(i): module for i, module in enumerate(walked.modules) if isinstance(module, LowRank)}
    with torch.inference_mode(False), torch.no_grad():
        new = {name: merge_adapter(module) for name, module in found.items()}
    return replace_modules(model, new, check=False)


def add_adapter(layer: Any, rank: int, scale: float, generator: torch.Generator) -> LowRank:
    """The layer, frozen, with an update of zero."""
    weight = layer.weight
    base = clone_module(layer)
    for name in ("weight", "bias"):
        if (own := parameters_of(base)[name]) is not None:
            parameters_of(base)[name] = nn.Parameter(own.detach(), requires_grad=False)
    down, up = _factors(layer, rank, {"device": weight.device, "dtype": weight.dtype})
    # what nn.Linear starts with; the generator is on the CPU, so that every device gets the same numbers
    bound = 1 / math.sqrt(math.prod(down.weight.shape[1:]))
    drawn = torch.empty(down.weight.shape, device="cpu").uniform_(-bound, bound, generator=generator)
    down.weight.copy_(drawn)
    up.weight.zero_()
    trained = [name for name, own in parameters_of(layer).items() if own is not None and own.requires_grad]
    return LowRank(base, down, up, scale, trained).train(layer.training)


def merge_adapter(adapter: LowRank) -> nn.Module:
    """A plain layer of the base's class with the update in its weight; the arithmetic is rounded once."""
    new, base = clone_module(adapter.base), adapter.base.weight
    dtype = accumulation_dtype(base)
    update = adapter.up.weight.to(dtype).flatten(1) @ adapter.down.weight.to(dtype).flatten(1)
    weight = torch.empty_like(base).copy_(base.to(dtype) + adapter.scale * update.view_as(base))
    parameters_of(new)["weight"] = nn.Parameter(weight, "weight" in adapter.trained)
    if adapter.base.bias is not None:
        parameters_of(new)["bias"] = nn.Parameter(adapter.base.bias.detach().clone(), "bias" in adapter.trained)
    return new.train(adapter.training)


def rejection_reason(module: nn.Module, layers: ReplaceableLayers) -> str:
    """Returns the reason why a module cannot get an adapter; else an empty text."""
    why = layers.rejection_reason(module, ADAPTED)
    if why:
        return why
    if type(module) not in ADAPTED:
        return f"{printable(type(module).__name__)} is a subclass, whose weight others may read"
    if isinstance(layers.parent(module), LowRank):
        return "it is part of a low-rank update: merge that first"
    if getattr(module, "groups", 1) != 1:
        return f"it has {module.groups} groups"
    return ""


def _smaller(layers: ReplaceableLayers, rank: int) -> dict[str, nn.Module]:
    """The linear layers whose update is smaller than their weight."""
    return {
        path: module
        for path, module in layers
        if isinstance(module, nn.Linear) and not rejection_reason(module, layers)
        and rank * sum(module.weight.shape) < module.weight.numel()
    }  # fmt: skip


def _factors(layer: Any, rank: int, options: dict[str, Any]) -> tuple[Any, Any]:
    """`down` to `rank` channels and `up` from them, with weights that are still to be set."""
    cls = torch_class(layer, ADAPTED)
    assert cls is not None
    if cls is nn.Linear:
        down = nn.utils.skip_init(cls, layer.in_features, rank, bias=False, **options)
        return down, nn.utils.skip_init(cls, rank, layer.out_features, bias=False, **options)
    down = nn.utils.skip_init(
        cls, layer.in_channels, rank, layer.kernel_size, stride=layer.stride, padding=layer.padding,
        dilation=layer.dilation, bias=False, padding_mode=layer.padding_mode, **options,
    )  # fmt: skip
    return down, nn.utils.skip_init(cls, rank, layer.out_channels, 1, bias=False, **options)


def _scale(alpha: float, rank: int) -> float:
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise RewritingError(f"alpha is {printable(repr(alpha))}: pass a finite number")
    return alpha / rank


def _trainable(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
