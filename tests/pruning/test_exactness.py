"""A cut model computes what the original does without the dropped indices, in float64."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from models.random_models import SIZE, Builder, builders
from models.zoo import family, float_models, zoo_case
from modulekg_widgets.engine.axes.proof.double_precision import rescaled
from modulekg_widgets.engine.pruning.plan.corrections.candidate import PlanCandidate
from modulekg_widgets.engine.pruning.plan.dry_run.masked_reference import output_error
from modulekg_widgets.engine.pruning.plan.planner import Planner
from modulekg_widgets.engine.pruning.plan.selection.request import Request
from pruning.battery import differs, state_of
from sampling import sampled

nightly = pytest.mark.nightly
CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
NO_STATISTICS = ("resnet18", "mobilenet_v3_small", "densenet121", "shufflenet_v2_x0_5", "regnet_x_400mf", "googlenet")
MASKED = ("resnet18", "shufflenet_v2_x0_5", "swin_t", "convnext_tiny", "lraspp_mobilenet_v3_large")
TRANSFORMERS = ("llama", "bert", "segformer", "t5")


def error_of(graph: mk.DataflowGraph, **how: Any) -> float:
    """How far a plan's cut lies from the masked original."""
    planner = Planner(graph, Request(**how))
    selection = planner.selection(how.get("ratio", 0.0))
    attempt, rehearsal = planner.repair.fixed(PlanCandidate(selection, selection.counts))
    assert attempt.selection.changed
    return output_error(planner.axes, attempt.selection.keep_masks(), planner.repair.edits(attempt), rehearsal.scales)


# the data decide which way a detector goes, so there is no one masked original: test_battery.py runs them
@pytest.mark.parametrize("name", sampled([n for n in float_models() if family(n) != "detection"], MASKED))
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_torchvision_equals_the_masked_original(name: str) -> None:
    model, args = zoo_case(name)
    graph = mk.trace(model, args)
    assert graph.traced_on != "real"
    assert error_of(graph, ratio=0.5) < 1e-9


# these two are recorded with an operator that the CPU has not: test_battery.py runs them
@pytest.mark.parametrize(
    "name", sampled([n for n in transformers_models.CASES if n not in ("mixtral", "qwen3_moe")], TRANSFORMERS)
)
def test_transformers_equal_the_masked_original(name: str) -> None:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build(name)
    graph = mk.trace(model, (), kwargs)
    assert error_of(graph, ratio=0.5) < 1e-9


@pytest.mark.parametrize(
    "how", [{"granularity": "head"}, {"scope": "global"}, {"scope": "isomorphic"}, {"round_to": 4}]
)
@pytest.mark.parametrize("name", [pytest.param("swin_t", marks=nightly), "mobilenet_v3_small"])
def test_other_ways_to_choose(name: str, how: dict[str, Any]) -> None:
    model, args = zoo_case(name)
    assert error_of(mk.trace(model, args), ratio=0.3, **how) < 1e-9


@pytest.mark.parametrize("name", NO_STATISTICS)
@pytest.mark.slow
def test_what_reads_the_dropped_indices_reads_zero_instead(name: str) -> None:
    """An oracle that knows nothing of the engine but which positions went: zeros in the weights that read them."""
    model, args = zoo_case(name)
    graph = mk.trace(model, args)
    for node_name, value in rescaled(list(graph.state.values()), 0).items():
        graph.state[node_name].tensor.data = value.float()
    model, args = model.double(), tuple(arg.double() for arg in args)
    plan = mk.plan(mk.trace(model, args), ratio=0.4)
    smaller = copy.deepcopy(model)
    plan.cut(smaller)
    tensors = dict(model.state_dict())
    silenced = 0
    for edit in plan.edits.tensors:
        for at, kept in edit.kept.items():
            if at not in edit.produced and edit.names[0].endswith("weight") and len(edit.shape) > 1:
                gone = np.setdiff1d(np.arange(edit.shape[at]), kept)
                tensors[edit.names[0]].index_fill_(at, torch.from_numpy(gone), 0.0)
                silenced += 1
    assert silenced > 3
    with torch.no_grad():
        expected, found = model(*args), smaller(*args)
    assert (expected - found).abs().max() < 1e-9 * expected.abs().max()


def check(builder: Builder) -> None:
    """A random model is cut exactly, or refused by a typed error; nothing is left behind either way."""
    torch.manual_seed(0)
    model = builder.model.eval()
    x = torch.randn(2, len(builder.maps[0]), SIZE, SIZE)
    before = state_of(model)
    graph = mk.trace(model, x)
    if not any(axis.size > 2 for axis in graph.axes.free):
        return
    refusal = ""
    try:
        plan = mk.plan(graph, ratio=0.5)
    except mk.ModuleKGError as error:
        refusal = str(error)
    if refusal:
        assert not differs(before, state_of(model))
        assert "could be cut" in refusal or "removes no index" in refusal, f"{model.log}: {refusal}"
        return
    assert error_of(graph, ratio=0.5) < 1e-9, model.log
    shape = model(x).shape
    receipt = plan.cut(model)
    assert model(x).shape == shape, model.log
    receipt.undo()
    assert not differs(before, state_of(model)), model.log


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=CHECKS, phases=[Phase.generate])
@given(builders())
@pytest.mark.slow
def test_random_models(builder: Builder) -> None:
    check(builder)


@nightly
@settings(
    max_examples=int(os.environ.get("MODULEKG_EXAMPLES", "1000")), deadline=None, suppress_health_check=CHECKS,
    phases=[Phase.generate],
)  # fmt: skip
@given(builders())
@pytest.mark.timeout(3600)
def test_a_thousand_random_models(builder: Builder) -> None:
    check(builder)


@pytest.mark.slow
def test_the_oracle_sees_one_wrong_position() -> None:
    model, args = zoo_case("resnet18")
    planner = Planner(mk.trace(model, args), Request(ratio=0.5))
    selection = planner.selection(0.5)
    edits = planner.repair.edits(PlanCandidate(selection, selection.counts))
    assert output_error(planner.axes, selection.keep_masks(), edits) < 1e-9
    edit = next(edit for edit in edits.tensors if edit.names[0] == "layer2.0.conv2.weight")
    wrong = np.flatnonzero(np.diff(edit.kept[1]) > 1)[-1]  # the last that goes before one that is gone
    edit.kept[1] = edit.kept[1].copy()
    edit.kept[1][wrong] += 1
    assert output_error(planner.axes, selection.keep_masks(), edits) > 1e-4


class Gate(nn.Module):
    """Statistics over the axis: the mean over channels, and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm, self.out = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.into(x))
        return self.out(x.softmax(-1) + x.mean(-1, keepdim=True) + x / x.norm(dim=-1, keepdim=True))


def test_statistics_run_over_what_stays() -> None:
    torch.manual_seed(0)
    model = Gate().double().eval()
    x = torch.randn(5, 6, dtype=torch.float64)
    graph = mk.trace(model, x)
    plan = mk.plan(graph, per_axis={"into": [0, 3, 6]})
    keep = [1, 2, 4, 5, 7]
    with torch.no_grad():
        hidden = nn.functional.layer_norm(model.into(x)[:, keep], [5], model.norm.weight[keep], model.norm.bias[keep])
        mixed = hidden.softmax(-1) + hidden.mean(-1, keepdim=True) + hidden / hidden.norm(dim=-1, keepdim=True)
        expected = mixed @ model.out.weight[:, keep].T + model.out.bias
        plan.cut(model)
        assert (model(x) - expected).abs().max() < 1e-12
    assert error_of(mk.trace(Gate().double().eval(), x), ratio=0.5) < 1e-9
