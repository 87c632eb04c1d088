"""Folders of others: named errors, nothing executed, nothing half loaded, nothing taken without bound."""

from __future__ import annotations

import re
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from models import transformers_models
from pruning.saving.hostile_folders import CONFIGURED, EVERY, MARK, WITHOUT_BLOCKS, Spoil, changed, pickled

SECONDS = 20  # for a folder, on a machine under load


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each library as it was saved."""
    place = tmp_path_factory.mktemp("saved")
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    mk.plan(mk.trace(model, torch.rand(1, 4)), ratio=0.5).cut(model).save_pretrained(place / "torch")
    if "transformers" in sys.modules or pytest.importorskip("transformers"):
        model, kwargs = transformers_models.build("llama")
        mk.plan(mk.trace(model, (), kwargs), ratio=0.5).cut(model).save_pretrained(place / "transformers")
    return {path.name: path for path in place.iterdir()}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(self.norm(x))


def blocks() -> nn.Sequential:
    return nn.Sequential(Block(), Block(), Block())


@pytest.fixture(scope="module")
def smaller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that lost a block, as it was saved."""
    folder = tmp_path_factory.mktemp("blocks") / "model"
    model = blocks().eval()
    receipt = mk.plan(mk.trace(model, torch.rand(2, 4)), blocks=["1"]).cut(model)
    mk.save_model(model, folder, receipt, builder=blocks)
    return folder


def expected(name: str) -> str:
    """What the error has to name, so that its reader knows where to look."""
    for words, text in (
        ("a plan that is a link|a plan that is gone", "plan-0"), ("a plan that keeps others", "another cut"),
        ("a plan", "the plan in the folder"), ("more cuts", "plan-1"), ("fewer cuts", "plan-0"),
        ("no folder", "no folder"), ("ties that", "ties"), ("a name that leads|one tensor|a file of no", "tensor"),
        ("a pickle|a checkpoint|code|an adapter|other tensors|an index", "not saved with the model"),
        ("an unknown library|a library", "library"), ("tables", "modulekg.safetensors"),
        ("an empty|.*manifest|another|a version|no origin|cuts|ties|files|a file", "modulekg.json"),
    ):  # fmt: skip
        if re.match(words, name):
            return text
    return "model.safetensors"


def refused(good: Path, tmp_path: Path, spoil: Spoil, classes: tuple[Any, ...] = ()) -> str:
    folder = tmp_path / "folder"
    shutil.copytree(good, folder)
    mk.load_pretrained(folder, classes=classes)
    spoil(folder)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(mk.ModuleKGError) as caught:
        mk.load_pretrained(folder, classes=classes)
    assert not (tmp_path / MARK).exists()
    assert time.process_time() - start < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000  # KB
    return str(caught.value)


@pytest.mark.parametrize("name", EVERY)
def test_a_spoilt_folder_is_refused(good: dict[str, Path], tmp_path: Path, name: str) -> None:
    text = refused(good["torch"], tmp_path, EVERY[name])
    assert expected(name) in text
    assert text.isprintable()
    assert len(text) < 2_000


@pytest.mark.parametrize("name", WITHOUT_BLOCKS)
def test_a_spoilt_plan_without_blocks_is_refused(smaller: Path, tmp_path: Path, name: str) -> None:
    text = refused(smaller, tmp_path, WITHOUT_BLOCKS[name], (blocks,))
    assert "the plan in the folder" in text
    assert len(text) < 2_000


@pytest.mark.parametrize("name", CONFIGURED)
def test_a_spoilt_configuration_is_refused(good: dict[str, Path], tmp_path: Path, name: str) -> None:
    text = refused(good["transformers"], tmp_path, CONFIGURED[name])
    assert len(text) < 2_000


@pytest.mark.parametrize(
    "path", ["os:system", "builtins:eval", "subprocess:Popen", "torch.nn.modules.linear:torch", "torch:load",
             "torch.nn.modules.module:Module.load_state_dict", "torch.hub:load", "antigravity:x", ":", "a"]
)  # fmt: skip
def test_a_path_that_is_no_module_class_is_refused(good: dict[str, Path], tmp_path: Path, path: str) -> None:
    def spoil(folder: Path) -> None:
        text = (folder / "modulekg.json").read_text()
        (folder / "modulekg.json").write_text(text.replace("torch.nn.modules.linear:Linear", path))

    known = set(sys.modules)
    refused(good["torch"], tmp_path, spoil)
    assert "antigravity" not in set(sys.modules) - known


@pytest.mark.parametrize("where", ["torch", "transformers"])
def test_the_plan_of_another_model_is_refused(good: dict[str, Path], tmp_path: Path, where: str) -> None:
    other = next(path for name, path in good.items() if name != where)
    refused(good[where], tmp_path, lambda folder: shutil.copy(other / "plan-0.json", folder / "plan-0.json") and None)


@pytest.mark.parametrize("where", ["torch", "transformers"])
def test_the_tensors_of_another_model_are_refused(good: dict[str, Path], tmp_path: Path, where: str) -> None:
    other = next(path for name, path in good.items() if name != where)
    file = "model.safetensors"
    refused(good[where], tmp_path, lambda folder: shutil.copy(other / file, folder / file) and None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_args", {"checkpoint_path": "../outside.bin"}),
        ("model_args", {"pretrained_cfg_overlay": {"file": "../outside.bin"}}),
        ("model_args", {"note": "hf-hub:somebody/evil"}),
        ("architecture", "hf-hub:somebody/evil"),
        ("architecture", "hf_hub:somebody/evil"),
        ("architecture", "local-dir:../outside"),
        ("architecture", "somebody/evil"),
        ("backbone", "https://example.org/evil"),
    ],
)
def test_an_architecture_of_timm_from_elsewhere_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    """What transformers hands on to timm leads to no file and no address."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("timm")
    config = transformers.TimmWrapperConfig(architecture="test_vit", num_labels=4)
    mk.save_model(transformers.TimmWrapperForImageClassification(config).eval(), tmp_path / "good")
    (tmp_path / "outside.bin").write_bytes(pickled(tmp_path / "folder"))
    text = refused(tmp_path / "good", tmp_path, changed("config.json", key, to=lambda _: value))
    assert key in text or "address" in text or "argument" in text


def test_what_is_harmless_may_lie_beside(good: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(good["transformers"], folder)
    for name in ("README.md", "tokenizer.json", "vocab.txt", ".gitattributes"):
        (folder / name).write_text("x")
    assert mk.load_pretrained(folder) is not None


@pytest.mark.parametrize("given", [None, 7, b"folder", "", "a\0b", ["x"]])
def test_what_is_no_path_is_refused(given: Any) -> None:
    with pytest.raises(mk.ModuleKGError):
        mk.load_pretrained(given)
    with pytest.raises(mk.ModuleKGError):
        mk.save_model(nn.Linear(2, 2), given)
