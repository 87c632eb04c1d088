"""The names that a function's code reads and writes, from its bytecode.

`nested_code(code)` lists a code object and those of the functions and classes inside it; `code_names(code)` tells the
names in one of them. Both are cached by the code, so that asking again costs a lookup. Isolated runs learn here which
globals they must copy, traces which attributes a forward may assign, fingerprints which globals a function depends on.
`has_unused_result(code, at)` tells a call that is a statement of its own, as `x.add_(1)`.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import NamedTuple

_READS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}
_WRITES_GLOBAL = {"STORE_GLOBAL", "DELETE_GLOBAL"}
_READS_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_USES_ATTRIBUTE = {*_READS_ATTRIBUTE, "LOAD_SUPER_ATTR", "STORE_ATTR"}
_WRITES_ITEM = {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}


class CodeNames(NamedTuple):
    """The names in one code object, without those in the functions and classes inside it."""

    globals_read: tuple[str, ...]  # in the order of their first use
    globals_written: tuple[str, ...]
    attributes: frozenset[str]  # that are read, called or assigned
    attributes_stored: frozenset[str]
    attributes_deleted: frozenset[str]
    attributes_of: frozenset[tuple[str, str]]  # read or called, each after the name it is read from
    texts: frozenset[str]  # constants that may be names, as `getattr` takes them
    writes_items: bool


@lru_cache(maxsize=1 << 14)
def code_names(code: CodeType) -> CodeNames:
    """Returns the names in one code object."""
    names: dict[str, list[str]] = {}  # by what is done with them
    attributes_of: set[tuple[str, str]] = set()
    before: object = None
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        names.setdefault(operation, []).append(name)
        if operation in _READS_ATTRIBUTE:
            attributes_of.add((_last_name(before), name))
        before = name
    return CodeNames(
        _names_under(names, _READS_GLOBAL),
        _names_under(names, _WRITES_GLOBAL),
        frozenset(_names_under(names, _USES_ATTRIBUTE)),
        frozenset(names.get("STORE_ATTR", ())),
        frozenset(names.get("DELETE_ATTR", ())),
        frozenset(attributes_of),
        frozenset(text for text in code.co_consts if isinstance(text, str) and text.isidentifier()),
        not _WRITES_ITEM.isdisjoint(names),
    )


def _names_under(names: dict[str, list[str]], operations: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for operation, those in names.items() if operation in operations for name in those))


def _last_name(argument: object) -> str:
    """The name that an instruction puts on the stack; since Python 3.13 one may name two variables."""
    last = argument[-1] if isinstance(argument, tuple) and argument else argument
    return last if isinstance(last, str) else ""


@lru_cache(maxsize=1 << 14)
def nested_code(code: CodeType) -> tuple[CodeType, ...]:
    """Returns a code object and those of all functions and classes inside it, from the outside in."""
    inner = [nested_code(part) for part in code.co_consts if isinstance(part, CodeType)]
    return (code, *(each for parts in inner for each in parts))


@lru_cache(maxsize=4096)
def has_unused_result(code: CodeType, at: int) -> bool:
    """True if the call at a bytecode offset is a statement, whose result is discarded."""
    instructions = list(dis.get_instructions(code))
    following = next((number for number, one in enumerate(instructions, 1) if one.offset == at), len(instructions))
    return following < len(instructions) and instructions[following].opname == "POP_TOP"


def closure_values(function: FunctionType) -> Iterator[object]:
    """Yields what the cells of a function's closure hold."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # empty, as of a function that is not defined yet
