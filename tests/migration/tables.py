"""The tables of docs/migration.md: their rows, and what a row's function must do to stand for it.

A test file has one `Table`, and under it one function for each row, keyed by the exact text of the left cell:
`@table("`graph.flops()`")`. The function must make the calls that the right cell shows in backticks, with the same
names, keywords and literals; that it makes them is read from its source.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

MIGRATION = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
CODE = re.compile(r"`([^`]+)`")
STRING = re.compile(r"""(["'])(.*?)\1""")
CHAIN = re.compile(r"(?<![\w.])mk(?:\.\w+)+")
ATTRIBUTE = re.compile(r"\.([A-Za-z_]\w*)")
CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\(")
KEYWORD = re.compile(r"""(?<![\w.])([A-Za-z_]\w*)=(?!=)(True|False|None|-?[\d_]+(?:\.\d+)?|(["']).*?\3)?""")

Function = Callable[..., None]
Cases = dict[str, Function]


class TableError(AssertionError):
    """A table that cannot be read, or a row that nothing stands for."""


class Row(NamedTuple):
    """The old call and the new one, as they stand in the document."""

    old: str
    new: str


def rows_under(heading: str, text: str | None = None) -> list[Row]:
    """The rows of all tables between `## heading` and the next heading of that rank, in order."""
    lines = (MIGRATION.read_text("utf-8") if text is None else text).splitlines()
    if f"## {heading}" not in lines:
        raise TableError(f"there is no heading {heading!r}")
    start = lines.index(f"## {heading}") + 1
    end = next((at for at in range(start, len(lines)) if lines[at].startswith("## ")), len(lines))
    rows = list(_rows(lines[start:end]))
    old = [row.old for row in rows]
    twice = sorted({cell for cell in old if old.count(cell) > 1})
    if twice or not rows:
        raise TableError(f"two rows begin alike: {twice}" if twice else f"under {heading!r} there is no table")
    return rows


def _rows(lines: list[str]) -> Iterator[Row]:
    for at, line in enumerate(lines):
        is_head = at + 1 < len(lines) and lines[at + 1].startswith("|---")
        if line.startswith("|") and not line.startswith("|---") and not is_head:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) != 2 or not all(cells):
                raise TableError(f"a row has two cells: {line}")
            yield Row(*cells)


# ------------------------------------------------------------- names in both


def shown_in(cell: str) -> set[str]:
    """What the code in a cell names: `mk.…` in full, attributes, calls, keywords with plain values, strings."""
    found: set[str] = set()
    for code in CODE.findall(cell):
        found |= {f"the string {text!r}" for _, text in STRING.findall(code) if "…" not in text}
        plain = STRING.sub('""', code)
        found |= set(CHAIN.findall(plain))
        found |= {f".{name}" for name in ATTRIBUTE.findall(plain)}
        found |= {f"{name}()" for name in CALL.findall(plain)}
        found |= {
            f"{name}={ast.literal_eval(value)!r}" if value else f"{name}=" for name, value, _ in KEYWORD.findall(code)
        }
    return found


def done_by(function: Function) -> set[str]:
    """The same of the body of a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    return {name for statement in body for node in ast.walk(statement) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield f".{node.attr}"
        yield ast.unparse(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield f"{node.func.id}()"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield f"the string {node.value!r}"
    elif isinstance(node, ast.keyword) and node.arg is not None:
        yield f"{node.arg}="
        yield f"{node.arg}={_plain(node.value)}"


def _plain(node: ast.expr) -> str:
    """A number, string or other literal as Python writes it, any other expression as it is."""
    try:
        return repr(ast.literal_eval(node))
    except ValueError:
        return ast.unparse(node)


# ------------------------------------------------------------------ the table


class Rows:
    """Functions by the left cell of their row."""

    def __init__(self) -> None:
        self.functions: Cases = {}

    def __call__(self, cell: str) -> Callable[[Function], Function]:
        """Make a function the one of the row whose left cell is `cell`; it may ask for fixtures."""

        def decorate(function: Function) -> Function:
            self.add({cell: function})
            return function

        return decorate

    def add(self, functions: Cases) -> None:
        twice = sorted(functions.keys() & self.functions.keys())
        if twice:
            raise TableError(f"two functions for the row {twice[0]}")
        self.functions.update(functions)


class Table(Rows):
    """The rows of one tool, and the functions that execute them; some may stand in `parts`, in other files."""

    def __init__(self, heading: str, *parts: Rows, text: str | None = None) -> None:
        super().__init__()
        self.rows = rows_under(heading, text)
        for part in parts:
            self.add(part.functions)

    def check(self, row: Row) -> Function:
        """The function of a row; raises `TableError` without one, or when it does not do what the row shows."""
        function = self.functions.get(row.old)
        if function is None:
            raise TableError(f"no function for the row {row.old}")
        missing = sorted(shown_in(row.new) - done_by(function))
        if missing:
            raise TableError(f"the function of {row.old} does not do: {', '.join(missing)}")
        return function

    def run(self, row: Row, **fixtures: Any) -> None:
        """Check the function of a row and call it with those of the fixtures that it asks for."""
        function = self.check(row)
        function(**{name: fixtures[name] for name in inspect.signature(function).parameters})

    def without_row(self) -> list[str]:
        """The left cells that functions were written for and no row has."""
        return [cell for cell in self.functions if cell not in {row.old for row in self.rows}]
