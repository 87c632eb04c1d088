"""Plans read from JSON, with every value checked before it is used."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard, TypeVar

import numpy as np

from modulekg_widgets.engine.errors import PlanFileError, printable
from modulekg_widgets.engine.pruning.blocks.removal_file import parse_removal
from modulekg_widgets.engine.pruning.cut.edits import Edits, Ints, SizeValue, TensorEdit
from modulekg_widgets.engine.pruning.plan.corrections.candidate import Change
from modulekg_widgets.engine.pruning.plan.saved.plan_writing import (
    FORMAT,
    VERSION,
    VERSION_WITH_BLOCKS,
    checked_path,
    plan_bytes,
)
from modulekg_widgets.engine.pruning.plan.saved.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.residuals.module_removal import NOTHING_REMOVED
from modulekg_widgets.engine.safe_files import NO_FOLLOW, PATHLIKE, AtomicFile, parse_json, read_bounded

MAX_FILE_SIZE = 64 << 20  # bytes; the plan of a model of billions of parameters has a third of it
MAX_PARTS = 1_000_000  # lists and objects in a file
MAX_TEXT_LENGTH = 10_000  # of a name; plans are printed in columns as wide as their longest name
MAX_SIZE = 1 << 40
MAX_DIMENSIONS = 64  # that a tensor can have
MAX_NUMBER = 10**30  # of what is counted and only printed, as FLOPs
T = TypeVar("T")


def load_plan(path: str | os.PathLike[str]) -> PruningPlan:
    """Read a plan that `plan.save` wrote.

    Whether it fits a model is seen when it is cut: names, shapes and attributes are compared first.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    PruningPlan
        The plan, which cuts and masks without the graph that it was made on.

    Raises
    ------
    PlanFileError
        For any other file.

    Examples
    --------
    >>> import tempfile, torch
    >>> from torch import nn
    >>> import modulekg_widgets as mk
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mk.plan(mk.trace(model, torch.randn(1, 4)), ratio=0.5).save(f"{folder}/plan.json")
    ...     receipt = mk.load_plan(f"{folder}/plan.json").cut(model)
    >>> model[2].in_features
    4
    """
    file = checked_path(path)
    try:
        content = read_bounded(file, MAX_FILE_SIZE)
    except (OSError, ValueError) as error:  # a name with a null in it is a ValueError
        raise PlanFileError(f"{printable(str(file))} cannot be read: {printable(str(error))}") from error
    try:
        return parse_plan(content, f"mk.load_plan({os.fspath(path)!r})")
    except PlanFileError as error:
        raise PlanFileError(f"{printable(str(file))} is not a plan: {error}; save one with plan.save(path)") from error
    except (ValueError, RecursionError) as error:
        raise PlanFileError(
            f"{printable(str(file))} is not JSON: {printable(str(error))}; save one with plan.save(path)"
        ) from error


def parse_plan(content: bytes, call: str) -> PruningPlan:
    """The plan in a file's content, whose repr is `call`.

    Raises `PlanFileError` for another document, `ValueError` or `RecursionError` for what is no JSON.
    """
    return _PlanReader(parse_json(content, PlanFileError, MAX_PARTS, unique=True)).plan(call)


class _PlanReader:
    """Parses the document of a plan; anything that `save_plan` would not write is an error."""

    def __init__(self, document: object) -> None:
        self.document = _mapping(document, "the document")
        known, version = self.document.get("format"), self.document.get("version")
        if known != FORMAT:
            raise PlanFileError(f"its format is {_describe(known)}, not {FORMAT!r}")
        if type(version) is not int or version not in (VERSION, VERSION_WITH_BLOCKS):
            raise PlanFileError(
                f"its version is {_describe(version)}, this release reads {VERSION} and {VERSION_WITH_BLOCKS}"
            )

    def plan(self, call: str) -> PruningPlan:
        self.positions = self._each("positions", lambda value: _ascending(value, "positions"))
        tensors = self._each("tensors", self._tensor)
        names = [name for edit in tensors for name in edit.names]
        if len(set(names)) != len(names):
            raise PlanFileError("a tensor is listed twice")
        _check_gains(tensors)
        has_blocks = self.document["version"] == VERSION_WITH_BLOCKS
        blocks, removal = parse_removal(self.document) if has_blocks else ((), NOTHING_REMOVED)
        attributes = {
            name: _attribute_change(name, pair)
            for name, pair in _mapping(self._get("attributes"), "attributes").items()
        }
        return PruningPlan(
            tuple(self._each("axes", _parse_axis_cut)),
            Edits(tuple(tensors), attributes, removal),
            tuple(self._each("changes", _parse_change)),
            self._pair("params"), self._pair("flops"), self._pair("macs"), call,
            bytes=self._pair("bytes") if "bytes" in self.document else None, blocks=blocks,
            matmul_flops=self._pair("matmul_flops") if "matmul_flops" in self.document else None,
        )  # fmt: skip

    def _get(self, name: str) -> object:
        if name not in self.document:
            raise PlanFileError(f"it has no {name!r}")
        return self.document[name]

    def _each(self, name: str, read: Callable[[object], T]) -> list[T]:
        return [read(value) for value in _list(self._get(name), name)]

    def _pair(self, name: str) -> tuple[int, int]:
        before, after = _sizes(_list(self._get(name), name, 2), name, 0, MAX_NUMBER)
        return before, after

    def _tensor(self, value: object) -> TensorEdit:
        entry = _mapping(value, "tensors")
        names = tuple(_text(name, "a name") for name in _list(entry.get("names"), "names"))
        shape = tuple(_sizes(_list(entry.get("shape"), "shape")[: MAX_DIMENSIONS + 1], "shape"))
        if len(shape) > MAX_DIMENSIONS:
            raise PlanFileError(f"{printable(str(names))} has more than {MAX_DIMENSIONS} dimensions")
        kept = {}
        for key, number in _mapping(entry.get("kept"), "kept").items():
            at = next((at for at in range(len(shape)) if str(at) == key), None)
            if at is None or not _is_size(number) or number >= len(self.positions):
                raise PlanFileError(
                    f"{printable(str(names))} has no dimension {printable(key)} or positions {_describe(number)}"
                )
            kept[at] = self.positions[number]
            if not len(kept[at]) or kept[at][-1] >= shape[at]:
                raise PlanFileError(
                    f"{printable(str(names))} keeps positions that its shape {printable(str(shape))} does not have"
                )
        produced = _sizes(_list(entry.get("produced"), "produced"), "produced")
        if not names or not set(produced) <= set(kept):
            raise PlanFileError("a tensor has no name, or makes what it does not keep")
        by_gain = _sizes(_list(entry.get("by_gain", []), "by_gain"), "by_gain")
        if not set(by_gain) <= set(produced):
            raise PlanFileError(f"{printable(str(names))} leaves to a gain what it does not make")
        gain, values = _gain_of(entry.get("gain_of")), self._values(entry.get("values"))
        return TensorEdit(names, shape, kept, frozenset(produced), gain, values, frozenset(by_gain))

    def _values(self, number: object) -> Ints | None:
        """The remaining indices of an index buffer."""
        if number is not None and (not _is_size(number) or number >= len(self.positions)):
            raise PlanFileError(f"a buffer of indices has no positions {_describe(number)}")
        return None if number is None else self.positions[number]


def _gain_of(value: object) -> tuple[str, int] | None:
    if value is None:
        return None
    name, dim = _list(value, "gain_of", 2)
    if type(dim) is not int or not -1 <= dim < MAX_DIMENSIONS:
        raise PlanFileError(f"a gain keeps the dimension {_describe(dim)}")
    return _text(name, "a direction"), dim


def _check_gains(tensors: list[TensorEdit]) -> None:
    """Raise `PlanFileError` for a gain that has not one entry for each norm of its direction."""
    by_name = {name: edit for edit in tensors for name in edit.names}
    for edit in tensors:
        if edit.gain_of is None:
            continue
        name, dim = edit.gain_of
        direction = by_name.get(name)
        if direction is None or direction.gain_of or dim >= len(direction.shape):
            raise PlanFileError(f"{printable(name)} is not a direction of a normalised weight")
        for gain, whole in ((edit.shape, direction.shape), (edit.shape_after, direction.shape_after)):
            if math.prod(gain) != (1 if dim < 0 else whole[dim]):
                raise PlanFileError(f"{printable(edit.names[0])} has not one entry for each norm of {printable(name)}")


def _parse_axis_cut(value: object) -> AxisCut:
    entry = _mapping(value, "axes")
    dropped = _ascending(entry.get("dropped"), "dropped").tolist()
    (size,) = _sizes([entry.get("size")], "size")
    if len(dropped) >= size or (dropped and dropped[-1] >= size):
        raise PlanFileError(f"an axis of {size} drops {len(dropped)}, the last of them {dropped[-1:]}")
    members = tuple(_text(name, "a member") for name in _list(entry.get("members"), "members"))
    return AxisCut(_text(entry.get("name"), "an axis's name"), size, tuple(dropped), members)


def _parse_change(value: object) -> Change:
    entry = _mapping(value, "changes")
    kind, what, source = (_text(entry.get(name), name) for name in ("kind", "what", "source"))
    return Change(kind, what, source)


def _attribute_change(name: str, pair: object) -> tuple[SizeValue, SizeValue]:
    """The old and new value of an attribute: sizes of one kind and number."""
    _text(name, "an attribute's name")
    before, after = (_size_value(value, name) for value in _list(pair, name, 2))
    alike = type(before) is type(after) and (isinstance(before, int) or len(before) == len(after))  # type: ignore[arg-type]
    if not alike:
        raise PlanFileError(f"{printable(name)} changes from {_describe(before)} to {_describe(after)}")
    if any(part.startswith("__") or not part for part in name.split(".")):
        raise PlanFileError(f"{printable(name)} is not an attribute that holds a size")
    return before, after


def _size_value(value: object, name: str) -> SizeValue:
    """A size or several; open sizes are -1, as in a view."""
    if isinstance(value, dict):
        return tuple(_sizes(_list(value.get("tuple"), name), name, -MAX_SIZE))
    found = _sizes(value if isinstance(value, list) else [value], name, -MAX_SIZE)
    return found if isinstance(value, list) else found[0]


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise PlanFileError(f"{name} is {_describe(value)}, not an object")
    return value


def _list(value: object, name: str, length: int | None = None) -> list[object]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise PlanFileError(
            f"{printable(name)} is {_describe(value)}, not a list" + (f" of {length}" if length else "")
        )
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        raise PlanFileError(f"{name} is {_describe(value)}, not text of at most {MAX_TEXT_LENGTH:,} letters")
    return value


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_SIZE


def _sizes(found: Iterable[object], name: str, least: int = 0, most: int = MAX_SIZE) -> list[int]:
    every: list[int] = []
    for each in found:
        if type(each) is not int or not least <= each <= most:
            raise PlanFileError(f"{printable(name)} has {_describe(each)}, not a size")
        every.append(each)
    return every


def _ascending(value: object, name: str) -> Ints:
    found = _list(value, name)
    if not all(map(_is_size, found)):
        raise PlanFileError(f"{name} are not whole numbers")
    positions = np.asarray(found, dtype=np.int64)
    if np.any(np.diff(positions) <= 0):
        raise PlanFileError(f"{name} are not ascending")
    return positions


def _describe(value: object) -> str:
    """A value for a message, shortened before it is formatted."""
    if isinstance(value, dict | list | tuple):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return printable(repr(value[:80] if isinstance(value, str) else value), 40)


# -------------------- The folder in which a page may read and write plan files, never through a symbolic link


SUFFIX = ".json"
HAS_DIRECTORY_HANDLES = NO_FOLLOW != 0 and {os.open, os.stat, os.link, os.unlink, os.rename} <= os.supports_dir_fd
FileLocation = tuple[str, int | None]  # a name and the folder that it is in, or a path


class PlanFolder:
    """Plan files by the names that a page chose, below `folder` or the working folder.

    Every call raises `PlanFileError` for a name that leads elsewhere or does not end in .json.
    """

    def __init__(self, folder: PATHLIKE | None = None) -> None:
        self._folder = None if folder is None else os.path.abspath(folder)

    @property
    def folder(self) -> str:
        try:
            return os.getcwd() if self._folder is None else self._folder
        except OSError as error:
            raise _WrongNameError(f"the working folder is gone ({printable(str(error))}): go to another one") from error

    def path(self, name: PATHLIKE) -> str:
        """The path of a name, as the user's own code may write it."""
        return os.fspath(name) if self._folder is None else os.path.join(self._folder, name)

    def checked_name(self, name: object) -> str:
        """The name, after a check of the name alone."""
        self._path_parts(name)
        return str(name)

    def save(self, plan: PruningPlan, name: str) -> None:
        """Write a plan; only an existing plan is replaced."""
        content = plan_bytes(plan)
        try:
            with self._open_location(name) as (path, folder):
                _write_plan(content, path, folder)
        except PlanFileError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise PlanFileError(f"{printable(name)} cannot be written: {printable(reason)}") from error

    def load(self, name: str) -> PruningPlan:
        """Read a plan; the error is the same for a missing file and for no plan."""
        try:
            with self._open_location(name) as (path, folder):
                return parse_plan(read_bounded(path, MAX_FILE_SIZE, folder), f"mk.load_plan({self.path(name)!r})")
        except _WrongNameError:
            raise
        except (OSError, ValueError, RecursionError):
            raise PlanFileError(
                f"{printable(name)} cannot be read as a plan: choose another name; mk.load_plan in Python says more"
            ) from None

    def _path_parts(self, name: object) -> tuple[str, ...]:
        """The folders and the file name, in order."""
        if not isinstance(name, str) or not name.strip():
            raise _WrongNameError("a plan needs the name of a file, as plan.modulekg.json")
        path = Path(name)
        if path.is_absolute():
            names = (self.folder, os.path.realpath(self.folder))
            path = next((path.relative_to(each) for each in names if path.is_relative_to(each)), path)
        if path.anchor or ".." in path.parts or not path.parts:
            raise _WrongNameError(
                f"{printable(name)} is not below {printable(self.folder)}, where this page may write and read: name "
                "a file "
                "there, or pass MaskEditor(…, folder=…) in Python"
            )
        if path.suffix != SUFFIX:
            raise _WrongNameError(f"{printable(name)} does not end in {SUFFIX}, as the plans of a page do")
        return path.parts

    @contextmanager
    def _open_location(self, name: str) -> Iterator[FileLocation]:
        """Open the folder of a file, safe against renames meanwhile."""
        *folders, last = self._path_parts(name)
        if not HAS_DIRECTORY_HANDLES:
            yield _path_without_links(self.folder, folders, last), None
            return
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for each in folders:
                inner = os.open(each, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield last, handle
        finally:
            os.close(handle)


class _WrongNameError(PlanFileError):
    """A name that no plan of a page may have."""


def _path_without_links(folder: str, folders: list[str], last: str) -> str:
    """For a system that opens no file by the handle of its folder; a link that comes after the check is not seen."""
    path = os.path.join(os.path.realpath(folder), *folders, last)
    if os.path.realpath(path) != path:
        raise OSError("a link is on the way")
    return path


def _write_plan(content: bytes, path: str, folder: int | None) -> None:
    """Write a plan where there is a plan or nothing."""
    known = _existing_plan(path, folder)
    new = AtomicFile(path, folder)
    try:
        new.open().write(content)
        if known is None:
            new.commit_new()
        elif known == _file_identity(path, folder):
            new.commit()
        else:
            raise FileExistsError("another file has come there")
    finally:
        new.discard()


def _existing_plan(path: str, folder: int | None) -> tuple[int, ...] | None:
    """The identity of the existing plan file, or None; raises `PlanFileError` for other files."""
    known = _file_identity(path, folder)
    if known is not None:
        try:
            parse_plan(read_bounded(path, MAX_FILE_SIZE, folder), "")
        except (OSError, ValueError, RecursionError):
            raise PlanFileError(f"{printable(path)} exists and is not a plan: choose another name") from None
    return known


def _file_identity(path: str, folder: int | None) -> tuple[int, ...] | None:
    try:
        found = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
