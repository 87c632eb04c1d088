"""The code of classes and functions that no import leads back to: notebook cells, local classes, lambdas.

The code counts as its syntax tree without comments, docstrings, positions and addresses, which is the same in every
Python that we support; where no source can be found for it (`exec`), as its bytecode with constants and names in place.
"""

from __future__ import annotations

import ast
import dis
import linecache
import types
from typing import Any

from modulekg_widgets.engine.identity.encoding import Encoder, class_dict, packed, slot_members, text

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


def class_body(encoder: Encoder, cls: type) -> list[bytes]:
    """The bases of a class and everything that its body defined."""
    slots = {name for name, _ in slot_members(cls)}
    parts = [encoder.class_reference(base) for base in type.__dict__["__bases__"].__get__(cls)]
    for name, value in sorted(class_dict(cls).items(), key=lambda item: text(item[0])):
        if name not in _CLASS_BOOKKEEPING and name not in slots:
            parts += [text(name), _quietly(encoder, value, name)]
    return parts


def _quietly(encoder: Encoder, value: Any, path: str) -> bytes:
    # what is opaque in a class is the same for all its instances: it is no path of the module
    before = len(encoder.opaque)
    try:
        return encoder.encode(value, path)
    finally:
        del encoder.opaque[before:]


def encode_function(encoder: Encoder, function: types.FunctionType, path: str) -> bytes:
    """A function by its code, defaults and the values that its closure holds."""
    cells = [_cell_value(encoder, cell, path) for cell in function.__closure__ or ()]
    defaults = (function.__defaults__, function.__kwdefaults__)
    return packed(b"L", normalised_code(function.__code__), *(encoder.encode(d, path) for d in defaults), *cells)


def _cell_value(encoder: Encoder, cell: types.CellType, path: str) -> bytes:
    try:
        return encoder.encode(cell.cell_contents, path)
    except ValueError:  # an empty cell
        return b"-"


def normalised_code(code: types.CodeType) -> bytes:
    """The code as its syntax tree where the source is at hand and fits, else as normalised bytecode."""
    try:
        node = _source_node(code)
        return _encode_bytecode(code) if node is None else _encode_syntax(node)
    except RecursionError:  # a generated expression of a thousand terms
        return packed(b"z", code.co_code)


def _source_node(code: types.CodeType) -> ast.AST | None:
    """The one function or lambda of the source that this code object was compiled from, if it can be told."""
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    found = [node for node in ast.walk(tree) if _compiles_to(node, code)]
    return found[0] if len(found) == 1 else None


def _compiles_to(node: ast.AST, code: types.CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        name, first_line = "<lambda>", node.lineno
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        name, first_line = node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])
    else:
        return False
    if (name, first_line) != (code.co_name, code.co_firstlineno):
        return False
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


def _encode_syntax(node: object) -> bytes:
    if isinstance(node, ast.AST):
        parts = [text(type(node).__name__)]
        for field, value in ast.iter_fields(node):
            if field in ("ctx", "kind", "type_comment") or value is None or value == []:
                continue  # absent in one Python version, empty in another
            if field == "body" and isinstance(value, list):
                value = _without_docstring(node, value)
            parts += [text(field), _encode_syntax(value)]
        return packed(b"a", *parts)
    if isinstance(node, list):
        return packed(b"l", *(_encode_syntax(part) for part in node))
    return Encoder().encode(node, "")


def _without_docstring(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    documented = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    return body[1:] if documented and ast.get_docstring(node, clean=False) is not None else body


def _encode_bytecode(code: types.CodeType) -> bytes:
    """Instructions with their arguments in place: independent of line numbers, docstrings and the order of constants."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE", "NOP")]
    position = {instruction.offset: n for n, instruction in enumerate(instructions)}
    encoder = Encoder()
    parts: list[bytes] = []
    for instruction in instructions:
        value = instruction.argval
        if instruction.opcode in dis.hasjabs or instruction.opcode in dis.hasjrel:
            value = position.get(value, -1)
        elif isinstance(value, types.CodeType):
            parts += [text(instruction.opname), normalised_code(value)]
            continue
        parts += [text(instruction.opname), encoder.encode(value, "")]
    signature = (code.co_name, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & 0x0C)
    handlers = code.co_exceptiontable if hasattr(code, "co_exceptiontable") else b""
    return packed(b"x", encoder.encode(signature, ""), handlers, *parts)
