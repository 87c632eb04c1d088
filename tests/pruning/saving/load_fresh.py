"""A process of its own: loads folders by `mk.load_pretrained`, and by the library where it can, and compares."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

import modulekg_widgets as mk
from pruning.saving.fresh import ASKED, outputs


def same(model: torch.nn.Module, asked: dict[str, Any]) -> bool:
    found = outputs(model, asked["args"], asked["kwargs"])
    expected = asked["outputs"]
    return len(found) == len(expected) and all(map(_same, found, expected))


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit by bit, NaN included."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def answer(place: Path) -> dict[str, Any]:
    asked = torch.load(place / ASKED, weights_only=False)
    folder = place / "folder"
    found: dict[str, Any] = {}
    try:
        model = mk.load_pretrained(folder)
        found = {"equal": same(model, asked), "training": any(each.training for each in model.modules())}
        manifest = json.loads((folder / "modulekg.json").read_text())
        if manifest["from_pretrained"]:
            import transformers

            cls = getattr(transformers, manifest["origin"]["class"])
            found["plain"] = same(cls.from_pretrained(folder).eval(), asked)
    except Exception as error:  # noqa: BLE001 - told to the test
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def main() -> None:
    for name in filter(None, sys.argv[1].split(",")):
        importlib.import_module(name)
    print(json.dumps({place: answer(Path(place)) for place in sys.argv[2:]}))


if __name__ == "__main__":
    main()
