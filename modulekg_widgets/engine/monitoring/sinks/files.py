"""What all recorded files share: which may be written over, and how an error names them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from modulekg_widgets.engine.errors import RecordingError, shown

FORMAT, VERSION = "modulekg-run", 1


@contextmanager
def at_file(path: Path, verb: str = "read") -> Iterator[None]:
    """Errors inside become a `RecordingError` that names the file."""
    name = shown(str(path), 300)
    try:
        yield
    except RecordingError as error:
        raise RecordingError(f"{name}: {error}") from error
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        raise RecordingError(f"{name} cannot be {verb}: {shown(str(error), 300)}") from error


def holds_something(path: Path) -> bool:
    """Whether there is a file that is not empty; raises `RecordingError` for what is no ordinary file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):  # a pipe or a device may have no end, or never answer
        raise RecordingError("it is no ordinary file")
    return found.st_size > 0


def is_recorded(path: Path, name_in: Callable[[Path], str | None]) -> bool:
    """Whether a recording is there, which `name_in` accepts; raises `RecordingError` for another file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not holds_something(path):
        return False
    try:
        name_in(path)
    except RecordingError as error:
        raise RecordingError(f"a file that is no recording is not written over: pass another path ({error})") from error
    return True


def checked_head(found: object) -> str:
    """The name in the parsed header of a file; raises `RecordingError` for a header of something else."""
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise RecordingError(f'it does not begin with {{"format": "{FORMAT}", …}}: record a run with a sink')
    version, name = found.get("version"), found.get("name")
    if type(version) is not int or version != VERSION:
        raise RecordingError(f"its version is {shown(repr(version))}; this release reads {VERSION}")
    if type(name) is not str:
        raise RecordingError("its name is no text")
    return name
