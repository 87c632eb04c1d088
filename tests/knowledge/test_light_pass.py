"""Costs that models of libraries get while they are indexed, without a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.knowledge.facts.records import model_record
from modulekg_widgets.engine.knowledge.facts.traced import add_cost, traced_record
from modulekg_widgets.engine.knowledge.indexing import build_record
from modulekg_widgets.engine.knowledge.prediction.data.design import Design, Sample
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of
from modulekg_widgets.engine.knowledge.prediction.data.published import published_models

BATCH = ((torch.empty(2, 4, device="meta"),), {})


class Builder:
    """Builds a layer, and says how it is called."""

    __name__ = "layer"

    def __init__(self, example: Any = BATCH) -> None:
        self._example = example

    def __call__(self) -> nn.Module:
        return nn.Linear(4, 3)

    def example(self, model: nn.Module) -> Any:
        assert isinstance(model, nn.Linear)
        return self._example


def of(builder: Any) -> Any:
    return mk.index_models({"layer": builder}).contents().models["layer"]


def test_products_count_and_inputs_are_known() -> None:
    found = of(Builder())
    assert found.flops == 2 * 2 * 4 * 3
    assert found.inputs == ((2, 4),)


@pytest.mark.parametrize("builder", [Builder(None), Builder(((torch.empty(2, 5, device="meta"),), {})), nn.Identity])
def test_what_does_not_say_or_does_not_run_has_no_cost(builder: Any) -> None:
    found = of(builder)
    assert (found.flops, found.inputs) == (None, None)


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "mobilenet_v3_small", "vit_b_16"])
def test_the_cost_of_torchvision_is_near_what_it_publishes(name: str) -> None:
    kg = mk.index_models({name: mk.torchvision_builders()[name]})
    assert kg.contents().models[name].flops == pytest.approx(published_models()[name].flops, rel=0.03)


def test_timm_and_transformers() -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    builders = {**mk.timm_builders(["resnet18"]), **mk.transformers_builders(["bert", "t5", "vit"])}
    models = mk.index_models(builders).contents().models
    assert models["resnet18"].inputs == ((1, 3, 224, 224),)
    assert models["bert"].inputs == ((1, 128),)
    assert models["t5"].inputs == ((1, 128), (1, 128))
    assert all(model.flops and model.flops > 1e8 for model in models.values())


def test_a_pass_that_is_counted_is_the_same_where_it_is_traced() -> None:
    for name in ("resnet18", "mobilenet_v3_small", "vit_b_16"):
        builder = mk.torchvision_builders()[name]
        light = build_record(name, builder, "structure", "repetition").model
        traced = traced_record(builder(), (torch.zeros(1, 3, 224, 224),), None, name, "structure", True).model
        assert light.launches
        assert light.traffic
        assert (light.launches, light.traffic) == (traced.launches, traced.traffic)


class Pair(nn.Module):
    """What takes and gives several tensors at once, of which torch's FlopCounterMode follows none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.first(both[0]), self.second(both[1])


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = self.pair((x, 2 * x))
        return torch.relu_(one.view(-1)) + other.view(-1)


def test_products_and_traffic_are_counted_whatever_modules_pass_on() -> None:
    model = Outer()
    found = add_cost(model_record(model), model, ((torch.empty(1, 4, device="meta"),), {})).model
    assert found.flops == 2 * (2 * 4 * 8)
    assert found.launches == 5  # the doubling, two products, relu in place, the sum; no view
    assert found.traffic == (4 + 4) + 2 * (8 + 4 + 32 + 8) + (8 + 8) + (8 + 8 + 8)


@pytest.mark.parametrize("suffix", [".graphml", ".cyjs", ".jsonld", ".db"])
def test_what_was_counted_is_kept(suffix: str, tmp_path: Path) -> None:
    kg = mk.KnowledgeGraph(str(tmp_path / f"kept{suffix}") if suffix == ".db" else None)
    kg.add_model(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), name="small", args=(torch.zeros(1, 4),))
    kg.add_model(nn.Linear(4, 8), name="never called")
    if suffix == ".db":
        read = mk.KnowledgeGraph(str(tmp_path / "kept.db")).contents().models
    else:
        kg.export(str(tmp_path / f"kept{suffix}"))
        read = mk.load_graph(str(tmp_path / f"kept{suffix}")).contents().models
    assert (read["small"].launches, read["small"].traffic) == (2, 8 + 4 + 32 + 8 + 16)
    assert (read["never called"].launches, read["never called"].traffic) == (None, None)


def test_operators_and_traffic_tell_what_flops_do_not() -> None:
    """Both are compared where most passes were counted; a line tells those of one that was not."""
    samples = []
    for depth in range(1, 9):
        for width in (16, 32, 64):
            model = nn.Sequential(nn.Linear(width, width), *(nn.ReLU() for _ in range(depth)))
            record = add_cost(model_record(model), model, ((torch.empty(1, width, device="meta"),), {}))
            samples.append(Sample(features_of(record, family=str(depth))))
    design = Design(samples, costs=True)
    assert design.known.size_matrix.shape == (24, 6)
    launches = [sample.features.record.model.launches for sample in samples]
    assert np.corrcoef(design.known.size_matrix[:, 4], np.log10(launches))[0, 1] == pytest.approx(1)
    model = samples[5].features.record.model
    uncounted = replace(samples[5].features.record, model=replace(model, launches=None, traffic=None))
    (row,) = design.rows([Sample(replace(samples[5].features, record=uncounted))]).size_matrix
    assert np.isfinite(row).all()
    assert np.abs(row[4:]).max() < 3
    few = [Sample(replace(each.features, record=uncounted)) for each in samples[:6]] + samples[6:]
    assert Design(few, costs=True).known.size_matrix.shape == (24, 4)  # too few were counted
    assert Design(samples, costs=False).known.size_matrix.shape == (24, 2)
