"""Models that are like another one: those of its family first, whatever the graph holds."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import modulekg_widgets as mk
from knowledge.zoo_contents import zoo_record
from modulekg_widgets.engine.errors import UnknownNameError

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
    hits = np.array([FAMILIES[other] == FAMILIES[name] for other in kg.similar(name, n=len(FAMILIES))["model"]])
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


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
