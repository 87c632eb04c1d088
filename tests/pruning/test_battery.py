"""Architectures of every family through plan, cut, forward and undo, with nothing said about them but their inputs."""

from __future__ import annotations

import pytest
import torch

from models import transformers_models
from models.zoo import float_models, timm_families, zoo_case
from pruning.battery import pruned
from sampling import sampled

nightly = pytest.mark.nightly
IN_CI = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "densenet121", "swin_t", "googlenet", "raft_small",
         "ssdlite320_mobilenet_v3_large")  # fmt: skip
TRANSFORMERS_IN_CI = ("llama", "gpt2", "falcon", "mamba", "t5", "wav2vec2", "deberta_v2")
TIMM_IN_CI = ("fasternet", "inception_next", "tiny_vit")


@pytest.mark.parametrize("name", sampled(float_models(), IN_CI))
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_torchvision(name: str) -> None:
    row = pruned(name, *zoo_case(name))
    assert row.ok, str(row)
    assert row.left <= 0.6


@pytest.mark.parametrize("name", sampled(list(transformers_models.CASES), TRANSFORMERS_IN_CI))
def test_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    model, kwargs = transformers_models.build(name)
    row = pruned(name, model.eval(), (), kwargs)
    assert row.ok, str(row)
    assert row.left < 0.95


@pytest.mark.parametrize("part", sampled(list(timm_families()), TIMM_IN_CI))
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_timm(part: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    name = timm_families()[part]
    model = timm.create_model(name, pretrained=False).eval()
    row = pruned(name, model, (torch.rand(1, *model.default_cfg.get("input_size", (3, 224, 224))),))
    assert row.ok, str(row)
    assert row.left < 0.95
