"""The plan files that a page may write and read: inside one folder, never through a symbolic link."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modulekg_widgets.engine.errors import PlanFileError, shown
from modulekg_widgets.engine.pruning.plan.plan_file import LARGEST_FILE, plan_of
from modulekg_widgets.engine.pruning.plan.plan_writing import text_of
from modulekg_widgets.engine.pruning.plan.pruning_plan import PruningPlan
from modulekg_widgets.engine.safe_files import NO_LINK, PATHLIKE, NewFile, read_whole

ENDING = ".json"
HAS_HANDLES = NO_LINK != 0 and {os.open, os.stat, os.link, os.unlink, os.rename} <= os.supports_dir_fd
Place = tuple[str, int | None]  # a name and the folder that it is in, or a path


class PlanFolder:
    """Plans by names that a page chose: `a.json` or `runs/a.json` below `folder` (None: the working folder).

    Every call raises `PlanFileError` for a name that leads elsewhere or does not end in .json.
    """

    def __init__(self, folder: PATHLIKE | None = None) -> None:
        self._given = None if folder is None else os.path.abspath(folder)

    @property
    def folder(self) -> str:
        try:
            return os.getcwd() if self._given is None else self._given
        except OSError as error:
            raise _WrongNameError(f"the working folder is gone ({shown(str(error))}): go to another one") from error

    def path(self, name: PATHLIKE) -> str:
        """The path of a name, as the user's own code may write it."""
        return os.fspath(name) if self._given is None else os.path.join(self._given, name)

    def checked(self, name: Any) -> str:
        """The name itself; only the name is looked at, and no file."""
        self._parts(name)
        return name

    def save(self, plan: PruningPlan, name: str) -> None:
        """Write a plan; of what is there, only another plan is replaced."""
        content = text_of(plan)
        try:
            with self._place(name) as (path, folder):
                _put(content, path, folder)
        except PlanFileError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise PlanFileError(f"{shown(name)} cannot be written: {shown(reason)}") from error

    def load(self, name: str) -> PruningPlan:
        """Read a plan; the error is the same for what is no plan and for what is not there."""
        try:
            with self._place(name) as (path, folder):
                return plan_of(read_whole(path, LARGEST_FILE, folder), f"mk.load_plan({self.path(name)!r})")
        except _WrongNameError:
            raise
        except (OSError, ValueError, RecursionError):
            raise PlanFileError(
                f"{shown(name)} cannot be read as a plan: choose another name; mk.load_plan in Python says more"
            ) from None

    def _parts(self, name: Any) -> tuple[str, ...]:
        """The folders on the way and the file, one after the other."""
        if not isinstance(name, str) or not name.strip():
            raise _WrongNameError("a plan needs the name of a file, as plan.modulekg.json")
        path = Path(name)
        if path.is_absolute():
            names = (self.folder, os.path.realpath(self.folder))
            path = next((path.relative_to(each) for each in names if path.is_relative_to(each)), path)
        if path.anchor or ".." in path.parts or not path.parts:
            raise _WrongNameError(
                f"{shown(name)} is not below {shown(self.folder)}, where this page may write and read: name a file "
                "there, or pass MaskEditor(…, folder=…) in Python"
            )
        if path.suffix != ENDING:
            raise _WrongNameError(f"{shown(name)} does not end in {ENDING}, as the plans of a page do")
        return path.parts

    @contextmanager
    def _place(self, name: str) -> Iterator[Place]:
        """The file in its folder, which stays the same one whatever is renamed on the way meanwhile."""
        *folders, last = self._parts(name)
        if not HAS_HANDLES:
            yield _path_without_links(self.folder, folders, last), None
            return
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for each in folders:
                inner = os.open(each, os.O_RDONLY | os.O_DIRECTORY | NO_LINK, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield last, handle
        finally:
            os.close(handle)


class _WrongNameError(PlanFileError):
    """A name that no plan of a page may have, whatever is there."""


def _path_without_links(folder: str, folders: list[str], last: str) -> str:
    """For a system that opens no file by the handle of its folder; a link that comes after the check is not seen."""
    path = os.path.join(os.path.realpath(folder), *folders, last)
    if os.path.realpath(path) != path:
        raise OSError("a link is on the way")
    return path


def _put(content: bytes, path: str, folder: int | None) -> None:
    """Write a plan where a plan or nothing is."""
    known = _plan_at(path, folder)
    new = NewFile(path, folder)
    try:
        new.open().write(content)
        if known is None:
            new.keep_as_first()
        elif known == _identity(path, folder):
            new.keep()
        else:
            raise FileExistsError("another file has come there")
    finally:
        new.discard()


def _plan_at(path: str, folder: int | None) -> tuple[int, ...] | None:
    """Which file is there, or None; raises `PlanFileError` for one that is no plan."""
    known = _identity(path, folder)
    if known is not None:
        try:
            plan_of(read_whole(path, LARGEST_FILE, folder), "")
        except (OSError, ValueError, RecursionError):
            raise PlanFileError(f"{shown(path)} is there and is no plan: choose another name") from None
    return known


def _identity(path: str, folder: int | None) -> tuple[int, ...] | None:
    try:
        found = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
