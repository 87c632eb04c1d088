"""Encoding of functions and classes that cannot be imported: notebook cells, local classes, lambdas.

The code counts as its syntax tree without comments, docstrings, positions and addresses, which is the same in every
Python that we support; where no source can be found for it (`exec`), as its bytecode with constants and names in place.
The values that it reaches count as well: defaults, closures, and the global variables and functions that it names.
"""

from __future__ import annotations

import ast
import dis
import enum
import linecache
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Protocol, cast

from modulekg_widgets.engine.identity.classes import (
    WRAPPED_FUNCTIONS,
    class_dict,
    class_mro,
    instance_state,
    slot_members,
)
from modulekg_widgets.engine.identity.encoding.packing import packed, text
from modulekg_widgets.engine.torch_runtime.bytecode import code_names, nested_code

FunctionNode = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef


class ValueEncoder(Protocol):
    """Protocol of the encoder that code calls for its constants, defaults, closures and bases."""

    opaque: list[str]

    def encode(self, value: object, path: str) -> bytes: ...
    def class_reference(self, cls: type) -> bytes: ...
    def fresh(self) -> ValueEncoder: ...


# what Python itself puts into a class; it differs from version to version and says nothing of what the class does
# fmt: off
_CLASS_BOOKKEEPING = frozenset(
    {
        "__module__", "__dict__", "__weakref__", "__doc__", "__qualname__",
        "__firstlineno__", "__static_attributes__", "__annotations__", "__annotate__", "__annotate_func__",
        "__annotations_cache__", "__classdictcell__", "__abstractmethods__", "_abc_impl", "__type_params__",
        "__parameters__", "__orig_bases__", "__slotnames__", "__match_args__", "__dataclass_fields__",
        "__dataclass_params__",
    }
)
# fmt: on


def class_body(encoder: ValueEncoder, cls: type) -> list[bytes]:
    """The bases of a class and everything that its body defined."""
    parts = [encoder.class_reference(base) for base in type.__dict__["__bases__"].__get__(cls)]
    for name, value in sorted(_defined(cls).items(), key=lambda item: text(item[0])):
        parts += [text(name), _encode_member(encoder, value, name)]
    return parts


def _defined(cls: type) -> dict[str, Any]:
    """Returns the namespace of a class without the entries that Python and decorators add."""
    namespace = class_dict(cls)
    slots = {name for name, _ in slot_members(cls)}
    defined = {n: v for n, v in namespace.items() if n not in _CLASS_BOOKKEEPING and n not in slots}
    if enum.Enum in class_mro(cls):
        members = namespace.get("_member_map_", {})
        written = {
            n: v for n, v in defined.items() if type(v) in _METHOD_TYPES and n not in members and not _is_enum_method(v)
        }
        return written | {"_member_map_": [(n, instance_state(m).get("_value_")) for n, m in members.items()]}
    if "__dataclass_fields__" in namespace:
        written = {n: v for n, v in defined.items() if not (n in _DATACLASS_METHODS and _is_generated(v))}
        fields = namespace["__dataclass_fields__"].values()
        return written | {"__dataclass_fields__": [(f.name, f.default, f.default_factory, f.kw_only) for f in fields]}
    if tuple in class_mro(cls) and "_fields" in namespace:
        return {n: v for n, v in defined.items() if n not in _NAMEDTUPLE_METHODS and n not in namespace["_fields"]}
    return defined


_METHOD_TYPES = frozenset({types.FunctionType, property, staticmethod, classmethod})
# fmt: off
_DATACLASS_METHODS = frozenset(
    {
        "__init__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__",
        "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__replace__",
    }
)
# fmt: on
_NAMEDTUPLE_METHODS = frozenset(
    {"__new__", "_make", "_replace", "__replace__", "__repr__", "_asdict", "__getnewargs__"}
)


def _is_enum_method(value: Any) -> bool:
    function = value.__func__ if isinstance(value, WRAPPED_FUNCTIONS) else value
    return isinstance(function, types.FunctionType) and function.__globals__.get("__name__") == "enum"


def _is_generated(value: object) -> bool:
    """True if a decorator made this method of a dataclass: from a string, or as a wrapper around that."""
    return type(value) is not types.FunctionType or (
        value.__code__.co_filename == "<string>" or value.__globals__.get("__name__") in ("dataclasses", "reprlib")
    )


def _encode_member(encoder: ValueEncoder, value: object, path: str) -> bytes:
    # what is opaque in a class is the same for all its instances: it is no path of the module
    before = len(encoder.opaque)
    try:
        return encoder.encode(value, path)
    finally:
        del encoder.opaque[before:]


def encode_function(encoder: ValueEncoder, function: types.FunctionType, path: str) -> bytes:
    """A function by its code, defaults and the values that its closure holds and its code finds under global names."""
    cells = [_cell_value(encoder, cell, path) for cell in function.__closure__ or ()]
    defaults = (function.__defaults__, function.__kwdefaults__)
    home, name = function.__globals__.get("__name__"), function.__code__.co_name
    root = home.partition(".")[0] if type(home) is str else ""
    if name != "<lambda>" and (root == "torch" or root in sys.stdlib_module_names):
        # what a decorator of theirs wraps around a method: an upgrade must not change identities
        parts = [packed(b"h", text(str(home)), text(name))]
        following: Iterator[bytes] = iter(())
    else:
        parts = [normalised_code(encoder, function.__code__)]
        following = _global_values(encoder, function, path)
    return packed(b"L", *parts, *(encoder.encode(d, path) for d in defaults), *cells, *following)


def _global_values(encoder: ValueEncoder, function: types.FunctionType, path: str) -> Iterator[bytes]:
    """The global variables that a function reads, without builtins; a name that has no value yet does not count."""
    scope = function.__globals__
    for name in _global_names(function.__code__):
        if name in scope:
            yield packed(b"G", text(name), encoder.encode(scope[name], path))


@lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names that code and the functions and classes inside it look up as global variables, sorted."""
    names = {name for part in nested_code(code) for name in code_names(part).globals_read}
    # `__name__`, `__file__`: where the code stands
    return tuple(sorted(name for name in names if not (name.startswith("__") and name.endswith("__"))))


def _cell_value(encoder: ValueEncoder, cell: types.CellType, path: str) -> bytes:
    try:
        return encoder.encode(cell.cell_contents, path)
    except ValueError:  # an empty cell
        return b"-"


def normalised_code(encoder: ValueEncoder, code: types.CodeType) -> bytes:
    """The code as its syntax tree where the source is at hand and fits, else as normalised bytecode."""
    node = _source_node(code)
    return _encode_bytecode(encoder.fresh(), code) if node is None else _encode_syntax(encoder.fresh(), node)


def _source_node(code: types.CodeType) -> ast.AST | None:
    """The one function or lambda of the source that this code object was compiled from, if it can be told."""
    source = "".join(linecache.getlines(code.co_filename))
    candidates = _functions_of(source).get((code.co_name, code.co_firstlineno), ())
    found = [node for node in candidates if _compiles_to(node, code)]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=4)
def _functions_of(source: str) -> dict[tuple[str, int], list[FunctionNode]]:
    """The functions and lambdas of a file by name and first line."""
    found: dict[tuple[str, int], list[FunctionNode]] = {}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.setdefault((node.name, first), []).append(node)
    return found


def _compiles_to(node: FunctionNode, code: types.CodeType) -> bool:
    arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    # the file may have changed since it was loaded: the names that the code uses must stand in the source
    return arguments == list(code.co_varnames[:count]) and set(code.co_names) <= _names_in(node)


def _names_in(node: ast.AST) -> set[str]:
    names: set[str] = set()
    for part in ast.walk(node):
        for field in ("id", "attr", "name", "arg", "module"):
            value = getattr(part, field, None)
            if isinstance(value, str):
                names.add(value)
                names.update(value.split("."))
    return names


def _encode_syntax(encoder: ValueEncoder, root: ast.AST) -> bytes:
    # without recursion, since a generated expression of a thousand terms nests as deep; every node states its number of
    # parts, so that the tokens in a row can be read in one way only
    tokens: list[bytes] = []
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        label, node = waiting.pop()
        tokens.append(text(label))
        if isinstance(node, ast.AST):
            parts = list(_syntax_fields(node))
            tokens += [text(type(node).__name__), b"%d" % len(parts)]
        elif isinstance(node, list):
            parts = [("", part) for part in cast("list[object]", node)]
            tokens += [b"[]", b"%d" % len(parts)]
        else:
            parts = []
            tokens.append(encoder.encode(node, ""))
        waiting.extend(reversed(parts))
    return packed(b"a", *tokens)


def _syntax_fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for field, value in ast.iter_fields(node):
        if field == "body" and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield field, _without_docstring(node)
        elif field == "values" and isinstance(node, ast.JoinedStr):
            # Python 3.12 closes some format specifications with an empty text
            yield field, [part for part in node.values if not (isinstance(part, ast.Constant) and part.value == "")]
        elif field not in ("ctx", "kind", "type_comment") and value is not None and value != []:
            yield field, value  # what is absent in one Python version is empty in another


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.stmt]:
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return [statement for statement in body if not isinstance(statement, ast.Pass)]


def _encode_bytecode(encoder: ValueEncoder, code: types.CodeType) -> bytes:
    """Instructions with their arguments in place, without line numbers, docstrings and the order of constants."""
    instructions: list[dis.Instruction] = []
    position: dict[int, int] = {}
    for instruction in dis.get_instructions(code):
        position[instruction.offset] = len(instructions)
        if instruction.opname not in ("EXTENDED_ARG", "CACHE", "NOP"):
            instructions.append(instruction)
    parts: list[bytes] = []
    for instruction in instructions:
        value = instruction.argval
        if instruction.opcode in dis.hasjabs or instruction.opcode in dis.hasjrel:
            value = position.get(value, -1)
        elif isinstance(value, types.CodeType):
            parts += [text(instruction.opname), normalised_code(encoder, value)]
            continue
        parts += [text(instruction.opname), encoder.encode(value, "")]
    signature = (code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & 0x0C)
    handlers = getattr(code, "co_exceptiontable", b"")
    return packed(b"x", encoder.encode(signature, ""), handlers, *parts)
