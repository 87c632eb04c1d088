"""The standard modules by name, each between layers so that what goes in and what comes out can be cut."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

import modulekg_widgets as mk
from models import seeded
from pruning.battery import differs, state_of

Make = Callable[[], nn.Module]


class Case(NamedTuple):
    """A module in its surroundings, an input, and the attributes that change when half of every axis goes."""

    net: Within
    x: torch.Tensor
    changes: list[str]


class Within(nn.Module):
    """A layer before each input of a module, which may be one tensor several times, and one layer behind it."""

    inner: Any

    def __init__(self, inner: nn.Module, into: list[nn.Module], out: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.inner, self.into, self.out, self.times = inner, nn.ModuleList(into), out, times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.inner(*[layer(x) for layer in self.into] * self.times)
        return self.out(found[0] if isinstance(found, tuple) else found)


class InSteps(Within):
    """A recurrent cell for two steps, the first without a state."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (layer,) = self.into
        state = self.inner(layer(x), self.inner(layer(x)))
        return self.out(state[0] if isinstance(state, tuple) else state)


def in_space(space: int, make: Make, before: int, behind: int, changes: str) -> Case:
    """Between convolutions over `space` dimensions."""
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[space - 1]
    net = Within(make(), [conv(3, before, 3, padding=1)], conv(behind, 3, 1))
    return Case(net, torch.randn(2, 3, *[4] * space), changes.split())


def in_line(make: Make, before: list[int], behind: int, changes: str, times: int = 1, dims: int = 3) -> Case:
    """Between linear layers, over (5, 2, features), or (2, features)."""
    net = Within(make(), [nn.Linear(6, width) for width in before], nn.Linear(behind, 3), times)
    return Case(net, torch.randn([5, 2, 6][3 - dims :]), changes.split())


def in_steps(make: Make) -> Case:
    """A cell between linear layers, over (2, features)."""
    net = InSteps(make(), [nn.Linear(6, 8)], nn.Linear(12, 3))
    return Case(net, torch.randn(2, 6), ["input_size", "hidden_size"])


def of_words(make: Make) -> Case:
    """Behind nothing, for tables, and before a linear layer."""
    net = Within(make(), [nn.Identity()], nn.Linear(8, 3))
    return Case(net, torch.tensor([[1, 5, 2, 7], [3, 0, 8, 4]]), ["embedding_dim"])


CASES: dict[str, Callable[[], Case]] = {}


def case(name: str) -> Case:
    """The case of a name, with the same numbers each time."""
    return seeded(CASES[name])


# --------------------------------------------------------------- convolutions

FORMS = {"": (8, 12, 1), "_grouped": (8, 16, 4), "_depthwise": (8, 8, 8), "_multiplied": (8, 24, 8)}
for space in (1, 2, 3):
    for cls in (getattr(nn, f"Conv{space}d"), getattr(nn, f"ConvTranspose{space}d")):
        for form, (before, behind, groups) in FORMS.items():
            make = partial(cls, before, behind, 3, padding=1, groups=groups)
            changes = "in_channels out_channels" + (" groups" if groups == 8 else "")
            CASES[cls.__name__ + form] = partial(in_space, space, make, before, behind, changes)
for form, how in {
    "_reflected": {"padding": 1, "padding_mode": "reflect"}, "_without_bias": {"padding": "same", "bias": False},
}.items():  # fmt: skip
    make = partial(nn.Conv2d, 8, 12, 3, **how)
    CASES[f"Conv2d{form}"] = partial(in_space, 2, make, 8, 12, "in_channels out_channels")

# ------------------------------------------------------------- normalisations

FLAGS = {"": (True, True), "_with_gain": (True, False), "_with_counts": (False, True), "_plain": (False, False)}
for space in (1, 2, 3):
    for cls in (getattr(nn, f"BatchNorm{space}d"), getattr(nn, f"InstanceNorm{space}d")):
        for form, (gain, counts) in FLAGS.items():
            make = partial(cls, 8, affine=gain, track_running_stats=counts)
            CASES[cls.__name__ + form] = partial(in_space, space, make, 8, 8, "num_features")
CASES["BatchNorm1d_flat"] = partial(in_line, partial(nn.BatchNorm1d, 8), [8], 8, "num_features", dims=2)
CASES["SyncBatchNorm"] = partial(in_space, 2, partial(nn.SyncBatchNorm, 8), 8, 8, "num_features")
for form, gain in {"": True, "_plain": False}.items():
    for groups in (1, 2, 4, 8):
        make = partial(nn.GroupNorm, groups, 8, affine=gain)
        changes = "num_channels num_groups" if groups == 8 else "num_channels"
        CASES[f"GroupNorm_{groups}{form}"] = partial(in_space, 2, make, 8, 8, changes)
    for cls in (nn.LayerNorm, nn.RMSNorm):
        flat, deep = (partial(cls, shape, elementwise_affine=gain) for shape in (8, (8, 4)))
        CASES[cls.__name__ + form] = partial(in_line, flat, [8], 8, "normalized_shape")
        CASES[f"{cls.__name__}_of_two{form}"] = partial(in_space, 1, deep, 8, 8, "normalized_shape")
CASES["PReLU"] = partial(in_space, 2, partial(nn.PReLU, 8), 8, 8, "num_parameters")
CASES["PReLU_of_one"] = partial(in_space, 2, nn.PReLU, 8, 8, "")

# ------------------------------------------------------------ tables and mixes

for form, bias in {"": True, "_without_bias": False}.items():
    changes = "in_features out_features"
    CASES[f"Linear{form}"] = partial(in_line, partial(nn.Linear, 8, 10, bias=bias), [8], 10, changes)
    changes = "in1_features in2_features out_features"
    CASES[f"Bilinear{form}"] = partial(in_line, partial(nn.Bilinear, 8, 10, 12, bias=bias), [8, 10], 12, changes)
CASES["Embedding"] = partial(of_words, partial(nn.Embedding, 9, 8))
CASES["Embedding_padded"] = partial(of_words, partial(nn.Embedding, 9, 8, padding_idx=0))
for mode in ("sum", "mean", "max"):
    CASES[f"EmbeddingBag_{mode}"] = partial(of_words, partial(nn.EmbeddingBag, 9, 8, mode=mode))

# ------------------------------------------------------------------ recurrent

WIDTHS = "input_size hidden_size"
for cls in (nn.RNN, nn.LSTM, nn.GRU):
    for layers in (1, 2):
        for form, both in {"": False, "_both": True}.items():
            make = partial(cls, 8, 12, layers, bidirectional=both, batch_first=both)
            CASES[f"{cls.__name__}_{layers}{form}"] = partial(in_line, make, [8], 24 if both else 12, WIDTHS)
    CASES[f"{cls.__name__}_without_bias"] = partial(in_line, partial(cls, 8, 12, bias=False), [8], 12, WIDTHS)
for layers in (1, 2):
    for form, both in {"": False, "_both": True}.items():
        make = partial(nn.LSTM, 8, 12, layers, bidirectional=both, proj_size=4)
        behind = 8 if both else 4
        CASES[f"LSTM_{layers}_projected{form}"] = partial(in_line, make, [8], behind, f"{WIDTHS} proj_size")
CASES["RNN_relu"] = partial(in_line, partial(nn.RNN, 8, 12, nonlinearity="relu"), [8], 12, WIDTHS)
for cls in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    CASES[cls.__name__] = partial(in_steps, partial(cls, 8, 12))

# ------------------------------------------------------------------ attention

EMBEDDED = "embed_dim kdim vdim head_dim"
for form, how in {
    "": {}, "_batch_first": {"batch_first": True}, "_without_bias": {"bias": False},
    "_with_more": {"add_bias_kv": True, "add_zero_attn": True},
}.items():  # fmt: skip
    make = partial(nn.MultiheadAttention, 16, 4, **how)
    CASES[f"MultiheadAttention{form}"] = partial(in_line, make, [16], 16, EMBEDDED, times=3)
    make = partial(make, kdim=8, vdim=10)
    CASES[f"MultiheadAttention_between{form}"] = partial(in_line, make, [16, 8, 10], 16, EMBEDDED)
CASES["MultiheadAttention_of_three"] = partial(in_line, partial(nn.MultiheadAttention, 16, 4), [16] * 3, 16, EMBEDDED)
for heads, changes in {1: "embed_dim kdim vdim head_dim", 16: "embed_dim kdim vdim num_heads"}.items():
    make = partial(nn.MultiheadAttention, 16, heads)
    CASES[f"MultiheadAttention_{heads}"] = partial(in_line, make, [16], 16, changes, times=3)
for form, how in {"": {}, "_batch_first": {"batch_first": True}, "_norm_first": {"norm_first": True}}.items():
    make = partial(nn.TransformerEncoderLayer, 16, 4, 24, dropout=0.0, **how)
    CASES[f"TransformerEncoderLayer{form}"] = partial(in_line, make, [16], 16, "")
make = partial(nn.TransformerDecoderLayer, 16, 4, 24, dropout=0.0)
CASES["TransformerDecoderLayer"] = partial(in_line, make, [16], 16, "", times=2)


# --------------------------------------------------------------- constructors

# modules of which the attributes say nothing
COMPOSED = (Within, nn.Identity, nn.ModuleList, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
NOT_SAID = ("device", "dtype", "init", "process_group", "_weight", "_freeze")
RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")


def made_again(module: nn.Module) -> nn.Module:
    """A new module of the same class, whose constructor gets what the attributes of `module` say."""
    if isinstance(module, nn.RNNBase):  # the signatures of these tell nothing
        own = {nn.LSTM: ("proj_size",), nn.RNN: ("nonlinearity",), nn.GRU: ()}[type(module)]
        return type(module)(**{name: getattr(module, name) for name in (*RECURRENT, *own)})
    said: dict[str, Any] = {}
    for name in inspect.signature(type(module)).parameters:
        if name == "bias":
            said[name] = (module.in_proj_bias if isinstance(module, nn.MultiheadAttention) else module.bias) is not None
        elif name == "add_bias_kv":
            said[name] = module.bias_k is not None
        elif name not in NOT_SAID:
            said[name] = getattr(module, name)
    return type(module)(**said)


def said_by(module: nn.Module) -> dict[str, Any]:
    """The numbers, texts and flags of a module that its constructor made."""
    plain = int | float | str | tuple | list
    found = {name: value for name, value in vars(module).items() if isinstance(value, plain) and name != "training"}
    return {name: value for name, value in found.items() if name not in ("_flat_weights", "_flat_weight_refs")}


# ------------------------------------------------------------------- cutting


def run(net: nn.Module, x: torch.Tensor) -> None:
    """Forward and backward in both modes; without gradients, where torch has faster ways, it computes the same."""
    out = x
    for training in (True, False):
        net.train(training)
        out = net(x)
        out.square().mean().backward()
        grads = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
        assert grads
        assert all(bool(each.isfinite().all()) for each in (out, *grads))
        net.zero_grad()
    with torch.no_grad():
        assert torch.allclose(net(x), out, atol=1e-5)


@contextmanager
def pruned(net: nn.Module, x: torch.Tensor, **how: Any) -> Iterator[mk.PruningPlan]:
    """A plan, with the model cut inside of the block and as it was behind it."""
    net.eval()
    before = state_of(net)
    plan = mk.plan(mk.trace(net, x), **how)
    assert not differs(before, state_of(net))
    receipt = plan.cut(net)
    assert sum(parameter.numel() for parameter in net.parameters()) == plan.params[1] < plan.params[0]
    run(net, x)
    yield plan
    receipt.undo()
    assert not differs(before, state_of(net))
