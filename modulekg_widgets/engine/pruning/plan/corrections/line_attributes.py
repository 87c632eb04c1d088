"""Attributes that one line of a class's code reads."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType

from modulekg_widgets.engine.tracing.source import Source


@lru_cache(maxsize=1024)
def line_attributes(cls: type, source: Source) -> frozenset[str]:
    """The attribute names that the statement at a line reads; none for code of other files."""
    for function in _functions(cls):
        if function.__code__.co_filename == source.file and source.line in _lines(function.__code__):
            statement = _statement(function, source.line)
            return frozenset() if statement is None else frozenset(_attributes(statement))
    return frozenset()


def _functions(cls: type) -> Iterator[FunctionType]:
    for base in cls.__mro__:
        for value in vars(base).values():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            function = getattr(function, "__wrapped__", function)  # a decorator's
            if isinstance(function, FunctionType):
                yield function


def _lines(code: CodeType) -> set[int | None]:
    return {line for _, _, line in code.co_lines()}


def _statement(function: FunctionType, line: int) -> ast.stmt | None:
    """The innermost statement around a line."""
    try:
        text, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(text)))
    except (OSError, SyntaxError, TypeError):  # code without a file, or changed since
        return None
    at = line - first + 1
    around = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and each.lineno <= at <= _last_line(each)]
    return max(around, key=lambda each: (each.lineno, -_last_line(each)), default=None)


def _last_line(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _attributes(statement: ast.stmt) -> Iterator[str]:
    """The attribute names in a statement; for loops and conditions those in the head."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]
