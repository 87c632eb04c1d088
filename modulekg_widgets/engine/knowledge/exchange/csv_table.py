"""One CSV table of all nodes and edges; no cell of it is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import networkx as nx

from modulekg_widgets.engine.knowledge.property_values import encode

NODE_COLUMNS = (
    "type", "name", "class", "qualified_class", "count", "models", "parameters", "bytes", "flops", "accuracy",
    "convergence", "started", "ended", "hyperparameters", "properties",
)  # fmt: skip
COLUMNS = ("kind", "id", *NODE_COLUMNS, "source", "target")
# a cell that begins so is a formula, after blanks too; a semicolon or tab begins a cell where a list is cut by those
_FORMULA = re.compile("(^[\\s\0]*|[;|\t\r\n]\\s*)(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])")
_UNREADABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def csv_table(graph: nx.DiGraph) -> Iterator[str]:
    """A row per node, then a row per edge, told apart by `kind`; cells that do not apply are empty.

    `=`, `+`, `-`, `@`, TAB and CR at the beginning of a text stand behind an apostrophe.
    """
    yield _line(COLUMNS)
    for key, data in graph.nodes(data=True):
        yield _line(["node", cell(key), *(_value(data.get(column), column) for column in NODE_COLUMNS), "", ""])
    for start, end, data in graph.edges(data=True):
        known = {"type": data.get("type"), "count": data.get("count")}
        yield _line(
            ["edge", "", *(_value(known.get(column), column) for column in NODE_COLUMNS), cell(start), cell(end)]
        )


def cell(text: str) -> str:
    """`text` so that a spreadsheet shows it and runs nothing."""
    readable = _UNREADABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if readable[:1] in ("\t", "\r"):
        readable = "'" + readable
    return _FORMULA.sub(r"\1'", readable)


def _value(value: Any, column: str) -> str | int | float:
    if value is None:
        return ""
    if type(value) in (bool, int, float):
        return value
    if type(value) is str:
        return cell(value)
    return len(value) if column == "models" else cell(encode(value, column))


def _line(row: Any) -> str:
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="").writerow(row)
    return written.getvalue()
