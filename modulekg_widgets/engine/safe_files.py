"""Atomic file writes, bounded reads and bounded JSON parsing, used for every file of the package."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import IO, Any, NoReturn

from modulekg_widgets.engine.errors import UnknownPathError, UnwritableFileError, printable

BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other ends of lines
NONBLOCKING = getattr(os, "O_NONBLOCK", 0)  # opening a pipe waits for whoever writes to it
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
PATHLIKE = str | os.PathLike[str]
BYTE_ORDER_MARK = "\ufeff"  # editors put it before a text
MAX_INTEGER_DIGITS = 400  # digits; a double has 309 at most


class AtomicFile:
    """A file in the making, beside `path` and under a name of its own, from `open` on until `keep` puts it there.

    A link at `path` stays and leads to the new file, and a file that is replaced hands on its mode. With `folder`, the
    descriptor of an open one, `path` is a name in it, where no link is followed. The methods raise `OSError`, and
    `ValueError` for a path that none can have; whatever happens, `discard` ends it.
    """

    def __init__(self, path: PATHLIKE, folder: int | None = None) -> None:
        self._path = os.fspath(path) if folder is not None else os.path.realpath(path)
        parent, name = os.path.split(self._path)
        self._scratch = os.path.join(parent, f"{name[:40]}.{secrets.token_hex(6)}.part")
        self._folder = folder
        self._both: dict[str, int] = {} if folder is None else {"src_dir_fd": folder, "dst_dir_fd": folder}
        self._file: IO[bytes] | None = None

    def open(self, buffering: int = -1) -> IO[bytes]:
        """Returns the new empty file; with `buffering` 0, each write goes to the operating system at once."""
        old = _lstat(self._path, self._folder)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise OSError("it exists and is not a regular file")
        mode = 0o666 if old is None else old.st_mode & 0o777
        # the system applies the umask here: to ask for it would change it for all threads
        handle = os.open(self._scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode, dir_fd=self._folder)
        self._file = os.fdopen(handle, "wb", buffering)
        if old is not None:
            os.chmod(self._scratch, mode, dir_fd=self._folder)
        return self._file

    def commit(self) -> None:
        """Move the file to its path atomically."""
        self._finish()
        os.replace(self._scratch, self._path, **self._both)

    def commit_new(self) -> None:
        """Move the file to its path; raises `FileExistsError` if another one was created meanwhile."""
        self._finish()
        try:
            os.link(self._scratch, self._path, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if _lstat(self._path, self._folder) is not None:
                raise FileExistsError("it exists") from None
            self.commit()

    def discard(self) -> None:
        """Delete the unfinished file and leave the path unchanged; does nothing after `commit`."""
        with suppress(OSError):  # as of a full disk, which has been told
            if self._file is not None:
                self._file.close()
        with suppress(OSError, ValueError):
            os.unlink(self._scratch, dir_fd=self._folder)

    def _finish(self) -> None:
        if self._file is not None and not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())  # the name must not come to the disk before what is in the file
            self._file.close()


@contextmanager
def atomic_writer(path: PATHLIKE) -> Iterator[IO[bytes]]:
    """Context manager for a file that replaces `path` when the block ends, and is deleted if it raises."""
    new = AtomicFile(path)
    try:
        yield new.open()
        new.commit()
    finally:
        new.discard()


def write_atomic(path: PATHLIKE, content: bytes) -> None:
    """Write a file atomically: readers see the old content or the new one, never a part.

    Raises `UnknownPathError` where there is no folder, `UnwritableFileError` for every other reason.
    """
    try:
        parent = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(parent):
            raise UnknownPathError(f"there is no folder {printable(parent)!r}: make it first")
        with atomic_writer(path) as file:
            file.write(content)
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        reason = printable(getattr(error, "strerror", None) or str(error))
        raise UnwritableFileError(
            f"{printable(os.fspath(path))!r} cannot be written ({reason}): name a file in a folder that can be "
            "written to"
        ) from error


def read_bounded(path: PATHLIKE, max_bytes: int, folder: int | None = None, links: bool = True) -> bytes:
    """Returns the content of a regular file of at most `max_bytes` bytes; pipes and devices are refused.

    With `folder`, `path` is a name in it. There, and without `links`, a link is refused. Raises `OSError`, and
    `ValueError` for a path that none can have.
    """
    if not links and os.path.islink(path):  # O_NOFOLLOW says it less plainly, and not every system has it
        raise OSError("it is not a regular file")
    flags = os.O_RDONLY | BINARY | NONBLOCKING | (0 if links and folder is None else NO_FOLLOW)
    handle = os.open(path, flags, dir_fd=folder)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = b"" if found.st_size > max_bytes else file.read(max_bytes + 1)
    finally:
        os.close(handle)
    if max(found.st_size, len(content)) > max_bytes:
        raise OSError(f"it is larger than {max_bytes >> 20} MB")
    return content


def parse_json(
    text: str | bytes,
    error: type[ValueError],
    most_parts: int,
    *,
    unique: bool = False,
    doubles: bool = False,
    most_values: int | None = None,
) -> Any:
    """The value that a JSON text has, from a file that may be forged.

    Raises `error` for more than `most_parts` lists and objects, each of which takes 20 times its text in memory, for
    more than `most_values` names and values, and for NaN and infinities; with `unique` for a name that stands twice in
    one object; with `doubles` for a number that no double is as large as. Raises `ValueError` or `RecursionError` for
    what is no JSON, or nested too deep.
    """
    if _has_more(text, "[{", most_parts):
        raise error(f"it has more than {most_parts:,} lists and objects")
    if most_values is not None and _has_more(text, ",:", most_values):
        raise error(f"it has more than {most_values:,} names and values")
    text = text if isinstance(text, str) else text.decode("utf-8")
    if text.startswith(BYTE_ORDER_MARK):
        raise json.JSONDecodeError("Unexpected UTF-8 BOM (save it as UTF-8 without one)", text, 0)
    return _decoder(error, unique, doubles).decode(text)


def _has_more(text: str | bytes, marks: str, most: int) -> bool:
    """True if a text has more than `most` of some characters."""
    if len(text) <= most:
        return False
    if isinstance(text, str):
        return sum(map(text.count, marks)) > most
    return sum(text.count(mark.encode()) for mark in marks) > most


@lru_cache
def _decoder(error: type[ValueError], unique: bool, doubles: bool) -> json.JSONDecoder:
    def refused(constant: str) -> NoReturn:
        raise error(f"{constant} is not a number of JSON")

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise error("a name stands twice in one object")
        return found

    def fraction(text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise error(f"no double is as large as {printable(text)}")
        return number

    def integer(text: str) -> int:
        if len(text) > MAX_INTEGER_DIGITS:  # takes time that grows with the square
            raise error(f"no double is as large as {printable(text)}")
        return int(text)

    return json.JSONDecoder(
        parse_constant=refused,
        object_pairs_hook=mapping if unique else None,
        parse_float=fraction if doubles else None,
        parse_int=integer if doubles else None,
    )


def _lstat(path: str, folder: int | None) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=folder is None)
    except FileNotFoundError:
        return None
