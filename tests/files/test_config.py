"""What a config.json beside a file tells of the model, as the libraries write it and as nobody should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import modulekg_widgets as mk

save_file = pytest.importorskip("safetensors.torch").save_file


def opened_beside(folder: Path, config: Any) -> mk.ModelFile:
    save_file({"weight": torch.zeros(2, 2)}, folder / "model.safetensors")
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return mk.open_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("config", "title"),
    [
        ({"architectures": ["LlamaForCausalLM"], "architecture": "other", "model_type": "llama"}, "LlamaForCausalLM"),
        ({"_class_name": "UNet2DConditionModel", "block_out_channels": [64, 128]}, "UNet2DConditionModel"),
        ({"architecture": "resnet50", "num_classes": 1000}, "resnet50"),
        ({"architectures": [], "model_type": "llama"}, "llama"),
        ({"architectures": [{}]}, "model.safetensors"),
    ],
)
def test_the_title_is_the_class_or_the_architecture(tmp_path: Path, config: dict, title: str) -> None:
    assert opened_beside(tmp_path, config).title == title


def test_settings_of_objects_and_short_lists_are_told(tmp_path: Path) -> None:
    """Of models of several parts, and of timm, all the sizes stand there."""
    file = opened_beside(
        tmp_path,
        {
            "text_config": {"hidden_size": 2048, "layer_types": ["full", "sliding"], "rope": {"theta": 1e4}},
            "vision_config": {"hidden_size": 1152, "id2label": {"0": "cat"}},
            "pretrained_cfg": {"input_size": [3, 224, 224], "mean": [0.5, 1.0, 1e-7]},
            "block_out_channels": [64, 128, 256],
            "id2label": {"0": "cat", "1": "dog"},
            "label2id": {f"label {at}": at for at in range(1_000)},
            "vocabulary": list(range(30_000)),
            "empty": [],
        },
    )
    assert file.metadata == {
        "text_config.hidden_size": 2048,
        "text_config.layer_types": "[full, sliding]",
        "vision_config.hidden_size": 1152,
        "pretrained_cfg.input_size": "[3, 224, 224]",
        "pretrained_cfg.mean": "[0.5, 1, 1e-07]",
        "block_out_channels": "[64, 128, 256]",
        "empty": "[]",
    }


def test_what_the_model_itself_has_comes_before_what_its_parts_have(tmp_path: Path) -> None:
    parts = {f"part{at}": {f"size{number}": number for number in range(90)} for at in range(5)}
    file = opened_beside(tmp_path, parts | {"part0.size0": "own", "hidden_size": 4})
    assert len(file.metadata) == 200
    assert file.metadata["hidden_size"] == 4
    assert file.metadata["part0.size0"] == "own"


def test_a_forged_config_is_told_and_takes_no_more_than_a_line_each(tmp_path: Path) -> None:
    file = opened_beside(tmp_path, '{"a": 1e999, "b": [1e999, ' + "9" * 2_000 + '], "' + "k" * 300 + '": 1}')
    assert file.metadata == {"a": "inf", "b": "[inf, inf]"}
    for config in ("[]", "[" * 100_000, '{"a": NaN}', "{" + "[" * 20_000, "x" * (1 << 21), '{"a": "\ud800"'):
        (tmp_path / "config.json").write_bytes(config.encode("utf-8", "surrogatepass"))
        file = mk.open_file(tmp_path / "model.safetensors")
        assert file.metadata == {}
        assert file.warnings == ("config.json next to the file cannot be read",)
