"""Graphs that name more, or repeat more, than can be read in time are refused before it is done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from modulekg_widgets.engine.errors import ModelFileError
from modulekg_widgets.engine.files import formats as _formats  # noqa: F401
from modulekg_widgets.engine.files.formats.onnx.onnx_modules import OnnxModules
from modulekg_widgets.engine.files.graph_building import MAX_CLASSES, MAX_MODULES, NamedModules, ReadBudget
from modulekg_widgets.engine.files.readers import read_contents
from modulekg_widgets.engine.files.source import open_source

pytest.importorskip("onnx")


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    low = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(part | 128 for part in low[:-1]), low[-1]])


def calls_of(body: bytes) -> bytes:
    """A thousand calls of a function that has an operator twenty times."""
    function = field(1, b"F") + field(10, b"d") + field(7, body) * 20
    call = field(1, field(4, b"F") + field(7, b"d"))
    return field(25, function) + field(7, call * 1000)


ADD = field(4, b"Add")
FORGED = {
    "inputs": calls_of(ADD + field(1, b"") * 8000),
    "metadata": calls_of(ADD + field(9, b"") * 8000),
    "values": field(7, field(13, field(1, b"x") + field(4, b"") * 500_000) * 60),
    "functions": b"".join(field(25, field(1, b"f%d" % at) + field(11, field(11, b"") * 500_000)) for at in range(6))
    + field(7, b""),
    "an operator": field(7, field(1, field(5, field(4, bytes(1_000_000))) * 9)),
}


@pytest.mark.parametrize("name", FORGED)
def test_onnx_that_takes_too_long_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "forged.onnx"
    path.write_bytes(field(8, b"\x10\x12") + FORGED[name])
    started = time.process_time()
    with (
        open_source(path) as source,
        pytest.raises(ModelFileError, match=r"larger files are not opened|too many to be read"),
    ):
        read_contents(source)
    assert time.process_time() - started < 2


def test_modules_and_classes_beyond_any() -> None:
    modules = NamedModules(ReadBudget("x"))
    for at in range(MAX_MODULES):
        modules.add(f"m{at}", f"C{at % (MAX_CLASSES - 1)}")
    assert len(modules.parts()) == MAX_MODULES
    with pytest.raises(ModelFileError, match="30,000 modules"):
        modules.add("one more")
    modules = NamedModules(ReadBudget("x"))
    for at in range(MAX_CLASSES):
        modules.add(f"m{at}", f"C{at}")
    with pytest.raises(ModelFileError, match="2,000 classes"):
        modules.add("one more", "D")


def test_names_of_very_many_parts_are_not_held() -> None:
    with pytest.raises(ModelFileError, match="larger files are not opened"):
        OnnxModules(ReadBudget("x")).add_owners(f"{at}." + "a." * 1990 + "w" for at in range(400))
