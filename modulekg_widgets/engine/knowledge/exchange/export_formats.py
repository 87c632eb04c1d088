"""Formats that are only written: a CSV table safe against formulas, Graphviz DOT, and csacademy's edge list."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from modulekg_widgets.engine.dot import Node, digraph, quoted, quoted_label
from modulekg_widgets.engine.knowledge.exchange.json_formats import value_text
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes, GraphLike
from modulekg_widgets.engine.knowledge.facts.property_values import MAX_ITEMS, PropertyValue

# -------------------- CSV table of all nodes and edges


NODE_COLUMNS = (
    "type", "name", "class", "qualified_class", "count", "models", "parameters", "bytes", "flops", "accuracy",
    "convergence", "started", "ended", "hyperparameters", "properties",
)  # fmt: skip
COLUMNS = ("kind", "id", *NODE_COLUMNS, "source", "target")
# a cell that begins so is a formula, after blanks too; a semicolon or tab begins a cell where a list is cut by those
_FORMULA = re.compile("(^[\\s\0]*|[;|\t\r\n]\\s*)(?=[=+\\-@\uff1d\uff0b\uff0d\uff20])")
_FORMULA_STARTS = frozenset(" =+-@\uff1d\uff0b\uff0d\uff20")  # of a printable text that may be one
_UNREADABLE = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def csv_table(graph: GraphLike) -> Iterator[str]:
    """A row per node, then a row per edge, told apart by `kind`; cells that do not apply are empty.

    `=`, `+`, `-`, `@`, TAB and CR at the beginning of a text stand behind an apostrophe.
    """
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(_rows(graph))
    yield written.getvalue().removesuffix("\n")


def _rows(graph: GraphLike) -> Iterator[Sequence[str | int | float]]:
    yield COLUMNS
    keys = {key: csv_cell(key) for key in graph.nodes}
    for key, data in graph.nodes.items():
        yield ["node", keys[key], *[_value(data.get(column), column) for column in NODE_COLUMNS], "", ""]
    before = [""] * NODE_COLUMNS[1:].index("count")  # an edge has a type and a count alone
    behind = [""] * NODE_COLUMNS[::-1].index("count")
    for start, ends in graph.adj.items():
        for end, data in ends.items():
            kind, count = _value(data.get("type"), "type"), _value(data.get("count"), "count")
            yield ["edge", "", kind, *before, count, *behind, keys[start], keys[end]]


def csv_cell(text: str) -> str:
    """Returns `text` so that a spreadsheet shows it and evaluates nothing."""
    if text.isprintable() and text[:1] not in _FORMULA_STARTS and ";" not in text and "|" not in text:
        return text
    readable = _UNREADABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if readable[:1] in ("\t", "\r"):
        readable = "'" + readable
    return _FORMULA.sub(r"\1'", readable)


def _value(value: PropertyValue, column: str) -> str | int | float:
    if value is None:
        return ""
    if type(value) in (bool, int, float):
        return value
    if type(value) is str:
        return csv_cell(value)
    return len(value) if column == "models" else csv_cell(value_text(value, column, MAX_ITEMS))


# -------------------- Graphviz DOT, and the edge list of csacademy's graph editor

# shapes of the nodes that are no module, which is a box
_SHAPES = {
    "Model": "box3d", "DataSet": "cylinder", "User": "house", "Job": "note", "Operator": "plain",
    "ModuleType": "ellipse",
}  # fmt: skip


def dot(graph: GraphLike) -> Iterator[str]:
    """Graphviz DOT: a box per structure with its number of occurrences, an edge per containment with its count.

    Other nodes have shapes of their own, and edges of other relations the name of the relation.
    """
    boxes = (Node(quoted(key), _node_attributes(key, data)) for key, data in graph.nodes.items())
    edges = (
        (quoted(start), quoted(end), _edge_attributes(data))
        for start, ends in graph.adj.items()
        for end, data in ends.items()
    )
    return digraph("ModuleKG", boxes, edges)


def _node_attributes(key: str, data: Attributes) -> dict[str, str]:
    label = {"label": quoted_label(_label(key, data))}
    shape = _SHAPES.get(data.get("type", ""))
    return label if shape is None else {**label, "shape": shape, "tooltip": quoted_label(data["type"])}


def _edge_attributes(data: Attributes) -> dict[str, str]:
    relation = data.get("type", "contains")
    if relation == "contains":
        return {"label": f'"{count}"'} if (count := data.get("count", 1)) > 1 else {}
    return {"label": quoted_label(str(relation)), "style": "dashed"}


def _label(key: str, data: Attributes) -> str:
    uses = data.get("count") or 1
    return str(data.get("name", key)) + (f" ×{uses}" if uses > 1 else "")


def csacademy(graph: GraphLike) -> Iterator[str]:
    """csacademy's graph editor: a line `from to` per edge and a line per node without edges; names hold no blanks."""
    names = _single_words(graph)
    linked = {key for start, ends in graph.adj.items() if ends for key in (start, *ends)}
    yield from (word for key, word in names.items() if key not in linked)
    for start, ends in graph.adj.items():
        for end in ends:
            yield f"{names[start]} {names[end]}"


def _single_words(graph: GraphLike) -> dict[str, str]:
    words: dict[str, str] = {}
    taken: set[str] = set()
    for key, data in graph.nodes.items():
        word = "".join(c if c.isprintable() and not c.isspace() else "_" for c in str(data.get("name", key))) or "_"
        while word in taken:
            word += "'"
        taken.add(word)
        words[key] = word
    return words
