"""Removed modules in plan files: written as plain JSON, and parsed with every value checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modulekg_widgets.engine.errors import PlanFileError, printable
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, MovedModule, RemovedModule
from modulekg_widgets.engine.residuals.stand_ins import ARGUMENT, LIST, OUTPUT, TUPLE, Argument, Placeholder, Result

MAX_NAME_LENGTH = 10_000  # of a name
MAX_DEPTH = 8  # tuples in each other
MAX_PARTS = 1_000  # of one
MAX_SIZE = 1 << 40


def removal_document(blocks: tuple[str, ...], removal: ModuleRemoval) -> dict[str, Any]:
    """The JSON entries for removed modules in a plan file."""
    return {
        "blocks": list(blocks),
        "removed": [
            {
                "path": each.path,
                "stand_in": None if each.placeholder is None else _placeholder_document(each.placeholder),
            }
            for each in removal.modules
        ],
        "followers": {path: [_plain(before), _plain(after)] for path, (before, after) in removal.attributes.items()},
        **({"moved": [[each.path, each.owner] for each in removal.moved]} if removal.moved else {}),
    }


def parse_removal(document: Mapping[str, Any]) -> tuple[tuple[str, ...], ModuleRemoval]:
    """The block paths and the removal of a plan file; raises `PlanFileError` for any other content."""
    blocks = tuple(_path(path) for path in _list(document.get("blocks"), "blocks"))
    modules = tuple(_module(entry) for entry in _list(document.get("removed"), "removed"))
    if not modules or len({each.path for each in modules}) != len(modules):
        raise PlanFileError("no module is removed, or one twice")
    followers = document.get("followers")
    if not isinstance(followers, dict):
        raise PlanFileError("followers are no object")
    attributes = {_attribute(path): _pair(path, pair) for path, pair in followers.items()}
    moved = tuple(map(_moved_module, _list(document.get("moved", []), "moved")))
    if len({each.path for each in moved}) != len(moved):
        raise PlanFileError("a module moves twice")
    return blocks, ModuleRemoval(modules, attributes, moved)


# ----------------------------------------------------------------- stand-ins


def _placeholder_document(placeholder: Placeholder) -> dict[str, Any]:
    return {
        "zeros": placeholder.gives_zeros,
        "argument": [placeholder.argument.position, placeholder.argument.keyword],
        "result": _result_document(placeholder.result),
    }


def _result_document(result: Result) -> Any:
    return [_result_document(part) if isinstance(part, tuple) else part for part in result] if isinstance(
        result, tuple) else result  # fmt: skip


def _module(entry: Any) -> RemovedModule:
    if not isinstance(entry, dict):
        raise PlanFileError("a removed module is no object")
    path, value = _path(entry.get("path")), entry.get("stand_in")
    if value is None:
        return RemovedModule(path)
    if not isinstance(value, dict) or not isinstance(value.get("zeros"), bool):
        raise PlanFileError(f"what stands for {printable(path)} is neither zeros nor its input")
    argument = Argument(*_argument(_list(value.get("argument"), "argument")))
    return RemovedModule(path, Placeholder(value["zeros"], argument, _result(value.get("result"), 0)))


def _moved_module(entry: Any) -> MovedModule:
    paths = _list(entry, "a module that moves")
    if len(paths) != 2:
        raise PlanFileError("a module that moves has not two paths")
    path, owner = map(_path, paths)
    return MovedModule(path, owner)


def _argument(value: list[Any]) -> tuple[int | None, str | None]:
    if len(value) != 2:
        raise PlanFileError("an argument has a position and a keyword")
    position, keyword = value
    is_position = position is None or (type(position) is int and 0 <= position <= MAX_SIZE)
    is_keyword = keyword is None or (
        isinstance(keyword, str) and keyword.isidentifier() and len(keyword) <= MAX_NAME_LENGTH
    )
    if not is_position or not is_keyword or (position is None) == (keyword is None):
        raise PlanFileError("an argument is named by a position or a keyword")
    return position, keyword


def _result(value: Any, depth: int) -> Result:
    if value is None or value == OUTPUT:
        return value
    parts = _list(value, "a result")
    if depth == MAX_DEPTH or not parts or len(parts) > MAX_PARTS:
        raise PlanFileError("a result is nested too deep, or empty")
    kind, *inside = parts
    if kind == ARGUMENT:
        return (ARGUMENT, *_argument(inside))
    if kind not in (TUPLE, LIST):
        raise PlanFileError("a result is no tuple, list or argument")
    return (kind, *(_result(part, depth + 1) for part in inside))


# ---------------------------------------------------------------- attributes


def _attribute(path: Any) -> str:
    name = _path(path)
    if any(part.startswith("__") for part in name.split(".")):
        raise PlanFileError(f"{printable(name)} is no attribute that holds a count")
    return name


def _plain(value: Any) -> Any:
    return {"tuple": list(value)} if isinstance(value, tuple) else value


def _pair(path: str, pair: Any) -> tuple[Any, Any]:
    both = _list(pair, path)
    if len(both) != 2:
        raise PlanFileError(f"{printable(path)} has not two values")
    before, after = map(_value, both)
    if type(before) is not type(after):
        raise PlanFileError(f"{printable(path)} changes its kind")
    return before, after


def _value(value: Any) -> Any:
    """A count, a flag, or a list by layer of counts, flags or text."""
    if type(value) is bool or (type(value) is int and 0 <= value <= MAX_SIZE):
        return value
    if isinstance(value, dict):
        return tuple(_parts(value.get("tuple")))
    return _parts(value)


def _parts(value: Any) -> list[Any]:
    parts = _list(value, "a list by layer")
    for part in parts:
        if type(part) is str and len(part) <= MAX_NAME_LENGTH:
            continue
        if not (type(part) is bool or (type(part) is int and -MAX_SIZE <= part <= MAX_SIZE)):
            raise PlanFileError("a list by layer holds no counts, flags or text")
    return parts


# --------------------------------------------------------------------- parts


def _path(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH or not all(value.split(".")):
        raise PlanFileError("a path is no text, or has empty parts")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise PlanFileError(f"{printable(name)} is no list")
    return value
