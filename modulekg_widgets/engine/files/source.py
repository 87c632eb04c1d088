"""Sources of readers: regular files that may be forged, with bounded reads and safe access to sibling files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from modulekg_widgets.engine.errors import ModelFileError, printable
from modulekg_widgets.engine.safe_files import BINARY, NO_FOLLOW, NONBLOCKING, PATHLIKE

MAX_READ_BYTES = 256 << 20  # bytes of one read; what is larger is mapped into memory
COMPARE_CHUNK_BYTES = 16 << 20  # bytes of a part of two files that are compared
MAX_FOLDERS = 16  # within each other, below the folder of the file
MAX_PATH = 1_000  # characters of a name in a file


class FileSource:
    """An open file with its size; other files of the model are opened from the same folder.

    `path` is that of the file, `name` its last part; of a file beside another one its path from there.
    """

    def __init__(self, file: IO[bytes], path: str, name: str = "") -> None:
        self.file, self.path, self.name = file, path, name or os.path.basename(path)
        self.size = os.fstat(file.fileno()).st_size

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Exactly `length` bytes, by default up to the end; raises `ModelFileError` where the file has not as many."""
        wanted = self.size - offset if length is None else length
        if offset < 0 or not 0 <= wanted <= self.size - offset:
            raise ModelFileError(
                f"{printable(self.name)} has {self.size:,} bytes, and should have {wanted:,} more after {offset:,}: "
                "it is cut off or forged, download or copy it again"
            )
        if wanted > MAX_READ_BYTES:
            raise ModelFileError(f"{printable(self.name)} would be read {wanted:,} bytes at a time: it is forged")
        self.file.seek(offset)
        content = self.file.read(wanted)
        if len(content) != wanted:
            raise ModelFileError(f"{printable(self.name)} became shorter while it was read: open it again")
        return content

    def equals(self, other: FileSource) -> bool:
        """True for the same file or one with equal bytes, compared in chunks."""
        if os.path.samestat(os.fstat(self.file.fileno()), os.fstat(other.file.fileno())):
            return True
        if self.size != other.size:
            return False
        parts = range(0, self.size, COMPARE_CHUNK_BYTES)
        lengths = (min(COMPARE_CHUNK_BYTES, self.size - start) for start in parts)
        return all(
            self.read(start, length) == other.read(start, length) for start, length in zip(parts, lengths, strict=True)
        )

    @contextmanager
    def beside(self, name: str) -> Iterator[FileSource]:
        """Open a file of the same folder or below, by its relative path with "/".

        Raises `ModelFileError` for a path that leads elsewhere, and for a link on it; but in a snapshot of the
        Hugging Face hub's cache, where all files are links, one to a blob of the same model is followed.
        """
        with _open(self.path_beside(name), self._joined(name), "/".join(_parts(name)), links=False) as source:
            yield source

    def has_beside(self, name: str) -> bool:
        """True if a path that `beside` accepts exists."""
        return is_safe_path(name) and os.path.lexists(self._joined(name))

    def path_beside(self, name: str) -> str:
        """Returns the path of a file beside this one; raises `ModelFileError` for an unsafe path or a link."""
        if not is_safe_path(name):
            raise ModelFileError(
                f"{printable(self.name)} names {printable(repr(name))}, which is not a file of its folder: it may lead "
                "anywhere, "
                "so it is not opened"
            )
        path = os.path.dirname(self.path)
        for part in _parts(name):
            path = os.path.join(path, part)
            if os.path.islink(path):
                return self._blob(name, part)
        return path

    def _blob(self, name: str, link: str) -> str:
        """Returns the target of a link in a Hugging Face snapshot; raises `ModelFileError` for other links."""
        target = os.path.realpath(self._joined(name))
        if os.path.dirname(target) not in _blobs(os.path.dirname(self.path)):
            raise ModelFileError(
                f"{printable(self.name)} names {printable('/'.join(_parts(name)))}, where {printable(link)} is a "
                "link, which may "
                "lead out of the folder: put the file itself there (of links, only those of the Hugging Face hub's "
                "cache are followed, from a snapshot to its blobs)"
            )
        return target

    def _joined(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.path), *_parts(name))


class FilePart(FileSource):
    """A part of an open file, with the interface of a file."""

    def __init__(self, whole: FileSource, start: int, size: int) -> None:
        super().__init__(whole.file, whole.path, whole.name)
        if start < 0 or not 0 <= size <= whole.size - start:
            raise ModelFileError(
                f"{printable(whole.name)} has {whole.size:,} bytes, and should have {size:,} more after {start:,}: "
                "it is "
                "cut off or forged, download or copy it again"
            )
        self._start, self.size = start, size

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """As `FileSource.read`."""
        wanted = self.size - offset if length is None else length
        if offset < 0 or not 0 <= wanted <= self.size - offset:
            raise ModelFileError(f"{printable(self.name)} has a part of {self.size:,} bytes that is cut off or forged")
        whole = FileSource(self.file, self.path, self.name)
        return whole.read(self._start + offset, wanted)


def is_safe_path(name: str) -> bool:
    """True if a name is a relative path to this folder or below, on every operating system."""
    parts = _parts(name)
    return (
        len(name) <= MAX_PATH
        and 0 < len(parts) <= MAX_FOLDERS
        and all(part not in ("", ".", "..") for part in parts)
        and not any(letter in name for letter in ("\\", "\0", ":"))
    )


def is_safe_name(name: str) -> bool:
    """True if a name is a file in this folder, on every operating system."""
    return is_safe_path(name) and "/" not in name


def _blobs(folder: str) -> Iterator[str]:
    """The blob folders that links of a snapshot may lead to."""
    place, above = os.path.realpath(folder), ""
    while place != above:
        snapshots, above = os.path.dirname(place), place
        blobs = os.path.join(os.path.dirname(snapshots), "blobs")
        if os.path.basename(snapshots) == "snapshots" and not os.path.islink(blobs):
            yield blobs
        place = snapshots


def _parts(name: str) -> list[str]:
    """The components of a path, without a leading "./"."""
    return name.removeprefix("./").split("/")


@contextmanager
def open_source(path: PATHLIKE) -> Iterator[FileSource]:
    """Open a regular file, also by a link; raises `ModelFileError` for anything else."""
    text = os.path.abspath(os.fsdecode(path))
    with _open(text, text, os.path.basename(text), links=True) as source:
        yield source


@contextmanager
def _open(place: str, path: str, name: str, links: bool) -> Iterator[FileSource]:
    """Open the file at `place`; messages use `name`."""
    try:
        handle = os.open(place, os.O_RDONLY | BINARY | NONBLOCKING | (0 if links else NO_FOLLOW))
    except (OSError, ValueError) as error:
        reason = printable(getattr(error, "strerror", None) or str(error))
        raise ModelFileError(f"{printable(name)} cannot be read ({reason}): pass the path of a model file") from error
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ModelFileError(f"{printable(name)} is not a regular file: pass the path of a model file")
        yield FileSource(file, path, name)
