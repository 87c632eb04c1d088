"""Small nets of many kinds, the same in every process, with inputs: the local part of the goldens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from models import transformers_models


class Residual(nn.Module):
    """A convolution between two additions of a stream, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.first = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 8, 1))
        self.second = nn.Sequential(nn.Conv2d(8, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 1))
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = x + self.second(x)
        return self.head(x.mean((2, 3)))


class Concatenated(nn.Module):
    """Two branches side by side behind one norm."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(3, 6, 1)
        self.norm = nn.BatchNorm2d(18)
        self.shuffle = nn.Conv2d(18, 8, 1, groups=2)
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.norm(torch.cat([self.left(x), self.right(x)], 1)).relu()
        return self.head(F.adaptive_avg_pool2d(self.shuffle(both), 4).flatten(1))


class UNet(nn.Module):
    """Down and up again with a connection past the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, 2, padding=1), nn.InstanceNorm2d(16, affine=True), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.last = nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.first(x)
        return self.last(torch.cat([wide, self.up(self.down(wide))], 1))


class Recurrent(nn.Module):
    """Word vectors, a recurrent layer in both directions, a classifier of the last word."""

    def __init__(self, kind: Any = nn.LSTM) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.layers = kind(12, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(x))[0][:, -1])


class Attending(nn.Module):
    """A transformer layer around torch's own attention."""

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
    """A language model with one table of words for both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.up, self.down = nn.Linear(16, 40), nn.Linear(40, 16)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.table(x)
        return self.out(y + self.down(self.up(y).relu()))


class Sized(nn.Module):
    """Sizes in attributes: a number, a tuple, a list."""

    def __init__(self) -> None:
        super().__init__()
        self.width, self.shape, self.split = 8, (-1, 8), [12, 12]
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 24)
        self.third, self.out = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).view(*self.shape)
        left, right = self.second(y).split(self.split, dim=-1)
        return self.out(self.third(left * right).view(-1, self.width))


class Layer(nn.Module):
    """Two residual branches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(width, 12), nn.Tanh(), nn.Linear(12, width))
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 20), nn.GELU(), nn.Linear(20, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(x)
        return x + self.feed(self.norm(x))


class Layered(nn.Module):
    """Four equal layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.layers = nn.ModuleList(Layer(8) for _ in range(4))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Fixed(nn.Module):
    """Axes that may not be cut: by a number in the code, by a sort, by what is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 8), nn.Linear(8, 10), nn.Linear(10, 4)
        self.register_buffer("order", torch.tensor([3, 1, 2, 0, 7, 6, 5, 4]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.first(x)[..., self.order].reshape(-1, 2, 4).flatten(1)
        z = self.second(y).sort(-1).values
        return self.third(z), y


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, groups=4), nn.GroupNorm(4, 16),
        nn.Conv2d(16, 16, 1, groups=16), parametrizations.weight_norm(nn.Conv2d(16, 3, 1)),
    )  # fmt: skip


def _linears() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def _three() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * 36, 5),
    )  # fmt: skip


def _waves(*shape: int) -> torch.Tensor:
    return torch.linspace(-3, 3, torch.Size(shape).numel()).mul(7).sin().reshape(shape)


WORDS = torch.tensor([[3, 14, 15, 9, 26], [5, 35, 8, 9, 7]])
NETS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "convolutions": (_convolutions, _waves(2, 3, 6, 6)),
    "three": (_three, _waves(2, 3, 6, 6)),
    "linears": (_linears, _waves(6, 4)),
    "residual": (Residual, _waves(2, 3, 8, 8)),
    "concatenated": (Concatenated, _waves(2, 3, 8, 8)),
    "u_net": (UNet, _waves(2, 3, 8, 8)),
    "lstm": (Recurrent, WORDS),
    "gru": (lambda: Recurrent(nn.GRU), WORDS),
    "attending": (Attending, WORDS),
    "tied": (Tied, WORDS),
    "sized": (Sized, _waves(4, 6)),
    "layered": (Layered, _waves(2, 5, 6)),
    "fixed": (Fixed, _waves(4, 6)),
}


def local_net(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A net of these in eval mode with fixed weights, and its input."""
    build, x = NETS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().eval(), x.clone()


def exact(model: nn.Module) -> None:
    """Set weights that are sums of powers of two, so that every processor computes the same."""
    with torch.no_grad():
        for parameter in model.parameters():
            steps = torch.arange(parameter.numel(), dtype=torch.float32).reshape(parameter.shape)
            parameter.copy_((steps * 5 % 7 - 3) / 8)


def exact_net() -> nn.Sequential:
    """Linear layers with such weights."""
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    exact(net)
    return net


def net_of(name: str) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model by name, such as `residual`, `torchvision/resnet18`, `timm/test_vit`, `transformers/bert`; its inputs."""
    library, _, model = name.rpartition("/")
    if not library:
        net, x = local_net(name)
        return net, (x,), {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if library == "transformers":
            net, inputs = transformers_models.build(model)
            return net, (), inputs
        if library == "timm":
            import timm

            net: Any = timm.create_model(model, num_classes=10).eval()
            return net, (_waves(1, *net.default_cfg["input_size"]),), {}
        from torchvision.models import get_model

        return get_model(model, weights=None).eval(), (_waves(1, 3, 64, 64),), {}
