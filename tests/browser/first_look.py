"""Pictures for five questions to newcomers, each of five models: `python -m browser.first_look FOLDER`, run in tests/.

Each picture is the first view of a widget in a saved page, with one click at most.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torchvision import models

import modulekg_widgets as mk
from browser.contact_sheet import reduced
from browser.fixtures import CHROMIUM_OPTIONS
from browser.legibility_models import build

if TYPE_CHECKING:
    from playwright.sync_api import Page

VIEWPORT = {"width": 1400, "height": 900}
AXIS = ".mkg-axis-chip, .mkg-axis-line"
READY = '[data-mkg-ready="true"]'


class Look(NamedTuple):
    """One picture: the widget, and the text of an element of its panel that is clicked first."""

    make: Callable[[], Any]
    click: str = ""
    select: str = ""


# -------------------- Models that the other pictures do not show


class ResidualMLP(nn.Module):
    """Two linear layers beside an identity."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(features + self.down(F.gelu(self.up(self.norm(features)))))


class Switch(nn.Module):
    """Each token goes to the one expert that its gate likes best."""

    def __init__(self, width: int = 32, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, width)) for _ in range(experts)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weight, choice = self.gate(tokens).softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            out = out + expert(tokens) * ((choice == number) * weight)[:, None]
        return out


class SoftMixture(nn.Module):
    """All experts answer, and the gate weighs them."""

    def __init__(self, width: int = 32, experts: int = 3) -> None:
        super().__init__()
        self.router = nn.Sequential(nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, experts))
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        weights = self.router(tokens).softmax(-1)
        answers = torch.stack([expert(tokens) for expert in self.experts], -1)
        return (answers * weights[:, None]).sum(-1)


def mixtral() -> tuple[nn.Module, tuple[Any, ...]]:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=200, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    return MixtralForCausalLM(config).eval(), (torch.arange(12)[None],)


def graph(made: Callable[[], tuple[nn.Module, tuple[Any, ...]]] | str, view: str = "dataflow") -> Callable[[], Any]:
    def make() -> Any:
        model, args = build(made) if isinstance(made, str) else made()
        return mk.ModelGraph(model, args=args, view=view)

    return make


def block() -> tuple[nn.Module, tuple[Any, ...]]:
    return models.resnet18(weights=None).layer2[0].eval(), (torch.zeros(1, 64, 28, 28),)


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    return ResidualMLP().eval(), (torch.zeros(2, 64),)


def switch() -> tuple[nn.Module, tuple[Any, ...]]:
    return Switch().eval(), (torch.randn(6, 32),)


def soft() -> tuple[nn.Module, tuple[Any, ...]]:
    return SoftMixture().eval(), (torch.randn(6, 32),)


# -------------------- Runs to watch


def run(kind: str) -> Any:
    """A panel after 200 steps of a run that went as `kind` says."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    points = torch.randn(256, 16)
    truth = (points[:, :4].sin().sum(1, keepdim=True) + 0.1 * torch.randn(256, 1)).detach()
    train, held = slice(0, 32 if kind == "overfits" else 192), slice(192, 256)
    rate = {"well": 0.05, "diverges": 0.9, "stuck": 1e-7, "overfits": 0.1, "NaN": 0.05}[kind]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9 if kind in ("overfits", "diverges") else 0.0)
    with mk.Monitor(model, {nn.Linear: ["OutputSndNorm", "WeightGradNorm"]}) as monitor:
        panel = mk.MetricPanel(monitor)
        for step in range(200):
            optimizer.zero_grad()
            loss = F.mse_loss(model(points[train]), truth[train])
            if kind == "NaN" and step >= 120:
                loss = loss * (loss - loss.detach() - 1).log()
            loss.backward()
            optimizer.step()
            values = {"loss": loss.detach()}
            if kind == "overfits":
                with torch.no_grad():
                    values["validation loss"] = F.mse_loss(model(points[held]), truth[held])
            monitor.log(values)
            monitor.track(step)
    return panel


QUESTIONS = {
    "skip": "Where does the skip connection join again?",
    "largest": "Which block is largest?",
    "router": "What does the router (gate) do?",
    "together": "What may be pruned together?",
    "training": "Is it training well?",
}

LOOKS: dict[str, dict[str, Look]] = {
    "skip": {
        "resnet18": Look(graph("resnet18")),
        "unet": Look(graph("unet")),
        "basic_block": Look(graph(block)),
        "residual_mlp": Look(graph(mlp)),
        "llama": Look(graph("llama")),
    },
    "largest": {name: Look(graph(name)) for name in ("resnet18", "vgg16", "vit", "unet", "mask_rcnn")},
    "router": {
        "experts_as_list": Look(graph("experts_as_list")),
        "experts_fused": Look(graph("experts_fused")),
        "switch": Look(graph(switch)),
        "soft_mixture": Look(graph(soft)),
        "mixtral": Look(graph(mixtral)),
    },
    "together": {
        "resnet18": Look(graph("resnet18"), select="layer1.0.conv2", click=AXIS),
        "basic_block": Look(graph(block), select="conv2", click=AXIS),
        "residual_mlp": Look(graph(mlp), select="up", click=AXIS),
        "unet": Look(graph("unet"), select="d1.conv1", click=AXIS),
        "llama": Look(graph("llama"), select="model.layers.0.mlp.up_proj", click=AXIS),
    },
    "training": {kind: Look(lambda kind=kind: run(kind)) for kind in ("well", "diverges", "stuck", "overfits", "NaN")},
}


def draw(page: Page, look: Look, file: Path) -> None:
    """Write the picture of one look."""
    with tempfile.TemporaryDirectory() as folder:
        widget = look.make()
        if look.select:
            widget.selected = look.select
        saved = Path(folder) / "page.html"
        mk.save_html(widget, saved)
        page.goto(saved.as_uri())
        page.wait_for_selector(READY)
        page.wait_for_timeout(1_500)
        if look.click:
            page.locator(look.click).first.click()
            page.wait_for_timeout(800)
        file.write_bytes(reduced(page.screenshot()))


def main(folder: Path, only: str = "") -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_OPTIONS)
        page = browser.new_page(viewport=VIEWPORT)
        for question, looks in LOOKS.items():
            for name, look in looks.items():
                if only in f"{question}_{name}":
                    draw(page, look, folder / f"{question}_{name}.webp")
                    print(f"{question}_{name}", flush=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
