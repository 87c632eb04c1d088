"""Models saved here and loaded in a process of their own, in which nothing of them is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

ASKED = "asked.pt"  # the inputs, and what the model gave for them
LOADER = Path(__file__).with_name("load_fresh.py")
TIMM_IN_CI = ("resnet10t", "vit_tiny_patch16_224")
TIMM = (
    *TIMM_IN_CI, "swin_tiny_patch4_window7_224", "mobilenetv3_small_050", "convnext_atto",
    "efficientnet_b0", "regnetx_002", "deit_tiny_patch16_224",
    "mixer_s32_224", "densenet121", "ghostnet_050", "poolformer_s12", "levit_128s", "beit_base_patch16_224",
    "edgenext_xx_small", "fastvit_t8", "tiny_vit_5m_224", "repvgg_a0", "dla34", "visformer_tiny",
)  # fmt: skip


def outputs(model: nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """All tensors that a model gives, in order."""
    torch.manual_seed(0)
    with torch.no_grad():
        given = model(*args, **kwargs)
    found: list[torch.Tensor] = []
    waiting = [given]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif isinstance(part, dict):
            waiting[:0] = part.values()
        elif isinstance(part, list | tuple):
            waiting[:0] = part
    return found


def ask(model: nn.Module, args: Any, kwargs: Any, place: Path) -> None:
    """Write down what a model gives, beside the folder that it is saved in."""
    place.mkdir(parents=True, exist_ok=True)
    torch.save({"args": args, "kwargs": kwargs, "outputs": outputs(model, args, kwargs)}, place / ASKED)


def answers(places: list[Path], modules: str = "") -> dict[str, dict[str, Any]]:
    """What the models of folders give in a fresh process: per place `equal`, `plain` or `error`."""
    command = [sys.executable, str(LOADER), modules, *map(str, places)]
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    quiet["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # which the order of additions depends on
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, *sys.path[:0], os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **quiet, "PYTHONPATH": path}, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def timm_case(name: str) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A model of timm in eval mode with random weights, and its input."""
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    return model, (torch.rand(1, *model.pretrained_cfg["input_size"]),)
