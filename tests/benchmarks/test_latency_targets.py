"""What plans with a target in milliseconds leave, measured beside the uncut model, and how long planning takes.

Run with `pytest -m nightly tests/benchmarks/test_latency_targets.py -s`.

One thread, whose own clock is read: what it tells is the latency of an idle core. Cut and uncut model take turns.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

import modulekg_widgets as mk

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
SHARE = 0.6
NEAR = 0.1  # of the share that was asked for
SECONDS = 30.0  # of the CPU, for a plan
ROUNDS = 60


class UNet(nn.Module):
    """Two levels down and up, with a skip on each."""

    def __init__(self) -> None:
        super().__init__()

        def level(before: int, after: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())

        self.first, self.second, self.bottom = level(3, 32), level(32, 64), level(64, 128)
        self.pool = nn.MaxPool2d(2)
        self.up_two, self.up_one = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)
        self.two, self.one, self.head = level(128, 64), level(64, 32), nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.first(x)
        two = self.second(self.pool(one))
        x = self.bottom(self.pool(two))
        x = self.two(torch.cat([self.up_two(x), two], 1))
        return self.head(self.one(torch.cat([self.up_one(x), one], 1)))


Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def llama() -> Case:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=1000,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), (), {"input_ids": torch.randint(1000, (1, 64)), "use_cache": False}


def vit() -> Case:
    model = torchvision.models.VisionTransformer(
        image_size=64, patch_size=8, num_layers=6, num_heads=6, hidden_dim=192, mlp_dim=768
    )
    return model, (torch.randn(1, 3, 64, 64),), {}


def mlp() -> Case:
    return (
        nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
        (torch.randn(32, 784),),
        {},
    )


MODELS: dict[str, Callable[[], Case]] = {
    "mlp": mlp,
    "resnet18": lambda: (torchvision.models.resnet18(), (torch.randn(1, 3, 224, 224),), {}),
    "mobilenet_v3_large": lambda: (torchvision.models.mobilenet_v3_large(), (torch.randn(1, 3, 224, 224),), {}),
    "vit": vit,
    "llama": llama,
    "unet": lambda: (UNet(), (torch.randn(1, 3, 64, 64),), {}),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def measured(whole: nn.Module, cut: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The ratio of the medians of passes that take turns."""
    taken: dict[nn.Module, list[float]] = {whole: [], cut: []}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for model, own in taken.items():
                start = time.thread_time()
                model(*args, **kwargs)
                own.append(time.thread_time() - start)
    return statistics.median(taken[cut][2:]) / statistics.median(taken[whole][2:])


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_takes_what_was_asked_for(name: str) -> None:
    torch.manual_seed(0)
    model, args, kwargs = MODELS[name]()
    model.eval()
    graph = mk.trace(model, args, kwargs)
    start = time.process_time()
    plan = mk.plan(graph, target={"latency": SHARE})
    planning = time.process_time() - start
    cut = copy.deepcopy(model)
    plan.cut(cut, undo=False)
    share = measured(model, cut, args, kwargs)
    assert plan.latency is not None
    said = plan.latency[1] / plan.latency[0]
    print(f"\n{name:<20} asked {SHARE:.2f}  said {said:.3f}  measured {share:.3f}  planning {planning:.1f} CPU-s")
    assert share < 1
    assert abs(share / SHARE - 1) <= NEAR
    assert planning <= SECONDS
