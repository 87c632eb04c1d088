"""What the tests of the recipes share: small models, statistics that mean something, and a life after a rewrite."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from models.zoo import zoo_case
from modulekg_widgets.engine.torch_runtime.pytree import tensors

# the parts of a detector whose outputs do not depend on an order of nearly equal scores
BLOCKS = ("backbone", "head", "rpn.head", "roi_heads.box_head", "roi_heads.mask_head", "roi_heads.keypoint_head")


class ResidualBlock(nn.Module):
    """A residual block whose ReLU is called twice."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + x)


class ResidualConvNet(nn.Module):
    """Convolutions, a residual block and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU6())
        self.block = ResidualBlock()
        self.head = nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


def net(**options: Any) -> ResidualConvNet:
    """A small model in eval mode with statistics."""
    torch.manual_seed(0)
    return with_statistics(ResidualConvNet()).to(**options).eval()


def images(size: int = 8, batch: int = 4, **options: Any) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1)).to(**options)


def with_statistics(model: Any, seed: int = 0) -> Any:
    """Give batch norms statistics and weights of their own; with those they start with, folding would be nothing."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(like: torch.Tensor, low: float, high: float) -> torch.Tensor:
        return torch.rand(like.shape, generator=generator).mul_(high - low).add_(low).to(like)

    for norm in model.modules():
        if not isinstance(norm, _BatchNorm):
            continue
        with torch.no_grad():
            if norm.running_mean is not None and norm.running_var is not None:
                norm.running_mean.copy_(drawn(norm.running_mean, -0.2, 0.2))
                norm.running_var.copy_(drawn(norm.running_var, 0.5, 1.5))
            if norm.affine:
                norm.weight.copy_(drawn(norm.weight, 0.5, 1.5))
                norm.bias.copy_(drawn(norm.bias, -0.2, 0.2))
    return model


def zoo_model(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """A torchvision model with statistics, and inputs."""
    model, args = zoo_case(name)
    return with_statistics(model), args


def outputs(model: Callable[..., Any], *args: Any) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [tensor for _, tensor in tensors(model(*args))]


def error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference, relative to the scale of each tensor."""
    assert [tensor.shape for tensor in found] == [tensor.shape for tensor in expected]
    pairs = [(a.double(), b.double()) for a, b in zip(found, expected, strict=True) if b.numel()]
    return max((((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in pairs), default=0.0)


def recorded_blocks(model: nn.Module, args: tuple[Any, ...]) -> dict[str, tuple[Any, list[torch.Tensor]]]:
    """For the whole model or the parts of a detector: what they were called with and what they gave."""
    names = [name for name, _ in model.named_modules() if name in BLOCKS] if isinstance(args[0], list) else [""]
    seen: dict[str, tuple[Any, list[torch.Tensor]]] = {}
    handles = [model.get_submodule(name).register_forward_hook(_keeping(seen, name)) for name in names]
    with torch.inference_mode():
        model(*args)
    for handle in handles:
        handle.remove()
    return seen


def _keeping(seen: dict[str, Any], name: str) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        seen[name] = args, [tensor.clone() for _, tensor in tensors(output)]

    return hook


def copies(model: nn.Module, fresh: Callable[[], nn.Module], *args: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A rewritten model after a deep copy, a round trip of its state, export and compilation."""
    yield "deepcopy", copy.deepcopy(model)
    other = fresh()
    other.load_state_dict(model.state_dict())
    yield "state_dict", other
    yield "export", torch.export.export(copy.deepcopy(model), args).module()
    torch._dynamo.reset()
    yield "compile", torch.compile(copy.deepcopy(model), backend="aot_eager", fullgraph=True)
