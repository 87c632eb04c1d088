"""Models of many kinds, by name, each with two examples to train on: torchvision, timm, transformers, plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from models import seeded, transformers_models, zoo
from models.recurrent import SequenceClassifier

Call = tuple[tuple[Any, ...], dict[str, Any]]

TORCHVISION = [
    "resnet18", "mobilenet_v3_small", "densenet121", "efficientnet_b0", "shufflenet_v2_x0_5", "squeezenet1_1",
    "regnet_x_400mf", "mnasnet0_5", "convnext_tiny", "swin_t", "vit_b_16", "maxvit_t", "googlenet", "r3d_18",
    "lraspp_mobilenet_v3_large", "fcn_resnet50",
]  # fmt: skip
# name → how large the pictures are
TIMM = {"mobilevit_xxs": 64, "resnest14d": 64, "ghostnet_100": 64, "mixer_s32_224": 224, "edgenext_xx_small": 64}
TRANSFORMERS = [
    "llama", "bert", "gpt2", "t5", "whisper", "mixtral", "albert", "longformer", "wav2vec2", "clip", "segformer",
    "mamba",
]  # fmt: skip


class Attending(nn.Module):
    """Attention among words by torch's own layer, with what leads around it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.words(x)
        y = y + self.attention(y, y, y, need_weights=False)[0]
        y = y + self.down(F.gelu(self.up(self.norm(y))))
        return self.head(y.mean(1))


class Tied(nn.Module):
    """A language model that says words with the table that it reads them by."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.up, self.down = nn.Linear(16, 40), nn.Linear(40, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x)
        return self.out(y + self.down(self.up(y).relu()))


class UNet(nn.Module):
    """Down and up again, with what was seen on the way laid beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, 2, padding=1), nn.InstanceNorm2d(16, affine=True), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.first(x)
        return self.last(torch.cat([wide, self.up(self.down(wide))], 1))


def _weight_norm() -> nn.Module:
    norm = parametrizations.weight_norm
    return nn.Sequential(
        norm(nn.Conv1d(3, 12, 3, padding=1)), nn.ReLU(), norm(nn.Conv1d(12, 10, 3)), nn.ReLU(), nn.Flatten(),
        nn.Linear(10 * 14, 4),
    )  # fmt: skip


def _grouped() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 24, 3, padding=1, groups=4), nn.BatchNorm2d(24), nn.Hardswish(),
        nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.PReLU(24),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 4),
    )  # fmt: skip


def _recurrent(kind: type[nn.LSTM] | type[nn.GRU]) -> nn.Module:
    rnn = {"num_layers": 2, "batch_first": True, "bidirectional": True}
    return SequenceClassifier(nn.Embedding(50, 12), kind(12, 16, **rnn), 5)


WORDS = torch.tensor([[3, 14, 15, 9, 26], [5, 35, 8, 9, 7]])
OWN: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "lstm": (lambda: _recurrent(nn.LSTM), WORDS),
    "gru": (lambda: _recurrent(nn.GRU), WORDS),
    "multihead_attention": (Attending, WORDS),
    "tied_embedding": (Tied, WORDS),
    "weight_norm": (_weight_norm, torch.linspace(-1, 1, 2 * 3 * 16).reshape(2, 3, 16)),
    "grouped_convolution": (_grouped, torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 8, 8).sin()),
    "u_net": (UNet, torch.linspace(-1, 1, 2 * 3 * 64).reshape(2, 3, 8, 8).sin()),
}
NAMES = [
    *OWN,
    *(f"torchvision/{name}" for name in TORCHVISION),
    *(f"timm/{name}" for name in TIMM),
    *(f"transformers/{name}" for name in TRANSFORMERS),
]


def named_model(name: str) -> tuple[nn.Module, Call]:
    """A model with random weights in eval mode, the same each time, and its inputs: two examples."""
    library, _, model = name.rpartition("/")
    if name in OWN:
        build, x = OWN[name]
        return seeded(build).eval(), ((x,), {})
    if library == "timm":
        return _timm(model)
    if library == "transformers":
        with torch.random.fork_rng(devices=[]):
            made, inputs = transformers_models.build(model)
        for module in made.modules():
            if hasattr(module, "config"):
                module.config.use_cache = False  # type: ignore[union-attr]  # as in training
        return made, ((), {key: _two(value) for key, value in inputs.items()})
    with torch.random.fork_rng(devices=[]):
        made, args = zoo.zoo_case(model)
    return made, (tuple(_two(value) for value in args), {})


def _timm(name: str) -> tuple[nn.Module, Call]:
    import timm

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, TIMM[name], TIMM[name], generator=generator)
    return seeded(lambda: timm.create_model(name, num_classes=10)).eval(), ((x,), {})


def _two(x: torch.Tensor) -> torch.Tensor:
    """An example and its mirror image: batch normalisation in train mode asks for more than one value."""
    return torch.cat([x, x.flip(-1)])
