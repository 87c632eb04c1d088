"""What a search builds under a budget of FLOPs: what its stored cost, size or family leaves a chance."""

from __future__ import annotations

import torch
from torch import nn

from knowledge.zoo_contents import contents_of, small_contents, small_predictor, traced, zoo_record
from modulekg_widgets.engine.knowledge.facts.contents import DataSetNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.suggestion.build_check import CheckedBuild
from modulekg_widgets.engine.knowledge.suggestion.candidates import ForwardPass, Requirements, meta_call
from modulekg_widgets.engine.knowledge.suggestion.costs import CostEstimator
from modulekg_widgets.engine.knowledge.suggestion.known_models import suggest

SMALL = DataSetNode("small", {"task": "image classification", "image_size": 32})
ESTIMATE = 4.9e7  # of the models below on images of 32 pixels
AREAS = (224 / 32) ** 2


class Wide(nn.Module):
    """A million weights, each used once or more."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 1000, 1), nn.Linear(1000, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(images).mean((2, 3)))


def costs(max_flops: float | None) -> CostEstimator:
    return CostEstimator(small_predictor(), Requirements(SMALL, None, max_flops))


def known() -> list[ModelRecord]:
    """Three of one family."""
    return [traced(zoo_record(name), round(ESTIMATE * AREAS)) for name in ("resnet18", "resnet34", "resnet50")]


def seen(side: int, flops: float) -> CheckedBuild:
    return CheckedBuild(nn.Identity, nn.Identity(), ForwardPass(meta_call([(1, 3, side, side)]), round(flops), {}, {}))


def test_a_cost_is_estimated_by_the_area() -> None:
    assert costs(None).estimate(known()[0]) == ESTIMATE
    assert costs(0.51 * ESTIMATE).may_fit(known()[0])
    assert not costs(0.49 * ESTIMATE).may_fit(known()[0])
    assert costs(None).may_fit(known()[0])


def test_two_of_a_family_tell_how_much_more_than_estimated_the_others_may_cost() -> None:
    budget = costs(0.9 * ESTIMATE)
    first, second, third = known()
    budget.record_run(first, seen(32, 1.1 * ESTIMATE))
    assert budget.may_fit(third)
    budget.record_run(second, seen(32, 1.05 * ESTIMATE))
    assert not budget.may_fit(third)
    assert budget.may_fit(traced(zoo_record("mobilenet_v3_small"), round(ESTIMATE * AREAS)))
    assert costs(ESTIMATE).may_fit(third)
    less = costs(0.9 * ESTIMATE)
    for record in (first, second):
        less.record_run(record, seen(32, 0.8 * ESTIMATE))
    assert less.may_fit(third)


def test_ten_of_other_families_tell_it_as_well() -> None:
    names = ("squeezenet1_1", "mobilenet_v3_small", "vgg11", "alexnet", "densenet121")
    others = [traced(zoo_record(name), round(ESTIMATE * AREAS)) for name in names]
    for least, fits in ((1.01, False), (0.8, True)):
        budget = costs(0.9 * ESTIMATE)
        for record in others:
            budget.record_run(record, seen(32, 1.2 * ESTIMATE))
        assert budget.may_fit(known()[0])
        for record in others:
            budget.record_run(record, seen(32, least * ESTIMATE))
        assert budget.may_fit(known()[0]) == fits


def test_of_a_family_of_one_size_of_images_two_are_tried() -> None:
    budget = costs(0.9 * ESTIMATE)
    first, second, third = known()
    budget.record_run(first, seen(224, AREAS * ESTIMATE))
    assert budget.may_fit(third)
    budget.record_run(second, seen(224, AREAS * ESTIMATE))
    assert not budget.may_fit(third)


def test_of_a_model_of_unknown_cost_each_weight_counts_once_but_those_of_tables() -> None:
    record = model_record(nn.Sequential(nn.Embedding(10_000, 1000), Wide()), "wide")
    assert costs(2.1e6).may_fit(record)
    assert not costs(1.9e6).may_fit(record)


def test_what_costs_too_much_for_its_weights_alone_is_not_built() -> None:
    built: list[str] = []

    def wide() -> nn.Module:
        built.append("wide")
        return Wide()

    contents = contents_of(*(zoo_record(name) for name in small_contents().models), model_record(Wide(), "wide"))
    for flops, times in ((5e5, 0), (5e6, 1)):
        suggest(contents, n=200, kinds=["model"], max_flops=flops, max_params=1.2e6, predictor=small_predictor(),
                builders={"wide": wide})  # fmt: skip
        assert len(built) == times
