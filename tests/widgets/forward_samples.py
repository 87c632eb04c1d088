"""Forward passes whose numbers are whole, for the golden files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "golden_forward"
HOSTILE = "<img src=x onerror=alert(1)>\ud800\u202e"


class Residual(nn.Module):
    """Adds between its modules, calls one of them twice, and returns two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(1, 2, 1, bias=False), nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.relu(self.conv(x)) + x
        return self.relu(y), y


class Stops(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(HOSTILE)


def residual() -> nn.Module:
    model = Residual().eval()
    with torch.no_grad():
        model.conv.weight.copy_(torch.tensor([1.0, -2.0]).reshape(2, 1, 1, 1))
    return model


def stops() -> nn.Module:
    model = nn.Sequential(nn.Identity())
    model._modules[HOSTILE] = Stops()
    return model


INPUT = torch.tensor([[[[1.0, -2.0], [float("nan"), 4.0]]], [[[0.0, 1.0], [2.0, 3.0]]]])


def golden_passes() -> dict[str, Any]:
    """Payload and one page of pictures of each sample, as they are sent."""
    from modulekg_widgets.engine.playback.player import Playback
    from modulekg_widgets.engine.views.forward_payload import forward_payload, maps_message, pictures_payload

    found = {}
    for name, model in (("residual", residual()), ("stops", stops())):
        played = Playback(model, INPUT)
        picture = played.picture(1, 1)
        assert picture is not None
        content, (pixels,) = maps_message(*picture)
        reply = {"kind": "maps", "run": 1, "step": 1, "sample": 1, "page": 0, "maps": content}
        pictures = pictures_payload(played, 1, 0)
        found[name] = {
            "payload": forward_payload(played, 1), "reply": reply, "pixels": list(pixels),
            "pictures": {**pictures, "pixels": list(pictures["pixels"])},
        }  # fmt: skip
    return found
