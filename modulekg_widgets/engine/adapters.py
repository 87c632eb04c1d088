"""Facts about layers by class: attributes computed from tensor sizes, channel dimensions, example inputs.

One table by class for torch's own layers, in which users register theirs with `@mk.adapter`; the entry of the nearest
ancestor counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from modulekg_widgets.engine.errors import NotAModuleError, printable
from modulekg_widgets.engine.registry import Registry, check_function
from modulekg_widgets.engine.torch_runtime.private import AnyNorm, ConvNd, InstanceNorm, dims_without_batch


class LayerSizes(Protocol):
    """The sizes of a module's tensors, as once a cut is made."""

    module: nn.Module

    def has(self, name: str) -> bool:
        """True if the module has a parameter or buffer of that name."""
        ...

    def parameter(self, name: str, dim: int) -> int:
        """The size of a dimension of one of the module's own parameters or buffers."""
        ...

    def input(self, dim: int) -> int | None:
        """The size of a dimension of the first tensor that the module was called with; None when it was not called."""
        ...

    def groups(self, name: str, dim: int, count: int) -> int:
        """Returns the number of remaining groups when a dimension consists of `count` groups (outermost factor)."""
        ...

    def input_groups(self, dim: int, count: int) -> int | None:
        """The same of the first tensor that the module was called with; None when it was not called."""
        ...

    def of_role(self, role: str, name: str, dim: int) -> int | None:
        """Returns the remaining size of the axis with this role in a dimension of a parameter."""
        ...


AttributesOf: TypeAlias = Callable[[Any], Mapping[str, Any]]  # from `LayerSizes` to the values of attributes
ChannelDim: TypeAlias = Callable[[int], int]  # from the number of dimensions to the one of the channels
Examples: TypeAlias = list[tuple[torch.Tensor, ...]]
adapters: Registry[AttributesOf] = Registry("adapter", "{} has an adapter already: make a subclass")
channel_dims: Registry[ChannelDim] = Registry("channel dimension")
input_builders: Registry[Callable[[Any], Examples]] = Registry(
    "input"
)  # examples that a layer takes, the likeliest first
# attributes that keep a layer from computing with the weights of its parts by itself, past their forward
fast_path_blockers: Registry[Callable[[], Mapping[str, Any]]] = Registry("way past parts")

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED_CONVOLUTIONS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def adapter(*classes: type) -> Callable[[AttributesOf], AttributesOf]:
    """Register, for module classes and their subclasses, which attributes follow from the sizes of their tensors.

    `@mk.adapter(MyConv)` over `def sizes_of(sizes): return {"out_channels": sizes.parameter("weight", 0)}` is asked
    when a cut changes a tensor of such a module. The nearest class in a module's ancestry decides. A notebook's cell
    may run again. Raises `NotAModuleError` and `DuplicateNameError`.

    Parameters
    ----------
    *classes
        Subclasses of `torch.nn.Module`.

    Returns
    -------
    decorator
        For a function from `LayerSizes` to a dictionary of attributes' values: whole numbers, or tuples or lists of
        them.
        None, and an attribute that the module does not have, are passed over. `sizes.parameter(name, dim)` is the size
        of a dimension of an own parameter or buffer, `sizes.input(dim)` that of the first input, `sizes.has(name)`
        tells whether there is such a tensor, `sizes.groups(name, dim, count)` how many of `count` groups stay, and
        `sizes.module` is the module.

    Raises
    ------
    NotAModuleError
        For what is not a subclass of `torch.nn.Module`.
    DuplicateNameError
        For a class that has an adapter already. A plan raises `CutError` when the function fails, or does not give
        what the module has before the cut.

    Examples
    --------
    >>> import torch, modulekg_widgets as mk
    >>> class Gain(torch.nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.width, self.weight = width, torch.nn.Parameter(torch.ones(width))
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> @mk.adapter(Gain)
    ... def width_of(sizes):
    ...     return {"width": sizes.parameter("weight", 0)}
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), Gain(8), torch.nn.Linear(8, 2))
    >>> receipt = mk.plan(mk.trace(model, torch.zeros(1, 3)), ratio=0.5).cut(model)
    >>> model[1].width
    4
    """
    home = sys._getframe(1).f_globals.get("__name__")
    if not classes:
        raise NotAModuleError("adapters are for subclasses of torch.nn.Module: name them, as @mk.adapter(MyConv)")
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            raise NotAModuleError(f"adapters are for subclasses of torch.nn.Module, got {printable(str(cls))}")
    adapters.check_free(classes, home)

    def decorate(sizes_of: AttributesOf) -> AttributesOf:
        check_function(sizes_of, "the adapter")
        adapters.check_free(classes, home)
        adapters.add(dict.fromkeys(classes, sizes_of), home)
        return sizes_of

    return decorate


def channel_dim(module: nn.Module | type[nn.Module], ndim: int) -> int:
    """Returns the channel dimension of an input or output with `ndim` dimensions.

    Decided by the module's class: the last dimension for linear layers, layer norm, recurrence and attention; before
    the dimensions of space for convolutions and pooling, with a batch or without; for other modules dimension 1 of four
    or five dimensions, else the last. Of a tensor without dimensions it is 0.
    """
    of = channel_dims.of_class(module if isinstance(module, type) else type(module))
    return (of or _unknown)(ndim)


def example_inputs(layer: nn.Module) -> Examples:
    """Inputs of zeros that the sizes of a layer ask for, in the numbers of dimensions that it may take."""
    make = input_builders.of_class(type(layer))
    return [] if make is None else make(layer)


# --------------------------------------------------- where the channels are


def _last(ndim: int) -> int:
    return max(ndim - 1, 0)


def _second(ndim: int) -> int:
    """Always a batch, then the channels, then any number of dimensions."""
    return 1 if ndim > 1 else 0


def _channels_before(spatial: int) -> ChannelDim:
    """The channels come before this many spatial dimensions."""
    return lambda ndim: max(ndim - spatial - 1, 0)


def _unknown(ndim: int) -> int:
    return 1 if ndim in (4, 5) else _last(ndim)


_SPATIAL = {
    1: (nn.InstanceNorm1d, nn.MaxPool1d, nn.MaxUnpool1d, nn.AvgPool1d, nn.LPPool1d, nn.AdaptiveAvgPool1d,
        nn.AdaptiveMaxPool1d, nn.Dropout1d, nn.ConstantPad1d, nn.CircularPad1d, nn.ReflectionPad1d,
        nn.ReplicationPad1d),
    2: (nn.InstanceNorm2d, nn.MaxPool2d, nn.MaxUnpool2d, nn.AvgPool2d, nn.LPPool2d, nn.FractionalMaxPool2d,
        nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.Dropout2d, nn.Softmax2d, nn.PixelShuffle, nn.PixelUnshuffle,
        nn.ConstantPad2d, nn.CircularPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d),
    3: (nn.InstanceNorm3d, nn.MaxPool3d, nn.MaxUnpool3d, nn.AvgPool3d, nn.LPPool3d, nn.FractionalMaxPool3d,
        nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d, nn.Dropout3d, nn.ConstantPad3d, nn.CircularPad3d,
        nn.ReflectionPad3d, nn.ReplicationPad3d),
}  # fmt: skip
for _dims, _classes in _SPATIAL.items():
    channel_dims.register(CONVOLUTIONS[_dims - 1], TRANSPOSED_CONVOLUTIONS[_dims - 1], *_classes)(
        _channels_before(_dims)
    )
channel_dims.register(*NORMS, nn.GroupNorm, nn.LocalResponseNorm, nn.CrossMapLRN2d, nn.ChannelShuffle, nn.Upsample)(
    _second
)
channel_dims.register(
    nn.Linear, nn.Bilinear, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.RNNCellBase,
    nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.TransformerDecoder,
    nn.TransformerDecoderLayer,
)(_last)  # fmt: skip


# -------------------------------------------------- the inputs that fit


@input_builders.register(ConvNd)
def _convolved(layer: Any) -> Examples:
    dims = len(layer.kernel_size)
    sizes = [2 * (d * (k - 1) + 1) + s for k, d, s in zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)]
    return [(_zeros(layer, 2, layer.in_channels, *sizes[:dims]),)]


def _images(attribute: str) -> Callable[[Any], Examples]:
    """Example images with 2, 1, 3 and 0 spatial dimensions."""
    return lambda layer: [(_zeros(layer, 2, getattr(layer, attribute), *[4] * dims),) for dims in (2, 1, 3, 0)]


def _vectors(*names: str) -> Callable[[Any], Examples]:
    """Inputs whose last dimension is an attribute: with one dimension before it, with two, and with three."""
    return lambda layer: [tuple(_zeros(layer, *[2] * dims, getattr(layer, n)) for n in names) for dims in (1, 2, 3)]


def _zeros(layer: nn.Module, *shape: int) -> torch.Tensor:
    weight = next((p for p in layer.parameters(recurse=False) if p.is_floating_point()), None)
    like = {} if weight is None else {"dtype": weight.dtype, "device": weight.device}
    return torch.zeros(shape, **like)


@input_builders.register(nn.Embedding, nn.EmbeddingBag)
def _indices(layer: Any) -> Examples:
    return [(torch.zeros(2, 3, dtype=torch.long, device=layer.weight.device),)]


@input_builders.register(nn.PReLU)
def _activated(layer: Any) -> Examples:
    return [(_zeros(layer, 2, layer.num_parameters, 4, 4),)] if layer.num_parameters > 1 else []


@input_builders.register(nn.LayerNorm, nn.RMSNorm)
def _normalized(layer: Any) -> Examples:
    return [(_zeros(layer, 2, *layer.normalized_shape),)]


input_builders.register(AnyNorm)(_images("num_features"))
input_builders.register(nn.GroupNorm)(_images("num_channels"))
input_builders.register(nn.Linear)(_vectors("in_features"))
input_builders.register(nn.Bilinear)(_vectors("in1_features", "in2_features"))
input_builders.register(nn.RNNBase, nn.RNNCellBase)(_vectors("input_size"))
input_builders.register(nn.MultiheadAttention)(_vectors("embed_dim", "kdim", "vdim"))


# ------------------------------ attributes of the standard modules


def _adapter_with(tensor: str, *classes: type) -> Callable[[AttributesOf], AttributesOf]:
    """An adapter for instances that have a tensor: a subclass may have put others in its place."""

    def decorate(sizes_of: AttributesOf) -> AttributesOf:
        @wraps(sizes_of)
        def where_there(sizes: LayerSizes) -> Mapping[str, Any]:
            return sizes_of(sizes) if sizes.has(tensor) else {}

        return adapter(*classes)(where_there)

    return decorate


@_adapter_with("weight", ConvNd)
def convolution(sizes: LayerSizes) -> dict[str, Any]:
    """The weight has (out, in/groups), or (in, out/groups) when it is transposed."""
    first, second = sizes.parameter("weight", 0), sizes.parameter("weight", 1)
    groups = sizes.groups("weight", 0, sizes.module.groups)  # type: ignore[arg-type]
    if getattr(sizes.module, "transposed", False):
        return {"in_channels": first, "out_channels": second * groups, "groups": groups}
    return {"in_channels": second * groups, "out_channels": first, "groups": groups}


@_adapter_with("weight", nn.Linear)
def linear(sizes: LayerSizes) -> dict[str, Any]:
    """The weight has (out, in)."""
    return {"out_features": sizes.parameter("weight", 0), "in_features": sizes.parameter("weight", 1)}


@_adapter_with("weight", nn.Bilinear)
def bilinear(sizes: LayerSizes) -> dict[str, Any]:
    """The weight has (out, in1, in2)."""
    names = ("out_features", "in1_features", "in2_features")
    return {name: sizes.parameter("weight", at) for at, name in enumerate(names)}


@adapter(AnyNorm)
def batch_norm(sizes: LayerSizes) -> dict[str, Any]:
    """Every tensor has one entry per channel."""
    named = next((name for name in ("weight", "running_mean") if sizes.has(name)), None)
    return {"num_features": sizes.parameter(named, 0) if named else sizes.input(1)}


@adapter(InstanceNorm)
def instance_norm(sizes: LayerSizes) -> dict[str, Any]:
    """As a batch normalisation, but there may be no batch before the channels."""
    if sizes.has("weight") or sizes.has("running_mean"):
        return {**batch_norm(sizes)}
    return {"num_features": sizes.input(-dims_without_batch(sizes.module)())}  # type: ignore[operator]


@adapter(nn.LayerNorm, nn.RMSNorm)
def layer_norm(sizes: LayerSizes) -> dict[str, Any]:
    """The normalised shape is that of the gain, or of the last dimensions."""
    count = len(sizes.module.normalized_shape)  # type: ignore[arg-type]
    if sizes.has("weight"):
        return {"normalized_shape": tuple(sizes.parameter("weight", at) for at in range(count))}
    found = [sizes.input(at - count) for at in range(count)]
    return {"normalized_shape": None if None in found else tuple(found)}


@adapter(nn.GroupNorm)
def group_norm(sizes: LayerSizes) -> dict[str, Any]:
    """Channels in groups of equal size."""
    count: Any = sizes.module.num_groups
    if sizes.has("weight"):
        return {"num_channels": sizes.parameter("weight", 0), "num_groups": sizes.groups("weight", 0, count)}
    return {"num_channels": sizes.input(1), "num_groups": sizes.input_groups(1, count)}


@_adapter_with("weight", nn.Embedding, nn.EmbeddingBag)
def embedding(sizes: LayerSizes) -> dict[str, Any]:
    """The table has (vocabulary, width)."""
    return {"num_embeddings": sizes.parameter("weight", 0), "embedding_dim": sizes.parameter("weight", 1)}


@_adapter_with("weight", nn.PReLU)
def prelu(sizes: LayerSizes) -> dict[str, Any]:
    """A slope per channel, or one."""
    return {"num_parameters": sizes.parameter("weight", 0)}


@_adapter_with("weight_hh_l0", nn.RNNBase)
def recurrent(sizes: LayerSizes) -> dict[str, Any]:
    """w_ih has (gates·hidden, input), w_hh (gates·hidden, hidden or projection)."""
    gates = {"LSTM": 4, "GRU": 3}.get(str(sizes.module.mode), 1)
    projected = sizes.parameter("weight_hr_l0", 0) if sizes.has("weight_hr_l0") else 0
    return {
        "input_size": sizes.parameter("weight_ih_l0", 1),
        "hidden_size": sizes.parameter("weight_hh_l0", 0) // gates,
        "proj_size": projected,
    }


@_adapter_with("weight_hh", nn.RNNCellBase)
def recurrent_cell(sizes: LayerSizes) -> dict[str, Any]:
    """As a layer of one step."""
    return {"input_size": sizes.parameter("weight_ih", 1), "hidden_size": sizes.parameter("weight_hh", 1)}


@adapter(nn.MultiheadAttention)
def multihead_attention(sizes: LayerSizes) -> dict[str, Any]:
    """in_proj has (3·heads·head_dim, embed) as one tensor, or three tensors with kdim or vdim."""
    if sizes.has("in_proj_weight"):
        query, parts = "in_proj_weight", 3
        found = {"embed_dim": sizes.parameter(query, 1)}
        found |= {"kdim": found["embed_dim"], "vdim": found["embed_dim"]}
    elif sizes.has("q_proj_weight"):
        query, parts = "q_proj_weight", 1
        found = {"embed_dim": sizes.parameter(query, 1), "kdim": sizes.parameter("k_proj_weight", 1),
                 "vdim": sizes.parameter("v_proj_weight", 1)}  # fmt: skip
    else:
        return {}
    heads: Any = sizes.of_role("heads", query, 0) or sizes.module.num_heads  # one head is no axis
    return found | {"num_heads": heads, "head_dim": sizes.parameter(query, 0) // parts // heads}


# --------------------------------------------------- the way past parts


@fast_path_blockers.register(nn.TransformerEncoderLayer)
def fused_layer() -> dict[str, Any]:
    """One operator takes the weights of its attention and both linear layers."""
    return {"activation_relu_or_gelu": 0}


@fast_path_blockers.register(nn.TransformerEncoder)
def fused_encoder() -> dict[str, Any]:
    """Attributes that disable the nested-tensor path, so that the encoder's layers are called."""
    return {"use_nested_tensor": False}
