"""Sizes that are literal numbers in the code of a view: no cut changes these, so their axes are fixed.

In `x.view(2, 8, -1)` the 2 and the 8 are literals, while `x.size(0)` and `self.width` follow what they are read from.
A dry run would find such sizes one at a time; the syntax tree of the call shows all of them in advance.
"""

from __future__ import annotations

import ast
import linecache
import operator as operators
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from modulekg_widgets.engine.operators.recorded_call import RecordedCall
from modulekg_widgets.engine.tracing.source import Source

VIEWS = {"view", "reshape", "unflatten"}  # as Python has them
SPREAD = "*"  # in the place of any number of sizes
Asked = int | str | None  # a number in the code, `SPREAD`, or None for what is computed
_COMPUTED: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operators.add, ast.Sub: operators.sub, ast.Mult: operators.mul, ast.FloorDiv: int.__floordiv__,
}  # fmt: skip
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _View(NamedTuple):
    """The literal sizes in a call of a view; for `unflatten`, those in place of one dimension."""

    asked: tuple[Asked, ...]
    dim: int | None  # the dimension that is taken apart, None where all are given


_Ends = dict[tuple[int, int], _View]  # by the line and the column where the call ends
_files: dict[str, tuple[Any, _Ends]] = {}  # by name: the lines that were parsed, and their views


def literal_sizes(operator: RecordedCall, shape: Sequence[int]) -> list[int]:
    """Returns the dimensions of a view's result whose size is a literal number in the source code."""
    source: Source | None = getattr(operator, "source", None)
    end = None if source is None else source.end
    view = None if source is None or end is None else _views_of(source.file).get(end)
    return [] if view is None else _numbers(view, shape)


def _numbers(view: _View, shape: Sequence[int]) -> list[int]:
    """The dimensions for which a view in the code has numbers; none where these are not those of the shape."""
    asked = list(view.asked)
    start = 0
    if view.dim is not None:
        rest = len(shape) - len(asked) + 1  # dimensions before it was taken apart
        if SPREAD in asked or not -rest <= view.dim < rest:
            return []
        start = view.dim % rest
    elif SPREAD in asked:
        at = asked.index(SPREAD)
        missing = len(shape) - len(asked) + 1
        if missing < 0 or SPREAD in asked[at + 1 :]:
            return []
        asked[at : at + 1] = [None] * missing
    elif len(asked) != len(shape):
        return []
    numbers = [(start + at, size) for at, size in enumerate(asked) if isinstance(size, int) and size != -1]
    return [at for at, _ in numbers] if all(shape[at] == size for at, size in numbers) else []


def _views_of(file: str) -> _Ends:
    """The views in a file that have numbers among their sizes; none where its code cannot be read."""
    lines = linecache.getlines(file)
    known = _files.get(file)
    if known is None or known[0] is not lines:
        try:
            found = _Views(ast.parse("".join(lines))).found
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found = {}
        known = _files[file] = lines, found
    return known[1]


class _Views(ast.NodeVisitor):
    """Walks through code, and knows which names are numbers where."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: _Ends = {}
        self._scopes = [_bindings(tree)]
        self.visit(tree)

    def visit_FunctionDef(self, node: _Scope) -> None:
        self._scopes.append(_bindings(node))
        self.generic_visit(node)
        self._scopes.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_FunctionDef(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS:
            view = self._view(node, node.func.attr == "unflatten")
            if view is not None and any(isinstance(size, int) and size != -1 for size in view.asked):
                self.found[node.end_lineno or 0, node.end_col_offset or 0] = view

    def _view(self, node: ast.Call, is_unflatten: bool) -> _View | None:
        args = [*node.args, *(each.value for each in node.keywords if each.arg in ("shape", "size", "sizes"))]
        listed = args[-1] if args and isinstance(args[-1], ast.Tuple | ast.List) else None
        dim = None
        if is_unflatten:
            named = [each.value for each in node.keywords if each.arg == "dim"]
            place = named or args[-2:-1]
            dim = self._number(place[0]) if place else None
            if dim is None or listed is None:
                return None
        sizes = args if listed is None else listed.elts
        asked = tuple(SPREAD if isinstance(size, ast.Starred) else self._number(size) for size in sizes)
        return _View(asked, dim)

    def _number(self, node: ast.expr) -> int | None:
        """Evaluates an expression of integer literals and names bound once to such; None for others."""
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._number(node.operand)
            return None if value is None else -value
        if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
            left, right = self._number(node.left), self._number(node.right)
            if left is None or right is None or (right == 0 and isinstance(node.op, ast.FloorDiv)):
                return None
            return _COMPUTED[type(node.op)](left, right)
        if isinstance(node, ast.Name):
            given = next((scope[node.id] for scope in reversed(self._scopes) if node.id in scope), None)
            return given.value if isinstance(given, ast.Constant) and type(given.value) is int else None
        return None


def _bindings(scope: ast.Module | _Scope) -> dict[str, ast.expr | None]:
    """Returns the names bound in a scope, with the value of those that are assigned once."""
    found: dict[str, ast.expr | None] = {}
    if not isinstance(scope, ast.Module):
        args = scope.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        found.update(dict.fromkeys(each.arg for each in every))
    if isinstance(scope, ast.Lambda):
        return found
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            found[name] = node.value if name not in found else None
            waiting.append(node.value)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = None
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(dict.fromkeys(node.names))
        elif not isinstance(node, ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
    return found
