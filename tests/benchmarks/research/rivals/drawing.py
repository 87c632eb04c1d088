"""What a picture has, read from what a tool wrote, and what of the model is right in it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

# what a function is called by the tools: torch's name, ATen's with its overload, ONNX's
NAMES = {
    "add": re.compile(r"(aten[.:]+)?_*i?add_*(\.\w+)?"),
    "cat": re.compile(r"(aten[.:]+)?(cat|concat)(\.\w+)?"),
    "relu": re.compile(r"(aten[.:]+)?relu_?(\.\w+)?"),
}


@dataclass(frozen=True)
class Drawing:
    """The boxes of a picture with all of it open, and the arrows that data takes between them."""

    names: Mapping[str, str]  # of each box, what it does: 'Conv2d', 'aten::add', 'Concat'
    arrows: frozenset[tuple[str, str]]
    shaped: float = 0.0  # share of the arrows on which, or at whose beginning, a shape is told
    levels: int | None = None  # of modules that lie in each other, the model itself not counted; None: it draws none
    modules: Mapping[str, str] | None = None  # of each box, the path of its module as it is told; None: it tells none

    def boxes(self, function: str) -> list[str]:
        """The boxes of a function."""
        return [box for box, name in self.names.items() if NAMES[function].fullmatch(name.lower())]

    def joins(self, function: str) -> int:
        """How many boxes of a function have arrows from two boxes or more."""
        incoming = Counter(end for _, end in self.arrows)
        return sum(incoming[box] >= 2 for box in self.boxes(function))


def share(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed) if listed else 0.0


class _Joins(TorchFunctionMode):
    """Counts the functions that join two different tensors or more; parameters have no boxes, and are none here."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "").strip("_").removeprefix("i")
        given = args[0] if name == "cat" else args[:2]
        joined = {id(one) for one in given if isinstance(one, torch.Tensor) and not isinstance(one, nn.Parameter)}
        if len(joined) >= 2:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def joins(model: nn.Module, args: tuple[Any, ...]) -> Counter[str]:
    """What a forward pass really does: how often it adds two different tensors or concatenates some."""
    with torch.no_grad(), _Joins() as mode:
        model(*args)
    return mode.found


def verdicts(drawing: Drawing) -> dict[str, Any]:
    """What is kept of a drawing: counts that can be held against the truth."""
    return {
        "boxes": len(drawing.names),
        "add": drawing.joins("add"),
        "cat": drawing.joins("cat"),
        "relu": len(drawing.boxes("relu")),
        "shaped": round(drawing.shaped, 3),
        "levels": drawing.levels,
        # the layer `one` of models.Shared, called twice: boxes that say so
        "shared": None if drawing.modules is None else sum(path == "one" for path in drawing.modules.values()),
    }
