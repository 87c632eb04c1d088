"""Models of diffusers: built anew from what the library registers, cut, saved and loaded bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import modulekg_widgets as mk

diffusers = pytest.importorskip("diffusers")
Case = tuple[Any, tuple[Any, ...]]


def unet() -> Case:
    model = diffusers.UNet2DModel(
        sample_size=16, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    return model, (torch.randn(1, 3, 16, 16), torch.tensor([3]))


def autoencoder() -> Case:
    model = diffusers.AutoencoderKL(
        sample_size=16, block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    return model, (torch.randn(1, 3, 16, 16),)


def conditioned() -> Case:
    model = diffusers.UNet2DConditionModel(
        sample_size=16, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8, attention_head_dim=4,
        cross_attention_dim=16, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    return model, (torch.randn(1, 4, 16, 16), torch.tensor([3]), torch.randn(1, 5, 16))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("diffusers") / "unet"
    model, args = unet()
    mk.plan(mk.trace(model.eval(), args), ratio=0.5).cut(model).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("case", [unet, autoencoder, conditioned])
@pytest.mark.slow
def test_a_cut_model_is_loaded_bit_by_bit(case: Callable[[], Case], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args = case()
    plan = mk.plan(mk.trace(model.eval(), args), ratio=0.5)
    assert plan.params[1] < 0.5 * plan.params[0]
    plan.cut(model).save_pretrained(tmp_path / "folder")
    again: Any = mk.load_pretrained(tmp_path / "folder")
    assert type(again) is type(model)
    with torch.no_grad():
        assert torch.equal(again(*args, return_dict=False)[0], model(*args, return_dict=False)[0])


@pytest.mark.parametrize(
    ("key", "value"),
    [("class", "AutoModel"), ("class", "DiffusionPipeline"), ("class", "os:system"), ("class", "__loader__"),
     ("arguments", {"pretrained_model_name_or_path": "somebody/evil"}), ("arguments", {"block_out_channels": "x"})],
)  # fmt: skip
def test_what_is_no_model_of_the_library_is_refused(saved: Path, key: str, value: Any) -> None:
    file = saved / "modulekg.json"
    good = file.read_text()
    document = json.loads(good)
    document["origin"][key] = value
    file.write_text(json.dumps(document))
    with pytest.raises(mk.ModuleKGError):
        mk.load_pretrained(saved)
    file.write_text(good)
    assert mk.load_pretrained(saved) is not None
