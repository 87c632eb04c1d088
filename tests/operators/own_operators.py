"""Operators of a user's own that do what operators of torch do, with other names and another order of arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import modulekg_widgets as mk


@dataclass(frozen=True)
class Own:
    """An operator of one's own, the function of torch that does the same, and a model that calls either of them."""

    name: str
    like: str
    args: dict[str, str]
    own: Callable[..., Any]
    torch: Callable[..., Any]  # takes what `own` takes
    model: Callable[[Callable[..., Any]], nn.Module]
    x: Callable[[], Tensor]
    ratio: float = 0.5
    training: bool = False


class Through(nn.Module):
    """A hidden width between two layers, and what is done there by `of(model, hidden)`."""

    def __init__(self, of: Callable[..., Any], layers: Callable[[], dict[str, nn.Module | nn.Parameter]]) -> None:
        super().__init__()
        self.__dict__["of"] = of
        for name, part in layers().items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.of(self, self.a(x)))


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(*shape) + 0.5)


def dense(**more: Callable[[], nn.Module | nn.Parameter]) -> Callable[[], dict[str, nn.Module | nn.Parameter]]:
    return lambda: {"a": nn.Linear(6, 8), "b": nn.Linear(8, 4), **{name: make() for name, make in more.items()}}


def images(**more: Callable[[], nn.Module | nn.Parameter]) -> Callable[[], dict[str, nn.Module | nn.Parameter]]:
    return lambda: {
        "a": nn.Conv2d(3, 8, 3), "b": nn.Conv2d(8, 4, 1), **{name: make() for name, make in more.items()}
    }  # fmt: skip


def rows() -> Tensor:
    return torch.randn(3, 6)


def picture() -> Tensor:
    return torch.randn(2, 3, 6, 6)


def defined(own: Own) -> Any:
    """The operator, with a gradient, which torch knows from now on."""
    function = own.own
    operator = torch.library.custom_op(f"mkglike::{own.name}", function, mutates_args=())
    operator.register_fake(function)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.inputs = inputs

    def backward(ctx: Any, *grads: Any) -> Any:
        flat = grads[0] if len(grads) == 1 and isinstance(grads[0], list) else grads
        with torch.enable_grad():
            given = [_leaf(value) for value in ctx.inputs]
            results = function(*given)
            several = list(results) if isinstance(results, tuple | list) else [results]
            wanted = [value for value in _flat(given) if value.requires_grad]
            found = iter(torch.autograd.grad(several, wanted, list(flat), allow_unused=True))
        return tuple(_gradient(value, found) for value in given)

    operator.register_autograd(backward, setup_context=keep)
    mk.axis_rule(f"mkglike::{own.name}", like=own.like, args=own.args)
    return operator


def _leaf(value: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return [_leaf(part) for part in value]
    if not isinstance(value, Tensor):
        return value
    value = value.detach()
    return value.requires_grad_() if value.is_floating_point() else value


def _flat(values: list[Any]) -> list[Tensor]:
    every = [part for value in values for part in (value if isinstance(value, list) else [value])]
    return [value for value in every if isinstance(value, Tensor)]


def _gradient(value: Any, found: Any) -> Any:
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return [_gradient(part, found) for part in value]
    return next(found) if isinstance(value, Tensor) and value.requires_grad else None


# ------------------------------------------------------------------------ the operators


def layer_norm(w: Tensor, x: Tensor, sizes: list[int], b: Tensor) -> Tensor:
    return F.layer_norm(x, sizes, w, b)


def group_norm(parts: int, w: Tensor, x: Tensor) -> Tensor:
    return F.group_norm(x, parts, w)


def batch_norm(
    mean: Tensor, var: Tensor, x: Tensor, w: Tensor, training: bool, momentum: float, eps: float, fast: bool
) -> Tensor:
    return torch.batch_norm(x, w, None, mean, var, training, momentum, eps, fast)


def softmax(axis: int, x: Tensor) -> Tensor:
    return x.softmax(axis)


def mean(over: list[int], x: Tensor, keep: bool) -> Tensor:
    return x.mean(over, keep)


def weight_norm(gain: Tensor, direction: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    return torch.ops.aten._weight_norm_interface(direction, gain, dim)


def attention(v: Tensor, q: Tensor, k: Tensor, factor: float | None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, scale=factor)


def fused_attention(v: Tensor, q: Tensor, k: Tensor, factor: float | None) -> Tensor:
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, scale=factor)[0]


def plain_attention(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def fused_plain_attention(v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return fused_attention(v, q, k, None)


def reshape(sizes: list[int], x: Tensor) -> Tensor:
    return x.reshape(sizes).clone()


def permute(order: list[int], x: Tensor) -> Tensor:
    return x.permute(order).clone()


def split(axis: int, x: Tensor, pieces: list[int]) -> list[Tensor]:
    return [piece.clone() for piece in x.split(pieces, axis)]


def cat(axis: int, parts: list[Tensor]) -> Tensor:
    return torch.cat(parts, axis)


def pick(places: Tensor, x: Tensor, axis: int) -> Tensor:
    return x.index_select(axis, places)


def copy(source: Tensor) -> Tensor:
    return source.clone()


def times(factor: Tensor, x: Tensor) -> Tensor:
    return x * factor


def product(right: Tensor, left: Tensor) -> Tensor:
    return left @ right


def linear(w: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, w)


def convolution(
    w: Tensor, x: Tensor, step: list[int], pad: list[int], dil: list[int], back: bool, extra: list[int], parts: int
) -> Tensor:
    return torch.convolution(x, w, None, step, pad, dil, back, extra, parts)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    return F.embedding(ids, table)


def inverse(symmetric: bool, matrix: Tensor) -> Tensor:
    return torch.linalg.pinv(matrix, hermitian=symmetric)


def dropout(p: float, x: Tensor) -> Tensor:
    return torch.ops.aten.native_dropout(x, p, True)[0] if p else x.clone()


def ordered(axis: int, x: Tensor) -> Tensor:
    return x.cumsum(axis)


def pool(x: Tensor, size: int) -> Tensor:
    return F.avg_pool2d(x, size)


# ---------------------------------------------------------------------------- the models


class Heads(nn.Module):
    """Two heads, whose size the shapes tell; `rest` is what else the operator takes."""

    rest: tuple[Any, ...] = (None,)

    def __init__(self, of: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["of"] = of
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return self.out(self.of(v, q, k, *self.rest).transpose(1, 2).flatten(2))


class PlainHeads(Heads):
    rest = ()


class Reads(nn.Module):
    """A table that is looked up before two layers."""

    def __init__(self, of: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["of"] = of
        self.table, self.b = parameter(9, 8), nn.Linear(8, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.b(self.of(ids, self.table))


class Matrix(nn.Module):
    """A width that runs through a square matrix."""

    def __init__(self, of: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["of"] = of
        self.u, self.m, self.v = (nn.Parameter(torch.randn(*shape)) for shape in ((6, 5), (5, 5), (5, 4)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.u @ self.of(True, self.m @ self.m.T) @ self.v


def through(
    of: Callable[[Callable[..., Any]], Callable[[Any, Tensor], Tensor]],
    layers: Callable[[], dict[str, nn.Module | nn.Parameter]],
) -> Callable[[Callable[..., Any]], nn.Module]:
    return lambda operator: Through(of(operator), layers)


def shuffled() -> nn.Module:
    holder = nn.Module()
    holder.register_buffer("places", torch.tensor([3, 1, 0, 2, 7, 5, 6, 4]))
    return holder


def running() -> nn.Module:
    holder = nn.Module()
    holder.register_buffer("mean", torch.randn(8))
    holder.register_buffer("var", torch.rand(8) + 0.5)
    return holder


OWN = [
    Own("layer_norm", "aten::layer_norm", {"input": "x", "normalized_shape": "sizes", "weight": "w", "bias": "b"},
        layer_norm, layer_norm,
        through(lambda of: lambda m, h: of(m.w, h, [h.shape[-1]], m.c),
                dense(w=lambda: parameter(8), c=lambda: parameter(8))), rows),
    Own("group_norm", "aten::group_norm", {"input": "x", "num_groups": "parts", "weight": "w"}, group_norm, group_norm,
        through(lambda of: lambda m, h: of(4, m.w, h), images(w=lambda: parameter(8))), picture),
    Own("batch_norm", "aten::batch_norm",
        {"input": "x", "weight": "w", "running_mean": "mean", "running_var": "var", "cudnn_enabled": "fast"},
        batch_norm, batch_norm,
        through(lambda of: lambda m, h: of(m.run.mean, m.run.var, h, m.w, False, 0.1, 1e-5, False),
                images(w=lambda: parameter(8), run=running)), picture),
    Own("softmax", "aten::softmax", {"self": "x", "dim": "axis"}, softmax, softmax,
        through(lambda of: lambda m, h: of(-1, h), dense()), rows),
    Own("mean", "aten::mean", {"self": "x", "dim": "over", "keepdim": "keep"}, mean, mean,
        through(lambda of: lambda m, h: h - of([-1], h, True), dense()), rows),
    Own("weight_norm", "aten::_weight_norm_interface", {"v": "direction", "g": "gain"}, weight_norm, weight_norm,
        through(lambda of: lambda m, h: F.linear(h, of(m.g, m.v, 0)[0]),
                lambda: {"a": nn.Linear(6, 8), "g": parameter(8, 1), "v": parameter(8, 8), "b": nn.Linear(8, 4)}),
        rows),
    Own("attention", "aten::scaled_dot_product_attention", {"query": "q", "key": "k", "value": "v", "scale": "factor"},
        attention, fused_attention, Heads, lambda: torch.randn(2, 5, 8)),
    Own("plain_attention", "aten::scaled_dot_product_attention", {"query": "q", "key": "k", "value": "v"},
        plain_attention, fused_plain_attention, PlainHeads, lambda: torch.randn(2, 5, 8)),
    Own("reshape", "aten::reshape", {"self": "x", "shape": "sizes"}, reshape, reshape,
        through(lambda of: lambda m, h: of([3, h.shape[-1]], of([1, 3, h.shape[-1]], h).relu()), dense()), rows),
    Own("permute", "aten::permute", {"self": "x", "dims": "order"}, permute, permute,
        through(lambda of: lambda m, h: of([1, 0], of([1, 0], h).relu()), dense()), rows),
    Own("split", "aten::split_with_sizes", {"self": "x", "split_sizes": "pieces", "dim": "axis"}, split, split,
        through(lambda of: lambda m, h: torch.cat([p.tanh() for p in of(-1, h, [h.shape[-1] // 2] * 2)], -1),
                dense()), rows),
    Own("cat", "aten::cat", {"tensors": "parts", "dim": "axis"}, cat, cat,
        through(lambda of: lambda m, h: m.c(of(-1, [h, h.relu()])),
                lambda: {"a": nn.Linear(6, 8), "c": nn.Linear(16, 8), "b": nn.Linear(8, 4)}), rows),
    Own("pick", "aten::index_select", {"self": "x", "index": "places", "dim": "axis"}, pick, pick,
        through(lambda of: lambda m, h: of(m.run.places, h, 1), dense(run=shuffled)), rows),
    Own("copy", "aten::clone", {}, copy, copy,
        through(lambda of: lambda m, h: h * of(m.w), dense(w=lambda: parameter(8))), rows),
    Own("times", "aten::mul", {"self": "x", "other": "factor"}, times, times,
        through(lambda of: lambda m, h: of(m.w, h), dense(w=lambda: parameter(8))), rows),
    Own("product", "aten::mm", {"self": "left", "mat2": "right"}, product, product,
        through(lambda of: lambda m, h: of(m.w, h), dense(w=lambda: parameter(8, 8))), rows),
    Own("linear", "aten::linear", {"input": "x", "weight": "w"}, linear, linear,
        through(lambda of: lambda m, h: of(m.w, h), dense(w=lambda: parameter(8, 8))), rows),
    Own("convolution", "aten::convolution",
        {"input": "x", "weight": "w", "stride": "step", "padding": "pad", "dilation": "dil", "transposed": "back",
         "output_padding": "extra", "groups": "parts"}, convolution, convolution,
        through(lambda of: lambda m, h: of(m.w, h, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
                images(w=lambda: parameter(8, 8, 3, 3))), picture),
    Own("embedding", "aten::embedding", {"weight": "table", "indices": "ids"}, embedding, embedding,
        Reads, lambda: torch.tensor([[0, 3, 8], [2, 2, 1]])),
    Own("inverse", "aten::linalg_pinv", {"self": "matrix", "hermitian": "symmetric"}, inverse, inverse, Matrix, rows),
    Own("dropout", "aten::native_dropout", {"input": "x"}, dropout, dropout,
        through(lambda of: lambda m, h: of(0.5, h), dense()), rows, training=True),
    Own("ordered", "aten::cumsum", {"self": "x", "dim": "axis"}, ordered, ordered,
        through(lambda of: lambda m, h: of(0, h), dense()), rows),
    Own("pool", "aten::avg_pool2d", {"kernel_size": "size"}, pool, pool,
        through(lambda of: lambda m, h: of(h, 2), images()), picture),
]  # fmt: skip
