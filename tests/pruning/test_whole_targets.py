"""Targets met by whole heads, groups and experts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from pruning.test_targets import NEAR, off


def test_a_target_goes_by_whole_heads() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 8, 96, batch_first=True)
    model = nn.Sequential(nn.Linear(6, 64), layer, nn.Linear(64, 3)).eval()
    plan = mk.plan(mk.trace(model, torch.randn(2, 5, 6)), target={"flops": 0.6}, granularity="head")
    assert abs(off(plan, {"flops": 0.6})["flops"]) < NEAR
    plan.cut(model)
    assert layer.self_attn.num_heads < 8
    assert model(torch.randn(2, 5, 6)).shape == (2, 5, 3)


class Grouped(nn.Module):
    """Convolutions in groups, between others."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, groups=16), nn.ReLU(), nn.Conv2d(64, 48, 1), nn.ReLU()
        )
        self.head = nn.Linear(48, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


@pytest.mark.parametrize("target", [{"flops": 0.6}, {"params": 0.4}, {"flops": 0.5, "params": 0.51}], ids=str)
def test_a_target_goes_by_whole_groups(target: dict[str, float]) -> None:
    torch.manual_seed(0)
    model, x = Grouped().eval(), torch.randn(1, 3, 12, 12)
    plan = mk.plan(mk.trace(model, x), target=target, granularity="group")
    assert max(map(abs, off(plan, target).values())) < NEAR
    plan.cut(model)
    convolution = model.body[2]
    assert convolution.groups < 16
    assert convolution.weight.shape[1] == 4
    assert model(x).shape == (1, 5)


@pytest.mark.slow
def test_a_target_goes_by_whole_experts() -> None:
    model, kwargs = transformers_models.build("mixtral")
    graph = mk.trace(model.eval(), (), kwargs)
    experts = [axis.name for axis in graph.axes if axis.role == "experts"]
    assert experts
    plan = mk.plan(graph, target={"params": 0.8}, granularity="expert")
    assert set(experts) & {axis.name for axis in plan.axes}
    assert abs(off(plan, {"params": 0.8})["params"]) < NEAR
