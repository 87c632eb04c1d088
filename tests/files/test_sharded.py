"""Checkpoints of torch that are spread over several files: an index leads to all of them, and to no other."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files import formats as _formats  # noqa: F401
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.records import FileContents
from modulekg_widgets.engine.files.source import open_source

FIRST, SECOND = (f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2))


def indexed(folder: Path, listed: dict[str, str]) -> FileContents:
    path = folder / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 64}, "weight_map": listed}))
    with open_source(path) as source:
        return read_contents(source)


def written(folder: Path, **more: Any) -> dict[str, str]:
    """Two files, one in each of torch's formats, and what an index says of them."""
    torch.save({"b.weight": torch.ones(2, 3), **more}, folder / FIRST)
    torch.save({"a.weight": torch.ones(4)}, folder / SECOND, _use_new_zipfile_serialization=False)
    return {"a.weight": SECOND, "b.weight": FIRST}


def test_several_checkpoints_are_one_model(tmp_path: Path) -> None:
    contents = indexed(tmp_path, written(tmp_path))
    assert contents.format == "checkpoint"
    assert [(each.name, each.shape, each.file) for each in contents.tensors] == [
        ("a.weight", (4,), SECOND),
        ("b.weight", (2, 3), FIRST),
    ]
    for each in contents.tensors:
        stored = (tmp_path / each.file).read_bytes()
        assert each.offset is not None
        assert stored[each.offset : each.offset + each.nbytes] == b"\0\0\x80?" * (each.nbytes // 4)
    assert contents.metadata["total_size"] == 64
    assert contents.warnings == ()


def test_what_any_of_them_would_run_is_told(tmp_path: Path) -> None:
    contents = indexed(tmp_path, written(tmp_path, args=argparse.Namespace(lr=0.1)))
    assert "argparse.Namespace" in contents.classes
    assert "argparse.Namespace" in contents.warnings[0]


@pytest.mark.parametrize("left", [0, 1])
def test_those_that_are_not_there_are_a_warning(tmp_path: Path, left: int) -> None:
    listed = written(tmp_path)
    for name in (FIRST, SECOND)[left:]:
        (tmp_path / name).unlink()
    contents = indexed(tmp_path, listed)
    assert len(contents.tensors) == left
    assert SECOND in contents.warnings[0]


@pytest.mark.parametrize("name", ["../x.bin", "/etc/passwd", "sub/x.bin", "..", "", "c:x"])
def test_an_index_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match="not a file of its folder"):
        indexed(tmp_path, {"a.weight": name})


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    listed = written(tmp_path)
    (tmp_path / FIRST).write_bytes(b"\x80\x02}q")
    with pytest.raises(ModelFileError, match=FIRST):
        indexed(tmp_path, listed)
