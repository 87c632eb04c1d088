"""What the mask editor's page must make of a payload: Python's own choice and count, by ratio and scope."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.by_hand import HandPruning
from modulekg_widgets.engine.pruning.user_data import UserData
from modulekg_widgets.engine.views.mask_payload import mask_payload, offers_payload, trial_payload

_LINE = r"[\w./-]+\.py:\d+"
CASES = [("local", 0.25), ("local", 0.5), ("local", 0.99), ("global", 0.3), ("global", 0.6)]


class Dense(nn.Module):
    """Concatenates what two convolutions make, through a group norm and a grouped convolution, to a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.grow = nn.Conv2d(12, 7, 3, padding=1)
        self.norm = nn.BatchNorm2d(19)
        self.head = nn.Linear(19 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stem = self.stem(x).relu()
        both = self.norm(torch.cat([stem, self.grow(stem)], 1))
        return self.head(both.flatten(1))


class Mixing(nn.Module):
    """Two residual layers and a product of a value with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 10)
        self.up = nn.Linear(10, 33)
        self.down = nn.Linear(33, 10)
        self.out = nn.Linear(10, 4, bias=False)

    def forward(self, tokens: torch.Tensor) -> Any:
        x = self.embed(tokens)
        x = x + self.down(self.up(x).relu())
        gram = x.transpose(1, 2) @ x
        return self.out(x), gram.sum()


MODELS: dict[str, tuple[Any, Any]] = {
    "dense": (Dense, lambda: torch.zeros(2, 3, 4, 4)),
    "mixing": (Mixing, lambda: torch.zeros(2, 6, dtype=torch.long)),
}


def golden_masks() -> dict[str, dict[str, Any]]:
    """Per model the payload, the scores, and what goes and is left for each of `CASES`."""
    return {name: _golden(make().eval(), inputs()) for name, (make, inputs) in MODELS.items()}


def _golden(model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    pruning = HandPruning(model, x, None, None)
    pruning.importances = {"random": "random"}
    draft, graph = pruning.draft, pruning.draft.graph
    payload = mask_payload(pruning)
    # lines move with every release of torch and with the folder of the tests
    payload["axes"]["reasons"] = [re.sub(_LINE, "file.py", reason) for reason in payload["axes"]["reasons"]]
    cases = []
    for scope, ratio in CASES:
        plan = mk.plan(graph, ratio=ratio, scope=scope, importance="random")
        assert plan.changes == ()  # the page knows of no dry run
        draft.take(plan)
        before, after = draft.sizes()
        cases.append(
            {
                "scope": scope,
                "ratio": ratio,
                "dropped": {cut.name: list(cut.dropped) for cut in plan.axes},
                "packed": list(draft.packed()),
                **{unit: [getattr(before, unit), getattr(after, unit)] for unit in ("params", "flops", "bytes")},
            }
        )
        assert plan.params == tuple(cases[-1]["params"])
        assert plan.flops == tuple(cases[-1]["flops"])
    return {"payload": payload, "scores": list(draft.scores("random")), "cases": cases, "costs": _costs(model, x)}


def _costs(model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """What data of the user allow, and what they have said of a model that was cut and recalibrated."""
    found = iter([{"right": 0.75, "lost": math.inf}, ValueError("no data"), 0.5])

    def evaluate(_: nn.Module) -> Any:
        value = next(found)
        if isinstance(value, Exception):
            raise value
        return value

    model = copy.deepcopy(model)
    pruning = HandPruning(model, x, None, None, UserData([x, x], torch.sum, evaluate))
    pruning.draft.take(mk.plan(pruning.draft.graph, ratio=0.5))
    plan = pruning.draft.plan()
    assert plan is not None
    pruning.cut(plan, recalibrate=True)
    return {"offers": offers_payload(pruning), "trial": trial_payload(pruning)}
