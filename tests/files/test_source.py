"""Files beside a model file: in its folder and below it, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files.source import is_plain_path, opened


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
    with opened(path) as source, source.beside(name) as other:
        return other.read().decode()


@pytest.mark.parametrize(
    ("name", "content"),
    [("w.bin", "beside"), ("./w.bin", "beside"), ("sub/w.bin", "below"), ("./sub/deep/w.bin", "deep")],
)
def test_a_file_is_found_in_the_folder_and_below_it(model: Path, name: str, content: str) -> None:
    assert read(model, name) == content
    with opened(model) as source:
        assert source.has_beside(name)
        assert not source.has_beside(f"{name}.more")


@pytest.mark.parametrize(
    "name",
    ["", ".", "./", "..", "../secret", "sub/../w.bin", "sub/../../secret", "./../secret", "/etc/passwd", "//etc/passwd",
     "sub//w.bin", "sub/", "sub/.", "sub/./w.bin", ".//etc/passwd", "..\\secret", "sub\\w.bin", "C:w.bin", "C:/w.bin",
     "w.bin\0", "w.bin:stream", "a/" * 20 + "w.bin", "a" * 5_000],
)  # fmt: skip
def test_a_path_that_may_lead_elsewhere_is_refused(model: Path, name: str) -> None:
    assert not is_plain_path(name)
    with pytest.raises(ModelFileError, match="no file of its folder"):
        read(model, name)
    with opened(model) as source:
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
    with opened(model) as source:
        assert source.path_beside("sub/gone.bin") == str(model.parent / "sub" / "gone.bin")
