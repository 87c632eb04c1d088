"""Tracing, axes and proof over torchvision, timm and transformers; a sample in CI, all of them nightly."""

from __future__ import annotations

import pytest
import torch

import modulekg_widgets as mk
from models import transformers_models
from models.zoo import family, float_models, timm_families, zoo_case
from sampling import sampled

nightly = pytest.mark.nightly
IN_CI = {"mobilenet_v3_small", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1", "ssdlite320_mobilenet_v3_large",
         "swin_t", "raft_small"}  # fmt: skip
TRANSFORMERS_IN_CI = {"llama", "mixtral", "mamba", "t5", "bert", "wav2vec2", "segformer", "gptj", "longformer"}
TIMM_IN_CI = {"efficientnet", "convit"}


@pytest.mark.parametrize("name", sampled(float_models(), IN_CI))
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_torchvision(name: str) -> None:
    model, args = zoo_case(name)
    graph = mk.trace(model, args)
    assert ran_as_a_shadow(graph)
    detector = family(name) == "detection"
    assert graph.traced_on == ("real" if detector else "meta")
    assert graph.unknown == []
    assert share_of_what_is_read(graph) >= 0.8
    proof = graph.axes.verify(bipartitions=1)
    assert proof.ok, str(proof)
    assert proof.error < 1e-5


@nightly
@pytest.mark.timeout(900)
def test_torchvision_as_a_whole() -> None:
    free = total = 0.0
    for name in float_models():
        model, args = zoo_case(name)
        size = sum(parameter.numel() for parameter in model.parameters())
        total += size
        free += size * mk.trace(model, args).axes.free_share
    assert free / total >= 0.97


def ran_as_a_shadow(graph: mk.DataflowGraph) -> bool:
    """Whether a copy stood for the model, all of it."""
    return not any("the model itself ran" in note or "cannot be copied" in note for note in graph.notes)


def share_of_what_is_read(graph: mk.DataflowGraph) -> float:
    """The share of the parameters on free axes, but for heads that only training reads."""
    unread = {node for node in graph.unread if node.is_parameter}
    every = {node for node in graph.state.values() if node.is_parameter}
    total = sum(node.numel() for node in every)
    return graph.axes.free_share * total / max(total - sum(node.numel() for node in unread), 1)


@pytest.mark.parametrize("name", sampled(list(transformers_models.CASES), TRANSFORMERS_IN_CI))
def test_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build(name)
    graph = mk.trace(model, (), kwargs)
    assert ran_as_a_shadow(graph)
    assert graph.unknown == []
    proof = graph.axes.verify(bipartitions=2)
    assert proof.ok, str(proof)
    assert proof.error < 1e-5
    assert proof.proved


def timm_graph(part: str) -> mk.DataflowGraph:
    import timm

    torch.manual_seed(0)
    model = timm.create_model(timm_families()[part], pretrained=False).eval()
    return mk.trace(model, torch.rand(1, *model.default_cfg.get("input_size", (3, 224, 224))))


@pytest.mark.parametrize("part", sampled(list(timm_families()), TIMM_IN_CI))
@pytest.mark.timeout(900)
def test_timm(part: str) -> None:
    graph = timm_graph(part)
    assert ran_as_a_shadow(graph)
    assert graph.unknown == []
    proof = graph.axes.verify(bipartitions=1)
    assert proof.ok, str(proof)


@nightly
@pytest.mark.timeout(1800)
def test_at_most_one_in_twenty_of_timm_is_mostly_frozen() -> None:
    shares = {part: share_of_what_is_read(timm_graph(part)) for part in timm_families()}
    low = {part: round(share, 2) for part, share in shares.items() if share < 0.8}
    # a convolution over the channels themselves, as in ECA, fixes their order
    assert len(low) <= len(shares) / 20, low
