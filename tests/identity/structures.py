"""The models whose digests are kept: one of each kind of thing that a digest is made of."""

import collections
import enum
import functools
from collections.abc import Callable

import torch
from torch import nn

from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders

ZOO = [
    "resnet18",
    "squeezenet1_0",
    "vit_b_16",
    "swin_t",
    "densenet121",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "ssd300_vgg16",
    "raft_small",
]


class Mode(enum.Enum):
    SAME = "same"


class Attributes(nn.Module):
    """Values of many kinds as plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = (1, 2.5, -0.0, float("nan"), 1j, 10**50, True, None)
        self.texts = ["é", "\ud800", b"\xff"]
        self.table = {"b": {3, 1, 2}, "a": frozenset("xyz"), 3: collections.OrderedDict(a=1)}
        self.mode = Mode.SAME
        self.activation = torch.relu
        self.scaled = functools.partial(torch.mul, other=2)
        self.kind = torch.float32
        self.shape = torch.Size([1, 2])
        self.plain = torch.zeros(3)


class Slotted(nn.Module):
    __slots__ = ("factor",)

    def __init__(self) -> None:
        super().__init__()
        self.factor = 3


def cyclic() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0].add_module("up", model)
    return model


def slots() -> nn.Module:
    model = nn.Sequential(nn.ReLU())
    model.register_module("empty", None)
    model.register_parameter("none", None)
    model.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    return model


def local_class() -> nn.Module:
    scale = 3

    class Block(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * scale

    return Block()


STRUCTURES: dict[str, Callable[[], nn.Module]] = {
    "attributes": Attributes,
    "slotted": Slotted,
    "cyclic": cyclic,
    "empty slots": slots,
    "local class": local_class,
    "convolution": lambda: nn.Conv2d(3, 4, 3),
    "transformer": lambda: nn.Transformer(8, 2, 1, 1),
    "recurrent": lambda: nn.LSTM(3, 4, 2, bidirectional=True),
    "parametrized": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
}


def structure(name: str) -> nn.Module:
    if name in STRUCTURES:
        return STRUCTURES[name]()
    with meta_weights():
        return torchvision_builders()[name]()
