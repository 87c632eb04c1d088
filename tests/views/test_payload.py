"""What the browser relies on in a payload, for models of every kind."""

import json
from typing import Any

import pytest
from torchvision.models import list_models

from modulekg_widgets.engine.identity.hierarchy import hierarchy
from modulekg_widgets.engine.knowledge.zoo.meta_weights import meta_weights
from modulekg_widgets.engine.knowledge.zoo.torchvision_models import torchvision_builders
from modulekg_widgets.engine.views.payload import model_payload
from modulekg_widgets.engine.views.static_expansion import MAX_INITIAL_NODES, static_expansion, visible_children
from widgets.golden_models import payloads

SAMPLE = ["resnet152", "vit_b_16", "swin_t", "maskrcnn_resnet50_fpn", "raft_small", "inception_v3", "mvit_v2_s"]


def check(payload: dict[str, Any]) -> None:
    """All lists that stand side by side have one length, and every index leads somewhere."""
    nodes, entities, classes = payload["nodes"], payload["entities"], payload["classes"]
    count = len(nodes["name"])
    assert {len(column) for column in (*nodes.values(), *payload["columns"].values())} == {count}
    assert all(parent < node for node, parent in enumerate(nodes["parent"]))
    assert set(nodes["entity"]) == set(range(len(entities["name"])))
    assert len({len(column) for column in entities.values()}) == 1
    assert len({len(column) for column in classes.values()}) == 1
    for position, values in zip(entities["class"], entities["hyper"], strict=True):
        assert len(values) == len(classes["fields"][position])
    for first, size, kind, _ in payload["folds"]:
        parent = nodes["parent"][first]
        siblings = [node for node in range(count) if nodes["parent"][node] == parent]
        members = siblings[siblings.index(first) :][:size]
        assert len(members) == size >= 2
        assert kind in ("exact", "family")
        assert kind == "family" or len({nodes["entity"][member] for member in members}) == 1
    shown = sum(
        len(inside) for node, inside in visible_children(payload).items() if node in {0, *static_expansion(payload)}
    )
    assert shown <= max(MAX_INITIAL_NODES, len(visible_children(payload).get(0, ())))
    json.dumps(payload, allow_nan=False, ensure_ascii=False).encode("utf-8")


@pytest.mark.parametrize("name", sorted(payloads()))
def test_golden_models(name: str) -> None:
    check(payloads()[name])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SAMPLE else pytest.mark.nightly) for n in list_models()]
)
def test_torchvision_models(name: str) -> None:
    with meta_weights():
        check(model_payload(hierarchy(torchvision_builders()[name]())))
