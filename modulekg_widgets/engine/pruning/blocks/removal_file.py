"""Removed modules in plan files: written as plain JSON, and parsed with every value checked."""

from __future__ import annotations

from collections.abc import Mapping

from modulekg_widgets.engine.errors import PlanFileError, printable
from modulekg_widgets.engine.json_types import JsonObject, JsonValue
from modulekg_widgets.engine.residuals.module_removal import ModuleRemoval, MovedModule, RemovedModule
from modulekg_widgets.engine.residuals.stand_ins import ARGUMENT, LIST, OUTPUT, TUPLE, Argument, Placeholder, Result

MAX_NAME_LENGTH = 10_000  # of a name
MAX_DEPTH = 8  # tuples in each other
MAX_PARTS = 1_000  # of one
MAX_SIZE = 1 << 40


def removal_document(blocks: tuple[str, ...], removal: ModuleRemoval) -> JsonObject:
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


def parse_removal(document: Mapping[str, object]) -> tuple[tuple[str, ...], ModuleRemoval]:
    """The block paths and the removal of a plan file; raises `PlanFileError` for any other content."""
    blocks = tuple(_path(path) for path in _list(document.get("blocks"), "blocks"))
    modules = tuple(_module(entry) for entry in _list(document.get("removed"), "removed"))
    if not modules or len({each.path for each in modules}) != len(modules):
        raise PlanFileError("no module is removed, or one twice")
    followers = document.get("followers")
    if not isinstance(followers, dict):
        raise PlanFileError("followers are not an object")
    attributes = {_attribute(path): _pair(path, pair) for path, pair in followers.items()}
    moved = tuple(map(_moved_module, _list(document.get("moved", []), "moved")))
    if len({each.path for each in moved}) != len(moved):
        raise PlanFileError("a module moves twice")
    return blocks, ModuleRemoval(modules, attributes, moved)


# ----------------------------------------------------------------- stand-ins


def _placeholder_document(placeholder: Placeholder) -> JsonObject:
    return {
        "zeros": placeholder.gives_zeros,
        "argument": [placeholder.argument.position, placeholder.argument.keyword],
        "result": _result_document(placeholder.result),
    }


def _result_document(result: Result) -> JsonValue:
    return [_result_document(part) if isinstance(part, tuple) else part for part in result] if isinstance(
        result, tuple) else result  # fmt: skip


def _module(entry: JsonValue) -> RemovedModule:
    if not isinstance(entry, dict):
        raise PlanFileError("a removed module is not an object")
    path, value = _path(entry.get("path")), entry.get("stand_in")
    if value is None:
        return RemovedModule(path)
    gives_zeros = value.get("zeros") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(gives_zeros, bool):
        raise PlanFileError(f"what stands for {printable(path)} is neither zeros nor its input")
    argument = Argument(*_argument(_list(value.get("argument"), "argument")))
    return RemovedModule(path, Placeholder(gives_zeros, argument, _result(value.get("result"), 0)))


def _moved_module(entry: JsonValue) -> MovedModule:
    paths = _list(entry, "a module that moves")
    if len(paths) != 2:
        raise PlanFileError("a module that moves has not two paths")
    path, owner = map(_path, paths)
    return MovedModule(path, owner)


def _argument(value: list[JsonValue]) -> tuple[int | None, str | None]:
    if len(value) != 2:
        raise PlanFileError("an argument has a position and a keyword")
    position, keyword = value
    if type(position) is int and 0 <= position <= MAX_SIZE and keyword is None:
        return position, None
    if isinstance(keyword, str) and keyword.isidentifier() and len(keyword) <= MAX_NAME_LENGTH and position is None:
        return None, keyword
    raise PlanFileError("an argument is named by a position or a keyword")


def _result(value: JsonValue, depth: int) -> Result:
    if value is None or value == OUTPUT:
        return None if value is None else OUTPUT
    parts = _list(value, "a result")
    if depth == MAX_DEPTH or not parts or len(parts) > MAX_PARTS:
        raise PlanFileError("a result is nested too deep, or empty")
    kind, *inside = parts
    if kind == ARGUMENT:
        return (ARGUMENT, *_argument(inside))
    if kind not in (TUPLE, LIST):
        raise PlanFileError("a result is not a tuple, list or argument")
    return (kind, *(_result(part, depth + 1) for part in inside))


# ---------------------------------------------------------------- attributes


def _attribute(path: JsonValue) -> str:
    name = _path(path)
    if any(part.startswith("__") for part in name.split(".")):
        raise PlanFileError(f"{printable(name)} is not an attribute that holds a count")
    return name


def _plain(value: JsonValue) -> JsonValue:
    return {"tuple": list(value)} if isinstance(value, tuple) else value


def _pair(path: str, pair: JsonValue) -> tuple[JsonValue, JsonValue]:
    both = _list(pair, path)
    if len(both) != 2:
        raise PlanFileError(f"{printable(path)} has not two values")
    before, after = map(_value, both)
    if type(before) is not type(after):
        raise PlanFileError(f"{printable(path)} changes its kind")
    return before, after


def _value(value: JsonValue) -> JsonValue:
    """A count, a flag, or a list by layer of counts, flags or text."""
    if type(value) is bool or (type(value) is int and 0 <= value <= MAX_SIZE):
        return value
    if isinstance(value, dict):
        return tuple(_parts(value.get("tuple")))
    return _parts(value)


def _parts(value: JsonValue) -> list[JsonValue]:
    parts = _list(value, "a list by layer")
    for part in parts:
        if type(part) is str and len(part) <= MAX_NAME_LENGTH:
            continue
        if not (type(part) is bool or (type(part) is int and -MAX_SIZE <= part <= MAX_SIZE)):
            raise PlanFileError("a list by layer holds no counts, flags or text")
    return parts


# --------------------------------------------------------------------- parts


def _path(value: JsonValue) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH or not all(value.split(".")):
        raise PlanFileError("a path is not text, or has empty parts")
    return value


def _list(value: object, name: str) -> list[JsonValue]:
    if not isinstance(value, list):
        raise PlanFileError(f"{printable(name)} is not a list")
    return value
