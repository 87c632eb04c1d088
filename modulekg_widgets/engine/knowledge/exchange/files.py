"""Whole files: written so that no reader sees a part, read within limits."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from modulekg_widgets.engine.errors import GraphFileError, UnknownPathError, UnwritableFileError, shown

LARGEST_FILE = 1 << 29  # bytes; a graph of a million structures


def checked_path(path: object) -> Path:
    """The path of a file, given as text or path; raises `GraphFileError` for anything else."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise GraphFileError(f"a graph is named by the path of a file, got a {shown(type(path).__name__)}")
    return Path(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it, or leave what is there.

    Raises `UnknownPathError` where there is no folder, `UnwritableFileError` for every other reason.
    """
    try:
        if not path.parent.is_dir():
            raise UnknownPathError(f"there is no folder {shown(str(path.parent))!r}: make it first")
        if path.exists() and not path.is_file():
            raise OSError("it is there, and no ordinary file")
        _replace(path, content)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = shown(getattr(error, "strerror", None) or str(error))
        raise UnwritableFileError(
            f"{shown(str(path))!r} cannot be written ({reason}): name a file in a folder that can be written to"
        ) from error


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_whole(path: Path) -> bytes:
    """The content of an ordinary file; raises `GraphFileError`: others may have no end, or never answer."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise GraphFileError("it is no ordinary file")
        if found.st_size <= LARGEST_FILE:
            with path.open("rb") as file:
                return file.read(LARGEST_FILE)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        if isinstance(error, GraphFileError):
            raise
        raise GraphFileError(f"it cannot be read: {shown(str(error))}") from None
    raise GraphFileError(f"it is larger than {LARGEST_FILE >> 20} MB")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
