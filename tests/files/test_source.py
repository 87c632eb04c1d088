"""Files beside a model file: in its folder and below it, and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import modulekg_widgets as mk
from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.source import is_safe_path, open_source

Attack = Callable[[Path, Path], None]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with one beside it, one below it, and one that is out of its folder."""
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "model"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "w.bin").write_text("beside")
    (folder / "sub" / "w.bin").write_text("below")
    (folder / "sub" / "deep" / "w.bin").write_text("deep")
    (folder / "model.onnx").write_text("model")
    return folder / "model.onnx"


def read(path: Path, name: str) -> str:
    with open_source(path) as source, source.beside(name) as other:
        return other.read().decode()


@pytest.mark.parametrize(
    ("name", "content"),
    [("w.bin", "beside"), ("./w.bin", "beside"), ("sub/w.bin", "below"), ("./sub/deep/w.bin", "deep")],
)
def test_a_file_is_found_in_the_folder_and_below_it(model: Path, name: str, content: str) -> None:
    assert read(model, name) == content
    with open_source(model) as source:
        assert source.has_beside(name)
        assert not source.has_beside(f"{name}.more")


@pytest.mark.parametrize(
    "name",
    ["", ".", "./", "..", "../secret", "sub/../w.bin", "sub/../../secret", "./../secret", "/etc/passwd", "//etc/passwd",
     "sub//w.bin", "sub/", "sub/.", "sub/./w.bin", ".//etc/passwd", "..\\secret", "sub\\w.bin", "C:w.bin", "C:/w.bin",
     "w.bin\0", "w.bin:stream", "a/" * 20 + "w.bin", "a" * 5_000],
)  # fmt: skip
def test_a_path_that_may_lead_elsewhere_is_refused(model: Path, name: str) -> None:
    assert not is_safe_path(name)
    with pytest.raises(ModelFileError, match="not a file of its folder"):
        read(model, name)
    with open_source(model) as source:
        assert not source.has_beside(name)


@pytest.mark.parametrize("name", ["link", "./link", "sub/link", "away/secret", "sub/away/secret", "within/w.bin"])
def test_a_link_on_the_way_is_refused(model: Path, name: str) -> None:
    folder = model.parent
    for link, target in (
        ("link", "../secret"), ("sub/link", "w.bin"), ("away", ".."), ("sub/away", "../.."), ("within", "sub"),
    ):  # fmt: skip
        os.symlink(target, folder / link)
    with pytest.raises(ModelFileError, match="is a link") as caught:
        read(model, name)
    assert f"names {name.removeprefix('./')}," in str(caught.value)


def test_what_is_not_there_is_told_by_its_name(model: Path) -> None:
    with pytest.raises(ModelFileError, match=r"^sub/gone\.bin cannot be read"):
        read(model, "./sub/gone.bin")
    with open_source(model) as source:
        assert source.path_beside("sub/gone.bin") == str(model.parent / "sub" / "gone.bin")


CONFIG = {"architectures": ["TinyModel"]}


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A model of two files in the cache of a hub: all that its snapshot has are links to blobs."""
    save_file = pytest.importorskip("safetensors.torch").save_file
    root = tmp_path / "hub" / "models--tiny--net"
    snapshot = root / "snapshots" / "0a1b"
    (root / "blobs").mkdir(parents=True)
    (snapshot / "unet").mkdir(parents=True)
    listed = {f"layers.{number}.weight": f"model-{number}.safetensors" for number in range(2)}
    for number, (name, shard) in enumerate(listed.items()):
        save_file({name: torch.full((2, 3), float(number))}, root / "blobs" / f"b{number}")
        os.symlink(f"../../blobs/b{number}", snapshot / shard)
    for blob, name, text in (
        ("b2", "model.safetensors.index.json", json.dumps({"weight_map": listed})),
        ("b3", "config.json", json.dumps(CONFIG)),
    ):
        (root / "blobs" / blob).write_text(text)
        os.symlink(f"../../blobs/{blob}", snapshot / name)
    os.symlink("../../../blobs/b0", snapshot / "unet" / "model.safetensors")
    os.symlink("../../../blobs/b3", snapshot / "unet" / "config.json")
    return snapshot


@pytest.mark.parametrize("way", ["", "unet", "as a link"])
def test_a_snapshot_of_the_hub_is_read_though_it_is_made_of_links(hub: Path, way: str) -> None:
    folder = hub / way
    if way == "as a link":
        folder = hub.parents[3] / "mine"
        os.symlink(hub, folder)
    file = mk.open_file(folder)
    assert file.title == "TinyModel"
    assert file.warnings == ()
    assert file.tensor("layers.0.weight").tolist() == [[0.0] * 3] * 2
    if way != "unet":
        assert file.tensor("layers.1.weight").tolist() == [[1.0] * 3] * 2


def test_a_file_that_the_user_names_may_be_a_link(hub: Path) -> None:
    os.symlink(hub / "model-0.safetensors", hub.parents[3] / "mine.safetensors")
    assert mk.open_file(hub.parents[3] / "mine.safetensors").title == "mine.safetensors"  # no config beside the link


def to_elsewhere(hub: Path, elsewhere: Path) -> None:
    replace(hub / "config.json", elsewhere / "config.json")


def blob_is_a_link(hub: Path, elsewhere: Path) -> None:
    replace(hub.parents[1] / "blobs" / "b3", elsewhere / "config.json")


def blobs_are_a_link(hub: Path, elsewhere: Path) -> None:
    blobs = hub.parents[1] / "blobs"
    shutil.move(blobs, elsewhere / "blobs")
    os.symlink(elsewhere / "blobs", blobs)


def snapshots_are_a_link(hub: Path, elsewhere: Path) -> None:
    shutil.copytree(hub.parents[1] / "blobs", elsewhere / "blobs")  # else its other links lead nowhere
    (elsewhere / "revisions").mkdir()
    shutil.move(hub, elsewhere / "revisions" / hub.name)
    hub.parent.rmdir()
    os.symlink(elsewhere / "revisions", hub.parent)
    replace(hub / "config.json", elsewhere / "config.json")


def below_blobs(hub: Path, elsewhere: Path) -> None:
    folder = hub.parents[1] / "blobs" / "of others"
    folder.mkdir()
    shutil.copy(elsewhere / "config.json", folder)
    replace(hub / "config.json", folder / "config.json")


def blobs_of_another_model(hub: Path, elsewhere: Path) -> None:
    (elsewhere / "blobs").mkdir()
    shutil.copy(elsewhere / "config.json", elsewhere / "blobs" / "c")
    (elsewhere / "snapshots" / "1").mkdir(parents=True)
    os.symlink("../../blobs/c", elsewhere / "snapshots" / "1" / "config.json")
    replace(hub / "config.json", elsewhere / "snapshots" / "1" / "config.json")


def in_no_snapshot(hub: Path, elsewhere: Path) -> None:
    hub.parent.rename(hub.parent.with_name("revisions"))


ATTACKS = [
    to_elsewhere, blob_is_a_link, blobs_are_a_link, snapshots_are_a_link, below_blobs, blobs_of_another_model,
    in_no_snapshot,
]  # fmt: skip


def replace(path: Path, target: Path) -> None:
    path.unlink()
    os.symlink(target, path)


@pytest.mark.parametrize("attack", ATTACKS)
def test_links_of_a_snapshot_lead_to_its_own_blobs_alone(hub: Path, tmp_path: Path, attack: Attack) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text(json.dumps({"architectures": ["Secret"]}))
    attack(hub, elsewhere)
    snapshot = hub if hub.exists() else hub.parent.with_name("revisions") / hub.name
    with (
        open_source(snapshot / "model-0.safetensors") as source,
        pytest.raises(ModelFileError, match="is a link") as caught,
    ):
        source.path_beside("config.json")
    assert "put the file itself there" in str(caught.value)
    file = mk.open_file(snapshot / "model-0.safetensors")
    assert file.title == "model-0.safetensors"
    assert "config.json next to the file cannot be read" in file.warnings[0]


def test_a_folder_that_is_a_link_leads_to_no_other_snapshot(hub: Path, tmp_path: Path) -> None:
    other = tmp_path / "private" / "snapshots" / "1"
    other.mkdir(parents=True)
    (other.parents[1] / "blobs").mkdir()
    (other.parents[1] / "blobs" / "c").write_text("secret")
    os.symlink("../../blobs/c", other / "config.json")
    os.symlink(other, hub / "sub")
    with open_source(hub / "model-0.safetensors") as source, pytest.raises(ModelFileError, match="where sub is a link"):
        source.path_beside("sub/config.json")
