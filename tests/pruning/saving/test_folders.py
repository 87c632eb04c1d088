"""A folder appears as a whole or not at all, and takes the place of nothing but a saved model."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.pruning.saving import model_folder as folders


def model(width: int = 8) -> nn.Module:
    torch.manual_seed(width)
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2)).eval()


def listing(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    saved = mk.save_model(model(), tmp_path / "a" / "b")
    assert listing(tmp_path / "a" / "b") == ["model.safetensors", "modulekg.json"]
    assert saved.folder == str(tmp_path / "a" / "b")
    assert "mk.load_pretrained" in str(saved)


def test_a_saved_model_is_replaced_and_what_is_beside_stays(tmp_path: Path) -> None:
    whole = model()
    plan = mk.plan(mk.trace(whole, torch.rand(1, 4)), ratio=0.5)
    plan.save_pretrained(whole, tmp_path / "it")
    (tmp_path / "it" / "tokenizer.json").write_text("theirs")
    mk.save_model(model(6), tmp_path / "it")
    assert listing(tmp_path / "it") == ["model.safetensors", "modulekg.json", "tokenizer.json"]
    assert mk.load_pretrained(tmp_path / "it")[0].out_features == 6
    assert listing(tmp_path) == ["it"]


@pytest.mark.parametrize("name", ["notes.txt", "model.safetensors", ".git"])
def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(mk.ModuleKGError, match="not empty"):
        mk.save_model(model(), tmp_path)
    assert listing(tmp_path) == [name]


def test_a_file_and_a_link_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name in ("file", "link"):
        with pytest.raises(mk.ModuleKGError, match="not a folder"):
            mk.save_model(model(), tmp_path / name)
    assert listing(tmp_path / "target") == []


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("there", [False, True])
def test_a_disk_that_gets_full_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, there: bool
) -> None:
    if there:
        mk.save_model(model(6), tmp_path / "it")
    before = listing(tmp_path)
    steps = iter(range(10))
    real = {"replacing": folders.atomic_writer, "rename": os.rename}

    def failing(kind: str) -> Any:
        def run(*args: Any) -> Any:
            if next(steps) == at:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real[kind](*args)

        return run

    monkeypatch.setattr(folders, "atomic_writer", failing("replacing"))
    monkeypatch.setattr(folders.os, "rename", failing("rename"))
    failed = ""
    try:
        mk.save_model(model(), tmp_path / "it")
    except mk.ModuleKGError as error:
        failed = str(error)
    monkeypatch.undo()
    if failed:
        assert "No space left" in failed
        assert listing(tmp_path) == before
    assert listing(tmp_path) == (["it"] if there or not failed else [])
    if there or not failed:
        assert mk.load_pretrained(tmp_path / "it")[0].out_features == (6 if failed else 8)


def test_a_model_that_was_loaded_is_trained_on_cut_again_and_saved(tmp_path: Path) -> None:
    """Its process has no receipt of the first cut."""
    whole = model(16)
    mk.plan(mk.trace(whole, torch.rand(1, 4)), ratio=0.5).cut(whole).save_pretrained(tmp_path / "one")
    again: Any = mk.load_pretrained(tmp_path / "one")
    with torch.no_grad():
        again[0].weight.add_(1.0)
    mk.save_model(again, tmp_path / "two")
    x = torch.rand(3, 4)
    assert torch.equal(mk.load_pretrained(tmp_path / "two")(x), again(x))
    receipt = mk.plan(mk.trace(again, x), ratio=0.5).cut(again)
    plan = mk.load_plan(tmp_path / "one" / "plan-0.json")
    for given in (receipt, [plan, receipt]):  # a plan that is given all the same counts once
        mk.save_model(again, tmp_path / "three", given)
        third: Any = mk.load_pretrained(tmp_path / "three")
        assert third[0].out_features == 4
        assert torch.equal(third(x), again(x))


def test_what_forward_has_set_comes_back(tmp_path: Path) -> None:
    changed = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Dropout(0.5), nn.BatchNorm2d(2))
    changed[1].p, changed[2].eps = 0.25, 0.5
    mk.save_model(changed, tmp_path / "it")
    again = mk.load_pretrained(tmp_path / "it")
    assert (again[1].p, again[2].eps) == (0.25, 0.5)
