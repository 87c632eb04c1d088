"""Layers that go whole where repeated layers are kept alike: with their normalisations, and said by configurations."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models.transformers_models import build
from modulekg_widgets.engine.errors import TraceError, UnknownPathError
from pruning.blocks.test_blocks import Iterated, PostNorm, paths


def test_of_uniform_layers_those_with_normalisations_go_whole() -> None:
    """A layer behind what is not normalised would be no identity without its branches, and stays."""
    model = nn.Sequential(nn.Linear(6, 6), PostNorm(), PostNorm(), PostNorm()).eval()
    x = torch.randn(3, 6)
    graph = mk.trace(model, x)
    expected = model[3](model[1](model[0](x)))
    before = copy.deepcopy(model.state_dict())
    assert list(graph.blocks()["path"]) == ["1.f", "2.f", "3.f"]
    plan = mk.plan(graph, blocks=["2"], layers="uniform")
    assert plan.blocks == ("2",)
    receipt = plan.cut(model)
    assert len(model) == 3
    assert torch.equal(model(x), expected)
    receipt.undo()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(UnknownPathError, match="is not a removable residual block"):
        mk.plan(graph, blocks=["1"], layers="uniform")
    assert len(mk.plan(graph, blocks=2, layers="uniform").blocks) == 2


@pytest.mark.parametrize("name", ["bert", "longformer", "led", "gemma2", "dinov2", "convnext", "wav2vec2"])
@pytest.mark.slow
def test_a_configuration_says_how_many_layers_are_left(name: str, tmp_path: Path) -> None:
    """Lists by layer lose what they say of those that go, and lists that the library computes are left to it."""
    model, kwargs = build(name)
    plan = mk.plan(mk.trace(model.eval(), kwargs=kwargs), blocks=0.25, layers="uniform")
    saved = plan.cut(model).save_pretrained(tmp_path / name)
    assert saved.plain, saved.reason
    again, loading = type(model).from_pretrained(tmp_path / name, output_loading_info=True)  # type: ignore[attr-defined]
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found, expected = ([tensor for tensor in run(**kwargs).values() if torch.is_tensor(tensor)]
                       for run in (again.eval(), model))  # fmt: skip
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_blocks_of_a_model_that_has_lost_some_are_those_of_a_new_trace() -> None:
    model = Iterated().eval()
    x = torch.randn(3, 4)
    mk.plan(mk.trace(model, x), blocks=["layers.1"]).cut(model)
    graph = mk.trace(model, x)
    mk.plan(graph, blocks=1, layers="uniform").cut(model)
    with pytest.raises(TraceError, match="trace the model again"):
        graph.blocks()
    assert paths(model, x) == ["layers.0"]
