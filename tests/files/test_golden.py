"""The golden model files are read as it is written beside them; the page's readers are held to the same, in vitest."""

import json
from pathlib import Path

import pytest

from files.golden_files import EXTENSIONS, FOLDER, as_read, as_shown, expected_path, golden_paths, shown_path

MOST_BYTES = 400 << 10


@pytest.mark.parametrize("path", golden_paths(), ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_a_golden_file_is_read_as_before(path: Path) -> None:
    assert as_read(path) == json.loads(expected_path(path).read_text("utf-8"))


@pytest.mark.parametrize("path", golden_paths(), ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_a_golden_file_is_shown_as_before(path: Path) -> None:
    assert as_shown(path) == json.loads(shown_path(path).read_text("utf-8"))


def test_every_format_has_golden_files_and_they_are_small() -> None:
    names = [path.name for path in golden_paths()]
    assert [ending for ending in EXTENSIONS if not any(name.endswith(ending) for name in names)] == []
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= MOST_BYTES


def test_golden_files_name_no_computer() -> None:
    for path in golden_paths():
        content = path.read_bytes()
        assert [part for part in (b"site-packages", b"/home/", b"/tmp/") if part in content] == [], path.name
