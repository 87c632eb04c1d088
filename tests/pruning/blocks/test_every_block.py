"""Every residual block of many models, each alone: it goes, the model runs, all comes back."""

from __future__ import annotations

import pytest

import modulekg_widgets as mk
from pruning.blocks.every_block import SOURCES, removed_alone

IN_CI = {"torchvision": ["resnet18", "mobilenet_v3_small"], "transformers": ["opt", "segformer", "mamba", "whisper"]}
NONE = {"torchvision": ["vgg11"], "transformers": ["albert"]}  # layers that are shared run several times


@pytest.mark.parametrize(("source", "name"), [(source, name) for source, names in IN_CI.items() for name in names])
def test_a_sample_of_all_models(source: str, name: str) -> None:
    assert removed_alone(SOURCES[source][1](name), every=False)


@pytest.mark.parametrize(("source", "name"), [(source, name) for source, names in NONE.items() for name in names])
def test_models_without_residual_blocks(source: str, name: str) -> None:
    assert removed_alone(SOURCES[source][1](name)) == []


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
