"""What the mask editor's page must make of a payload: Python's own choice and count, by ratio and scope."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.draft import Draft
from modulekg_widgets.engine.pruning.session import PruningSession
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


class Layer(nn.Module):
    """A layer whose branches are blocks that lie in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(width, 12), nn.Tanh(), nn.Linear(12, width))
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 20), nn.GELU(), nn.Linear(20, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(x)
        return x + self.feed(self.norm(x))


class Layered(nn.Module):
    """Layers that can go as a whole, and whose branches can."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.layers = nn.ModuleList(Layer(8) for _ in range(3))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


MODELS: dict[str, tuple[Any, Any]] = {
    "dense": (Dense, lambda: torch.zeros(2, 3, 4, 4)),
    "mixing": (Mixing, lambda: torch.zeros(2, 6, dtype=torch.long)),
    "layered": (Layered, lambda: torch.zeros(2, 5, 6)),
}


def golden_masks() -> dict[str, dict[str, Any]]:
    """Per model the payload, the scores, and what goes and is left for each of `CASES`."""
    return {name: _golden(make().eval(), inputs()) for name, (make, inputs) in MODELS.items()}


def _golden(model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    _weigh(model)
    pruning = PruningSession(model, x, None, None)
    pruning.importances = {"random": "random"}
    draft, graph = pruning.draft, pruning.draft.graph
    payload = mask_payload(pruning)
    # lines move with every release of torch and with the folder of the tests
    payload["axes"]["reasons"] = [re.sub(_LINE, "file.py", reason) for reason in payload["axes"]["reasons"]]
    cases = []
    for scope, ratio in CASES:
        plan = mk.plan(graph, ratio=ratio, scope=scope, importance="random")
        assert plan.changes == ()  # the page knows of no dry run
        draft.adopt_plan(plan)
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
    scores = list(draft.scores("random"))
    return {
        "payload": payload, "scores": scores, "cases": cases, "costs": _costs(model, x), "removals": _removals(draft)
    }  # fmt: skip


def _removals(draft: Draft) -> list[dict[str, Any]]:
    """What is left without some blocks, and with half of the indices of what stays gone too."""
    paths = [block.path for block in draft.blocks.blocks]
    found = []
    for removed in filter(None, [*([path] for path in paths), paths[1:4], paths]):
        for ratio in (None, 0.5):
            plan = mk.plan(draft.graph, blocks=removed, ratio=ratio, importance="random")
            assert plan.changes == ()
            draft.adopt_plan(plan)
            before, after = draft.sizes()
            sizes = {unit: [getattr(before, unit), getattr(after, unit)] for unit in ("params", "flops", "bytes")}
            assert (plan.params, plan.bytes) == (tuple(sizes["params"]), tuple(sizes["bytes"]))
            if not draft.blocks.blocks[0].upstream:  # code between modules that go is counted by the dry run alone
                assert plan.flops == tuple(sizes["flops"])
            dropped = {cut.name: list(cut.dropped) for cut in plan.axes}
            found.append({"packed": list(draft.packed()), "removed": draft.removed_paths, "dropped": dropped, **sizes})
            assert draft.removed_paths == list(plan.blocks)
    return found


def _weigh(model: nn.Module) -> None:
    """The same weights everywhere, by which blocks are scored."""
    for at, parameter in enumerate(model.parameters()):
        nn.init.constant_(parameter, (at % 5 + 1) / 8)


def _costs(model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """What data of the user allow, and what they have said of a model that was cut and recalibrated."""
    found = iter([{"right": 0.75, "lost": math.inf}, ValueError("no data"), 0.5])

    def evaluate(_: nn.Module) -> Any:
        value = next(found)
        if isinstance(value, Exception):
            raise value
        return value

    model = copy.deepcopy(model)
    pruning = PruningSession(model, x, None, None, UserData([x, x], torch.sum, evaluate))
    pruning.draft.adopt_plan(mk.plan(pruning.draft.graph, ratio=0.5))
    plan = pruning.draft.plan()
    assert plan is not None
    pruning.cut(plan, recalibrate=True)
    return {"offers": offers_payload(pruning), "trial": trial_payload(pruning)}
