"""Checked paths and bounded reading of graph files."""

from __future__ import annotations

import os
from pathlib import Path

from modulekg_widgets.engine import safe_files
from modulekg_widgets.engine.errors import GraphFileError, a_type, printable

MAX_FILE_BYTES = 1 << 29  # bytes; a graph of a million structures


def checked_path(path: object) -> Path:
    """The path of a file, given as text or path; raises `GraphFileError` for anything else."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise GraphFileError(f"a graph is named by the path of a file, got {a_type(path)}")
    return Path(path)


def read_whole(path: Path) -> bytes:
    """The content of an ordinary file; raises `GraphFileError`."""
    try:
        return safe_files.read_bounded(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        raise GraphFileError(f"it cannot be read: {printable(str(error))}") from None
