"""A file that may be forged, open to be read in parts: ordinary files alone, and no byte beyond its end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from modulekg_widgets.engine.errors import ModelFileError, shown
from modulekg_widgets.engine.safe_files import BINARY, NO_LINK, NO_WAITING, PATHLIKE

LARGEST_READ = 256 << 20  # bytes of one read; what is larger is mapped into memory


class FileSource:
    """An open file and its size; the other files of a model are read beside it, from the same folder.

    `path` is that of the file, `name` its last part.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self.file, self.path, self.name = file, path, os.path.basename(path)
        self.size = os.fstat(file.fileno()).st_size

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Exactly `length` bytes, by default up to the end; raises `ModelFileError` where the file has not as many."""
        wanted = self.size - offset if length is None else length
        if offset < 0 or not 0 <= wanted <= self.size - offset:
            raise ModelFileError(
                f"{shown(self.name)} has {self.size:,} bytes, and should have {wanted:,} more after {offset:,}: "
                "it is cut off or forged"
            )
        if wanted > LARGEST_READ:
            raise ModelFileError(f"{shown(self.name)} would be read {wanted:,} bytes at a time: it is forged")
        self.file.seek(offset)
        content = self.file.read(wanted)
        if len(content) != wanted:
            raise ModelFileError(f"{shown(self.name)} became shorter while it was read: open it again")
        return content

    @contextmanager
    def beside(self, name: str) -> Iterator[FileSource]:
        """A file of the same folder; raises `ModelFileError` for a name that leads elsewhere, and for a link."""
        if not is_plain_name(name):
            raise ModelFileError(
                f"{shown(self.name)} names {shown(repr(name))}, which is no file of its folder: it may lead anywhere, "
                "so it is not opened"
            )
        with opened(os.path.join(os.path.dirname(self.path), name), links=False) as source:
            yield source


def is_plain_name(name: str) -> bool:
    """Whether a name stands for a file in the same folder, on every system."""
    return bool(name) and name not in (".", "..") and not any(part in name for part in ("/", "\\", "\0", ":"))


@contextmanager
def opened(path: PATHLIKE, links: bool = True) -> Iterator[FileSource]:
    """An ordinary file to read; raises `ModelFileError` for anything else, without `links` for a link, too."""
    text = os.path.abspath(os.fsdecode(path))
    name = shown(os.path.basename(text))
    if not links and os.path.islink(text):
        raise ModelFileError(f"{name} is a link, which may lead out of the folder: put the file itself there")
    try:
        handle = os.open(text, os.O_RDONLY | BINARY | NO_WAITING | (0 if links else NO_LINK))
    except (OSError, ValueError) as error:
        reason = shown(getattr(error, "strerror", None) or str(error))
        raise ModelFileError(f"{name} cannot be read ({reason}): pass the path of a model file") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ModelFileError(f"{name} is no ordinary file: pass the path of a model file")
        yield FileSource(file, text)
