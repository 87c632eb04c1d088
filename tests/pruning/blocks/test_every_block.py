"""Every residual block of many models, each alone: it goes, the model runs, all comes back."""

from __future__ import annotations

import pytest

import modulekg_widgets as mk
from pruning.blocks.every_block import SOURCES, blocks_with_weights, change_without_zeros, removed_alone

IN_CI = {"torchvision": ["resnet18", "mobilenet_v3_small"], "transformers": ["opt", "segformer", "mamba", "whisper"]}
NONE = {"torchvision": ["vgg11"], "transformers": ["albert"]}  # layers that are shared run several times


@pytest.mark.parametrize(("source", "name"), [(source, name) for source, names in IN_CI.items() for name in names])
@pytest.mark.slow
def test_a_sample_of_all_models(source: str, name: str) -> None:
    assert removed_alone(SOURCES[source][1](name), every=False)


@pytest.mark.parametrize(("source", "name"), [(source, name) for source, names in NONE.items() for name in names])
@pytest.mark.slow
def test_models_without_residual_blocks(source: str, name: str) -> None:
    assert removed_alone(SOURCES[source][1](name)) == []


MOST_PARAMETERS = 60_000_000  # of a model of which there are several copies in float64
ZEROS_IN_CI = {
    "torchvision": ["mobilenet_v3_small"],
    "transformers": ["opt", "mamba", "mixtral", "whisper"],
    "timm": ["vit_tiny_patch16_224"],
}


@pytest.mark.parametrize(
    ("source", "name"), [(source, name) for source, names in ZEROS_IN_CI.items() for name in names]
)
@pytest.mark.slow
def test_a_block_of_zeros_changes_nothing(source: str, name: str) -> None:
    case = SOURCES[source][1](name)
    paths = blocks_with_weights(case)
    assert paths
    assert max(change_without_zeros(case, path) for path in paths) < 1e-9


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("source", list(SOURCES))
def test_blocks_of_zeros_of_all_models(source: str) -> None:
    names, make = SOURCES[source]
    tried = 0
    for name in names():
        try:
            case = make(name)
            if sum(parameter.numel() for parameter in case[0].parameters()) > MOST_PARAMETERS:
                continue
            paths = blocks_with_weights(case)
        except mk.TraceError:
            assert source == "timm"  # some of timm take other inputs than a picture
            continue
        for path in paths:
            assert change_without_zeros(case, path) < 1e-9, f"{name}: {path}"
            tried += 1
    assert tried >= 40


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("source", list(SOURCES))
def test_all_models(source: str) -> None:
    names, make = SOURCES[source]
    for name in names():
        try:
            removed_alone(make(name))
        except mk.TraceError:
            assert source == "timm"  # some of timm take other inputs than a picture
