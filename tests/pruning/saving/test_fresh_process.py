"""Cut, saved, loaded in a fresh process: bit-equal outputs, for every architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from axes import transformers_models
from pruning.saving.fresh import answers, ask

nightly = pytest.mark.nightly
IN_CI = ("llama", "gpt2", "t5", "mixtral", "mamba", "swin", "gemma2", "clip")
TIMM_IN_CI = ("resnet10t", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224")
TIMM = (
    *TIMM_IN_CI, "mobilenetv3_small_050", "convnext_atto", "efficientnet_b0", "regnetx_002", "deit_tiny_patch16_224",
    "mixer_s32_224", "densenet121", "ghostnet_050", "poolformer_s12", "levit_128s", "beit_base_patch16_224",
    "edgenext_xx_small", "fastvit_t8", "tiny_vit_5m_224", "repvgg_a0", "dla34", "visformer_tiny",
)  # fmt: skip


def saved(model: nn.Module, args: Any, kwargs: Any, place: Path, **how: Any) -> bool:
    """Cut and save a model beside what it gives; whether its library can load it by itself."""
    graph = mk.trace(model, args, kwargs)
    receipt = mk.plan(graph, **{"ratio": 0.5, **how}).cut(model)
    ask(model, args, kwargs, place)
    return receipt.save_pretrained(place / "folder").plain


def check(places: list[Path]) -> None:
    found = answers(places)
    wrong = {Path(place).name: each for place, each in found.items() if not each.get("equal") or each["training"]}
    assert wrong == {}
    assert all(each.get("plain", True) for each in found.values()), found


def test_some_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name in IN_CI:
        model, kwargs = transformers_models.build(name)
        saved(model, (), kwargs, tmp_path / name)
    check([tmp_path / name for name in IN_CI])


@nightly
@pytest.mark.timeout(1800)
def test_all_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name in transformers_models.CASES:
        model, kwargs = transformers_models.build(name)
        saved(model, (), kwargs, tmp_path / name)
    check([tmp_path / name for name in transformers_models.CASES])


def save_timm(name: str, place: Path) -> None:
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False).eval()
    size = model.pretrained_cfg["input_size"]
    saved(model, (torch.rand(1, *size),), {}, place)


@pytest.mark.parametrize("names", [TIMM_IN_CI, pytest.param(TIMM, marks=nightly)], ids=["some", "all"])
@pytest.mark.timeout(1800)
def test_timm(tmp_path: Path, names: tuple[str, ...]) -> None:
    pytest.importorskip("timm")
    for name in names:
        save_timm(name, tmp_path / name)
    check([tmp_path / name for name in names])
