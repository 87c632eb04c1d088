"""The models of the golden payloads: one feature each, built of few modules."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from modulekg_widgets.engine.files.compare.comparable import comparable
from modulekg_widgets.engine.files.compare.comparison import FileDiff
from modulekg_widgets.engine.identity.diff import HierarchyDiff
from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.views.dataflow_payload import add_trace
from modulekg_widgets.engine.views.payload import model_payload

_LINE = r"[^\s,]+\.py:\d+"


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width: int, inner: int | None = None) -> None:
        super().__init__()
        self.width = width
        self.conv = nn.Conv2d(width, inner or width, 3, padding=1)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.conv(x))


class Holder(nn.Module):
    """Attributes of many kinds."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.inner = nn.Identity()
        vars(self).update(attributes)


def folded() -> nn.Module:
    exact = nn.Sequential(*(Block(4) for _ in range(5)))
    family = nn.Sequential(*(Block(4, inner) for inner in (4, 8, 12)))
    family[1].extra = "a field that the others lack"
    return nn.Sequential(nn.Conv2d(3, 4, 1), exact, family, nn.Flatten(), nn.Linear(16, 2))


def shared() -> nn.Module:
    model = nn.Module()
    model.embed = nn.Embedding(10, 4)
    model.head = nn.Linear(4, 10, bias=False)
    model.head.weight = model.embed.weight  # tied
    model.act = nn.ReLU()
    model.again = model.act  # the same module
    model.empty = None
    model.register_module("none", None)
    return model


def cyclic() -> nn.Module:
    model = nn.Module()
    model.child = nn.Linear(2, 2)
    model.child.parent = model
    return model


def awkward() -> nn.Module:
    """Names and values that a page, JSON or JavaScript would trip over."""
    model = nn.Sequential()
    for name in ("<img src=x onerror=alert(1)>", "__proto__", "constructor", "a\nb", "\ud800", "x" * 300):
        model.add_module(name, nn.Identity())
    model.add_module("values", Holder(nan=float("nan"), inf=float("-inf"), large=2**60, text="\udfff", handle=object()))
    model.add_module("lazy", nn.LazyLinear(3))
    return model


def wide() -> nn.Module:
    return nn.Sequential(*(nn.Linear(1, 1) for _ in range(300)))


def deep() -> nn.Module:
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(60):
        model = nn.Sequential(model)
    return model


class Branches(nn.Module):
    """Two inputs, a module that is called twice, one that is not called, blocks that fold, code between modules."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 4)
        self.right = nn.Linear(5, 4)
        self.act = nn.ReLU()
        self.drop = nn.Dropout()
        self.blocks = nn.Sequential(*(Block(1) for _ in range(3)))
        self.head = nn.Linear(8, 2)
        self.spare = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, torch.Tensor]:
        both = torch.cat([self.act(self.left(x)), self.act(self.right(y))], dim=1)
        image = self.blocks(self.drop(both).view(-1, 1, 2, 4))
        return {"score": self.head(image.flatten(1)), "both": both}


class Stopping(nn.Module):
    """Its forward fails in the second of three modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(5, 4))
        self.third = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x)))


def traced(model: nn.Module, args: Any = (), kwargs: Any = None) -> dict[str, Any]:
    """The payload of a model with what its forward pass adds."""
    modules = hierarchy(model)
    payload = model_payload(modules)
    add_trace(payload, modules, model, args, kwargs)
    return payload


MODELS: dict[str, Callable[[], nn.Module]] = {
    "folded": folded,
    "shared": shared,
    "cyclic": cyclic,
    "awkward": awkward,
    "wide": wide,
    "deep": deep,
}


def payloads() -> dict[str, dict[str, Any]]:
    """The payload of each model, two of forward passes and two of comparisons."""
    made = {name: model_payload(hierarchy(build())) for name, build in MODELS.items()}
    left, right = folded(), folded()
    right[3] = nn.Flatten(2)
    right[1].append(Block(6))
    made["traced"] = traced(Branches().eval(), torch.zeros(2, 3), {"y": torch.zeros(2, 5)})
    made["stopped"] = traced(Stopping(), torch.zeros(1, 3))
    made["compare"] = model_payload(hierarchy(left), HierarchyDiff(hierarchy(left), hierarchy(right)))
    found = FileDiff(comparable(left), comparable(wrapped(right)), weights=False)
    made["compare_wrapped"] = model_payload(found.structure.left, found.structure, tensors=found.summary)
    return made


def wrapped(model: nn.Module) -> nn.Module:
    """The model as the `module` of another, beside one that is new."""
    around = nn.Module()
    around.module, around.average = model, nn.Linear(3, 3)
    return around


def without_lines(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload without source lines and words of torch, which move with its releases and the folder of the tests."""
    for table, key in ((payload["flow"], "sources"), (payload["axes"], "reasons")):
        if table:
            table[key] = [re.sub(_LINE, "file.py", text) for text in table[key]]
    payload["error"] = payload["error"] and re.sub(_LINE, "file.py", payload["error"]).replace("addmm: mat1", "mat1")
    payload["classes"]["source"] = [None for _ in payload["classes"]["source"]]
    if payload["compare"]:
        without_lines(payload["compare"]["model"])
    return payload
