"""Plans as JSON: written whole or not at all, and checked before anything is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from modulekg_widgets.engine.errors import PlanFileError, shown
from modulekg_widgets.engine.pruning.edits import Edits, Ints, TensorEdit, Whole
from modulekg_widgets.engine.pruning.pruning_plan import AxisCut, PruningPlan
from modulekg_widgets.engine.pruning.repair import Change

FORMAT, VERSION = "modulekg-plan", 1
LARGEST_FILE = 64 << 20  # bytes; the plan of a model of billions of parameters has a few
LARGEST_SIZE = 1 << 40
T = TypeVar("T")


def save_plan(plan: PruningPlan, path: str | os.PathLike[str]) -> None:
    """Write a plan; the file is there whole or not at all."""
    positions: dict[tuple[int, ...], int] = {}  # many tensors keep the same positions, which are written once

    def number_of(kept: Ints) -> int:
        return positions.setdefault(tuple(kept.tolist()), len(positions))

    tensors = [
        {
            "names": list(edit.names),
            "shape": list(edit.shape),
            "kept": {str(at): number_of(kept) for at, kept in edit.kept.items()},
            "produced": sorted(edit.produced),
        }
        for edit in plan.edits.tensors
    ]
    document = {
        "format": FORMAT,
        "version": VERSION,
        "params": plan.params,
        "flops": plan.flops,
        "macs": plan.macs,
        "axes": [
            {"name": axis.name, "size": axis.size, "dropped": axis.dropped, "members": axis.members}
            for axis in plan.axes
        ],
        "changes": [{"kind": c.kind, "what": c.what, "source": c.source} for c in plan.changes],
        "attributes": {name: list(values) for name, values in plan.edits.attributes.items()},
        "tensors": tensors,
        "positions": list(positions),
    }
    target = Path(path)
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        scratch.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def load_plan(path: str | os.PathLike[str]) -> PruningPlan:
    """Read a plan that `plan.save` wrote; raises `PlanFileError` for any other file.

    Whether it fits a model is seen when it is cut: names, shapes and attributes are compared first.
    """
    try:
        if os.path.getsize(path) > LARGEST_FILE:
            raise PlanFileError(f"{shown(str(path))} is larger than {LARGEST_FILE >> 20} MB: it is no plan")
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise PlanFileError(f"{shown(str(path))} cannot be read: {shown(str(error))}") from error
    try:
        return _Reader(json.loads(text, parse_constant=_refused)).plan(f"mk.load_plan({str(path)!r})")
    except PlanFileError as error:
        raise PlanFileError(f"{shown(str(path))} is no plan: {error}; save one with plan.save(path)") from error
    except (ValueError, RecursionError) as error:
        raise PlanFileError(
            f"{shown(str(path))} is no JSON: {shown(str(error))}; save one with plan.save(path)"
        ) from error


def _refused(constant: str) -> None:
    raise PlanFileError(f"{constant} is no number")


class _Reader:
    """Takes a document apart; whatever is not as `save_plan` writes it is an error."""

    def __init__(self, document: Any) -> None:
        self.document = _mapping(document, "the document")
        if self.document.get("format") != FORMAT:
            raise PlanFileError(f"its format is {shown(repr(self.document.get('format')))}, not {FORMAT!r}")
        if self.document.get("version") != VERSION:
            version = shown(repr(self.document.get("version")))
            raise PlanFileError(f"its version is {version}, this release reads {VERSION}")

    def plan(self, call: str) -> PruningPlan:
        self.positions = self._each("positions", lambda value: _ascending(value, "positions"))
        tensors = self._each("tensors", self._tensor)
        names = [name for edit in tensors for name in edit.names]
        if len(set(names)) != len(names):
            raise PlanFileError("a tensor is listed twice")
        attributes = {
            name: _change(name, pair) for name, pair in _mapping(self._get("attributes"), "attributes").items()
        }
        return PruningPlan(
            tuple(self._each("axes", _axis)),
            Edits(tuple(tensors), attributes),
            tuple(self._each("changes", _correction)),
            self._pair("params"), self._pair("flops"), self._pair("macs"), call,
        )  # fmt: skip

    def _get(self, name: str) -> Any:
        if name not in self.document:
            raise PlanFileError(f"it has no {name!r}")
        return self.document[name]

    def _each(self, name: str, read: Callable[[Any], T]) -> list[T]:
        return [read(value) for value in _list(self._get(name), name)]

    def _pair(self, name: str) -> tuple[int, int]:
        before, after = _sizes(self._get(name), name, 2)
        return before, after

    def _tensor(self, value: Any) -> TensorEdit:
        entry = _mapping(value, "tensors")
        names = tuple(_text(name, "a name") for name in _list(entry.get("names"), "names"))
        shape = tuple(_sizes(entry.get("shape"), "shape"))
        kept = {}
        for key, number in _mapping(entry.get("kept"), "kept").items():
            at = int(key) if key.isascii() and key.isdigit() and len(key) < 4 else len(shape)
            if at >= len(shape) or not _is_size(number) or number >= len(self.positions):
                raise PlanFileError(
                    f"{shown(str(names))} has no dimension {shown(key)} or positions {shown(repr(number))}"
                )
            kept[at] = self.positions[number]
            if not len(kept[at]) or kept[at][-1] >= shape[at]:
                raise PlanFileError(
                    f"{shown(str(names))} keeps positions that its shape {shown(str(shape))} does not have"
                )
        produced = _sizes(entry.get("produced"), "produced")
        if not names or not set(produced) <= set(kept):
            raise PlanFileError("a tensor has no name, or makes what it does not keep")
        return TensorEdit(names, shape, kept, frozenset(produced))


def _axis(value: Any) -> AxisCut:
    entry = _mapping(value, "axes")
    dropped = _ascending(entry.get("dropped"), "dropped").tolist()
    (size,) = _sizes([entry.get("size")], "size")
    if dropped and dropped[-1] >= size:
        raise PlanFileError(f"an axis of {size} drops {dropped[-1]}")
    members = tuple(_text(name, "a member") for name in _list(entry.get("members"), "members"))
    return AxisCut(_text(entry.get("name"), "an axis's name"), size, tuple(dropped), members)


def _correction(value: Any) -> Change:
    entry = _mapping(value, "changes")
    return Change(*(_text(entry.get(name), name) for name in ("kind", "what", "source")))


def _change(name: str, pair: Any) -> tuple[Whole, Whole]:
    """Before and after; JSON knows no tuples, so a sequence is a tuple, as torch's modules have them."""
    before, after = (_whole(value, name) for value in _list(pair, name, 2))
    if type(before) is not type(after) or (isinstance(before, tuple) and len(before) != len(after)):  # type: ignore
        raise PlanFileError(f"{shown(name)} changes from {before} to {after}")
    if any(part.startswith("__") or not part for part in name.split(".")):
        raise PlanFileError(f"{shown(name)} is no attribute that holds a size")
    return before, after


def _whole(value: Any, name: str) -> Whole:
    return tuple(_sizes(value, name)) if isinstance(value, list) else _sizes([value], name)[0]


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PlanFileError(f"{name} is {shown(repr(value), 40)}, not an object")
    return value


def _list(value: Any, name: str, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise PlanFileError(
            f"{shown(name)} is {shown(repr(value), 40)}, not a list" + (f" of {length}" if length else "")
        )
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise PlanFileError(f"{name} is {shown(repr(value), 40)}, not text")
    return value


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_SIZE


def _sizes(value: Any, name: str, length: int | None = None) -> list[int]:
    found = _list(value, name, length)
    bad = next((each for each in found if not (type(each) is int and 0 <= each <= (1 << 62))), None)
    if bad is not None:
        raise PlanFileError(f"{shown(name)} has {shown(repr(bad), 40)}, not a size")
    return found


def _ascending(value: Any, name: str) -> Ints:
    found = _list(value, name)
    if not all(map(_is_size, found)):
        raise PlanFileError(f"{name} are not whole numbers")
    positions = np.asarray(found, dtype=np.int64)
    if np.any(np.diff(positions) <= 0):
        raise PlanFileError(f"{name} are not ascending")
    return positions
