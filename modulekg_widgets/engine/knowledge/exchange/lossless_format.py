"""Parts that the lossless formats share: escaped names, a header with version, and a checked graph builder."""

from __future__ import annotations

import re
from collections.abc import Callable

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, a_type, printable
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes, GraphLike

FORMAT = "modulekg"
VERSION = 1  # of the meaning of what is written
MAX_CONTAINERS = 10_000_000  # lists and objects of one file, which take more memory than room
MAX_VALUES = MAX_CONTAINERS  # of one attribute of a node
# attributes that are no text and no number are JSON text in an XML file, and terms of their own in JSON-LD
STRUCTURED_ATTRIBUTES = frozenset({
    "bases", "calls", "contains", "dataflow", "feeds", "history", "hyperparameters", "inputs", "models", "module_flops",
    "occurrences", "operators", "order", "properties", "runs", "slots", "tensors", "trains", "uses",
})  # fmt: skip
# what XML forbids or changes, what ends a line in some reader, and the backslash that marks what was replaced
_UNSAFE = re.compile("[\\\\\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4}))?")


def xml_escaped(text: str) -> str:
    """`text` with `\\uXXXX` for a backslash and for what XML cannot hold; `xml_unescaped` gives it back."""
    if text.isprintable() and "\\" not in text:  # which all of those are not
        return text
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def xml_unescaped(text: str) -> str:
    """The text that `xml_escaped` wrote; raises `GraphFileError`."""
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    if match[1] is None:
        raise GraphFileError("a text has a backslash without the four digits of a character")
    return chr(int(match[1], 16))


def describe_value(value: object) -> str:
    """Returns a text as it is, and only the type of other values, which may be nested without end."""
    return repr(printable(value)) if type(value) is str else a_type(value)


def cache_edge_text(write: Callable[[Attributes], str]) -> Callable[[Attributes], str]:
    """Wraps `write` so that equal containment edges are written once."""
    known: dict[tuple[int, ...], str] = {}

    def text(data: Attributes) -> str:
        order = data.get("order")
        if type(order) is not tuple or data != {"type": "contains", "count": len(order), "order": order}:
            return write(data)
        if order not in known:
            known[order] = write(data)
        return known[order]

    return text


def header(graph: GraphLike) -> Attributes:
    return {"format": FORMAT, "version": VERSION, "scheme": graph.graph.get("scheme", "structure")}


class GraphAssembly:
    """Builds a graph node by node from a file whose parts may be forged."""

    def __init__(self, found: Attributes) -> None:
        if found.get("format") != FORMAT:
            raise GraphFileError("it was not written by modulekg-widgets: there is no format 'modulekg' in its head")
        version = found.get("version")
        if type(version) is not int or version < 1:
            raise GraphFileError(f"its version is {describe_value(version)}, not a whole number from 1")
        if version > VERSION:
            raise GraphFileError(
                f"it has version {version}, and this program reads up to {VERSION}: update modulekg-widgets"
            )
        self.graph = nx.DiGraph(scheme=found.get("scheme"))

    def add_node(self, key: object, attributes: Attributes) -> None:
        if type(key) is not str:
            raise GraphFileError(f"a node's id is {describe_value(key)}, not a text")
        if key in self.graph:
            raise GraphFileError(f"the node {printable(key)!r} is there twice")
        self.graph.add_nodes_from([(key, attributes)])

    def add_edge(self, start: object, end: object) -> None:
        """Adds an edge without attributes, which follow from the nodes."""
        for key in (start, end):
            if type(key) is not str or key not in self.graph:
                raise GraphFileError(f"an edge leads to {describe_value(key)}, which is not a node of the file")
        self.graph.add_edge(start, end)
