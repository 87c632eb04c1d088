"""Folding of batch norms into the layers before them, for eval mode.

A batch norm in eval mode is y = gamma (x - mean) / sqrt(var + eps) + beta per channel; behind a linear map that is one
factor and one shift per output channel of the map (Jacob et al. 2018, section 3.2, arXiv 1712.05877).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from modulekg_widgets.engine.adapters import NORMS
from modulekg_widgets.engine.errors import RewritingError, printable
from modulekg_widgets.engine.keywords import explain_keywords
from modulekg_widgets.engine.rewriting.recipes.replaceable_layers import (
    LAYERS,
    ModuleFlow,
    ReplaceableLayers,
    accumulation_dtype,
    clone_module,
    identity_like,
    runs_as,
    torch_class,
)
from modulekg_widgets.engine.rewriting.replace import replace_modules
from modulekg_widgets.engine.rewriting.undo import Recipe
from modulekg_widgets.engine.torch_runtime.hooks import has_hooks
from modulekg_widgets.engine.torch_runtime.private import BatchNorm, parameters_of
from modulekg_widgets.engine.tracing.dataflow import ModuleNode
from modulekg_widgets.engine.tracing.trace import trace_dataflow


class Unfolded(NamedTuple):
    """A batch norm that was not folded: the layer before it (or ""), the norm, and the reason."""

    layer: str
    norm: str
    why: str


class Folding(Recipe):
    """The result of `fold_conv_bn`: folded and skipped batch norms; `undo()` reverts it.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Layer and norm, by dotted name.
    skipped : tuple of Unfolded
        (layer, norm, why) of those that stay.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    >>> folding = mk.rewrite.fold_conv_bn(model, torch.ones(1, 4))
    >>> folding.pairs, folding.skipped
    ((('0', '1'),), ())
    >>> folding.undo()
    """

    pairs: tuple[tuple[str, str], ...]
    skipped: tuple[Unfolded, ...]

    def headline(self) -> str:
        return f"{len(self.pairs)} batch norms folded, {len(self.skipped)} not"

    def lines(self) -> Iterator[str]:
        for layer, norm, why in self.skipped:
            yield (
                f"{printable(layer)} + {printable(norm)}: not folded, {why}"
                if layer
                else f"{printable(norm)}: not folded, {why}"
            )
        yield from (f"{printable(layer)} + {printable(norm)}" for layer, norm in self.pairs)


@explain_keywords("mk.rewrite.fold_conv_bn")
def fold_conv_bn(model: nn.Module, args: object = (), kwargs: Mapping[str, object] | None = None) -> Folding:
    """Fold every batch norm that alone reads the output of a convolution or linear layer into it, in place.

    The layer becomes a new one of its class, of the same dtype, device and memory format, the norm `nn.Identity`.
    Layers that are tied, parametrised or hooked, that run code of their own, or that others read, stay and are listed
    in `.skipped`.

    Parameters
    ----------
    model : nn.Module
        The model, in eval mode.
    args, kwargs : tuple and dict
        Inputs that forward takes; who reads what is seen in one forward pass.

    Returns
    -------
    Folding
        What was folded, what not and why, and the way back.

    Raises
    ------
    RewritingError
        For a model or batch norm in training mode; the model is then as it was.
    TraceError
        When forward stops on the inputs.

    Examples
    --------
    >>> import modulekg_widgets as mk
    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
    >>> mk.rewrite.fold_conv_bn(model, torch.ones(1, 4))
    <Folding in Sequential: 1 batch norms folded, 0 not>
      0 + 1
    """
    layers = ReplaceableLayers(model)
    _check_mode(layers)
    flow = ModuleFlow(trace_dataflow(model, args, kwargs))
    new: dict[str, nn.Module] = {}
    pairs: list[tuple[str, str]] = []
    skipped: list[Unfolded] = []
    for layer, norm in _candidates(flow):
        why = _rejection_reason(layer, norm, flow, layers)
        if why:
            skipped.append(Unfolded(layer.path, norm.path, why))
            continue
        pairs.append((layer.path, norm.path))
        with torch.inference_mode(False), torch.no_grad():
            new[layer.path], new[norm.path] = fold_norm(layer.module, norm.module), identity_like(norm.module)
    skipped += _without_layer(flow, {norm for _, norm in pairs} | {entry.norm for entry in skipped})
    return Folding(replace_modules(model, new, check=False), pairs=tuple(pairs), skipped=tuple(skipped))


def fold_norm(layer: Any, norm: Any) -> nn.Module:
    """A new layer of the class of `layer` that computes what it and `norm` compute in eval mode.

    What there is one of for each channel is computed in float64; the weight is multiplied in float32 at least.
    """
    new = clone_module(layer)
    weight, bias = layer.weight, layer.bias
    dtype = accumulation_dtype(weight)
    mean, var = (tensor.to(dtype) for tensor in (norm.running_mean, norm.running_var))
    gamma, beta = (None if tensor is None else tensor.to(dtype) for tensor in (norm.weight, norm.bias))
    shift = None if bias is None else bias.to(dtype)
    ones = torch.ones_like(mean)[:, None]  # a weight of one input
    factor, shift = fuse_conv_bn_weights(ones, shift, mean, var, norm.eps, gamma, beta)
    made = _scaled(weight, factor.detach(), layer)
    shift = shift.detach().to(weight.dtype if bias is None else bias.dtype)
    parameters_of(new)["weight"] = nn.Parameter(made, weight.requires_grad)
    parameters_of(new)["bias"] = nn.Parameter(shift, weight.requires_grad if bias is None else bias.requires_grad)
    return new


def _scaled(weight: torch.Tensor, factor: torch.Tensor, layer: Any) -> torch.Tensor:
    """The weight with each output channel multiplied by its factor, in the weight's memory format."""
    factor = factor.to(torch.promote_types(weight.dtype, torch.float32))
    if not getattr(layer, "transposed", False):
        return (weight * factor.reshape(-1, *(1 for _ in weight.shape[1:]))).to(weight.dtype)
    # the outputs of a transposed convolution come second, those of each group beside the inputs of that group
    grouped = weight.unflatten(0, (layer.groups, -1))
    made = grouped * factor.reshape(layer.groups, 1, -1, *(1 for _ in weight.shape[2:]))
    return torch.empty_like(weight).copy_(made.flatten(0, 1))


def _check_mode(layers: ReplaceableLayers) -> None:
    for path, module in layers:
        if module.training and (path == "" or isinstance(module, BatchNorm)):
            raise RewritingError(
                f"{printable(path) or 'the model'} is in training mode, where a batch norm normalises by each batch: "
                "call "
                "model.eval(), then fold"
            )


def _candidates(flow: ModuleFlow) -> Iterator[tuple[ModuleNode, ModuleNode]]:
    """Each layer whose output a batch norm takes, with that norm."""
    for layer in flow.modules:
        if isinstance(layer.module, LAYERS):
            norms = (node for node in flow.readers(layer) if isinstance(node.module, BatchNorm))
            yield from ((layer, norm) for norm in dict.fromkeys(norms))


def _without_layer(flow: ModuleFlow, listed: set[str]) -> Iterator[Unfolded]:
    """The batch norms that take the output of no layer, as those that come before their convolution."""
    for node in flow.modules:
        if isinstance(node.module, BatchNorm) and node.path not in listed:
            why = "what it takes is not a layer's output" if node.calls else "it is not called"
            yield Unfolded("", node.path, why)


def _rejection_reason(layer: ModuleNode, norm: ModuleNode, flow: ModuleFlow, layers: ReplaceableLayers) -> str:
    """Returns the reason why a norm is not folded; else an empty text."""
    why = layers.rejection_reason(layer.module) or norm_rejection_reason(norm.module, layers)
    why = (
        why
        or flow.not_sequential_reason(layer, norm)
        or flow.external_read_reason(layer)
        or flow.external_read_reason(norm)
    )
    return why or channel_mismatch_reason(layer, norm)


def norm_rejection_reason(norm: nn.Module, layers: ReplaceableLayers) -> str:
    """Returns the reason why a batch norm is no fixed affine map in eval mode; else an empty text."""
    cls = torch_class(norm, NORMS)
    if cls is None or not runs_as(norm, cls):
        return f"{printable(type(norm).__name__)} overrides forward"
    if norm.running_mean is None or norm.running_var is None:
        return "the batch norm has no running statistics"
    if has_hooks(norm):
        return "the batch norm has hooks"
    if layers.is_in_plain_attribute(norm):
        return "a plain attribute holds the batch norm, too"
    return ""


def channel_mismatch_reason(layer: ModuleNode, norm: ModuleNode) -> str:
    """Returns the reason why norm and layer have different channels; else an empty text."""
    module: Any = layer.module
    value = layer.outputs[0]
    dims = 2 if isinstance(module, nn.Linear) else module.weight.dim()
    if len(value.shape) != dims:
        return f"its output has the shape {list(value.shape)}: dimension 1 is not that of its channels"
    return "" if norm.outputs[0].dtype == value.dtype else "the batch norm changes the dtype"
