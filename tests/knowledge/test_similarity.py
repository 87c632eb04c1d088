"""Models that are like another one: those of its family first, whatever the graph holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

import modulekg_widgets as mk
from knowledge.zoo_contents import zoo_record
from models.large_zoo import large_zoo
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.knowledge.prediction.data.features import features_of, find_record, log_counts

__all__ = ["large_zoo"]  # the fixture

FAMILIES = {
    "resnet18": "resnet", "resnet34": "resnet", "resnet50": "resnet", "vgg11": "vgg", "vgg13": "vgg", "vgg16": "vgg",
    "squeezenet1_0": "squeezenet", "squeezenet1_1": "squeezenet", "mobilenet_v2": "mobilenet",
    "mobilenet_v3_small": "mobilenet", "mobilenet_v3_large": "mobilenet", "densenet121": "densenet",
    "densenet169": "densenet", "vit_b_16": "vit", "vit_b_32": "vit", "swin_t": "swin", "swin_s": "swin",
}  # fmt: skip


@pytest.fixture(scope="module")
def kg() -> mk.KnowledgeGraph:
    found = mk.KnowledgeGraph()
    found.add_records(zoo_record(name) for name in FAMILIES)
    return found


def precision(kg: mk.KnowledgeGraph, name: str) -> float:
    """The average precision of a model's family among its answers."""
    return average_precision(
        [FAMILIES[other] == FAMILIES[name] for other in kg.similar(name, n=len(FAMILIES))["model"]]
    )


def average_precision(hits: Sequence[bool]) -> float:
    found = np.array(hits)
    return float((np.cumsum(found) / np.arange(1, len(found) + 1))[found].mean())


def test_families_come_first(kg: mk.KnowledgeGraph) -> None:
    found = {name: precision(kg, name) for name in FAMILIES}
    assert np.mean(list(found.values())) > 0.95, found


def test_a_module_is_likest_to_itself_and_a_name_is_not_among_the_answers(kg: mk.KnowledgeGraph) -> None:
    module = mk.torchvision_builders()["resnet34"]()
    first = kg.similar(module).iloc[0]
    assert (first["model"], first["shared"]) == ("resnet34", 1.0)
    assert first["similarity"] == pytest.approx(1.0)
    assert "resnet34" not in set(kg.similar("resnet34", n=99)["model"])
    assert len(kg.similar("resnet34", n=3)) == 3


def test_what_no_model_of_the_graph_has_makes_unlike(kg: mk.KnowledgeGraph) -> None:
    class Unseen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Bilinear(3, 3, 3) for _ in range(5))

    found = kg.similar(Unseen())
    assert found["similarity"].between(0, 0.2).all()
    assert (found["shared"] == 0).all()


def test_answers_follow_the_graph() -> None:
    kg = mk.KnowledgeGraph()
    kg.add_model(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), name="one")
    assert kg.similar("one").empty
    kg.add_model(nn.Sequential(nn.Linear(2, 4), nn.ReLU()), name="two")
    assert kg.similar("one")["model"].tolist() == ["two"]
    with pytest.raises(UnknownNameError, match="'one'"):
        kg.similar("on")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_families_of_timm_and_torchvision_are_told_better_than_by_labels_or_operations_alone(large_zoo: Path) -> None:
    """The mean average precision of the figures that analysis/similarity.py names."""
    zoo = mk.KnowledgeGraph(large_zoo).contents()
    names = [name for name, model in zoo.models.items()
             if zoo.modules[model.root].qualified_class.startswith(("timm.", "torchvision."))]  # fmt: skip
    kg = mk.KnowledgeGraph()
    kg.add_contents(Contents(zoo.scheme, zoo.modules, {name: zoo.models[name] for name in names}))
    features = [features_of(find_record(zoo, name)) for name in names]
    family = {each.name: each.family for each in features}
    sizes = Counter(family.values())
    asked = [name for name in names if sizes[family[name]] > 1]

    def score(answers: dict[str, list[str]]) -> float:
        hits = [[family[other] == family[name] for other in answers[name]] for name in asked]
        return float(np.mean([average_precision(each) for each in hits]))

    ours = score({name: kg.similar(name, n=len(names))["model"].tolist() for name in asked})
    labels = score(by_cosine(names, log_counts([each.rounds[-1] for each in features])))
    operations = score(by_cosine(names, log_counts([each.ops for each in features])))
    print(f"\n{len(names)} models: {ours:.2f}, labels alone {labels:.2f}, counts of operations {operations:.2f}")
    assert len(names) > 1400
    assert ours > 0.88
    assert ours > labels + 0.15 > operations + 0.2


def by_cosine(names: list[str], rows: NDArray[np.float64]) -> dict[str, list[str]]:
    """For each model the others, the likest first."""
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    order = np.argsort(-(rows @ rows.T), axis=1, kind="stable").tolist()
    return {name: [names[other] for other in order[at] if other != at] for at, name in enumerate(names)}
