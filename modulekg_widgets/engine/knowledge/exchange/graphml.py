"""GraphML, read by expat without any DTD."""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, shown
from modulekg_widgets.engine.knowledge.exchange.flat import (
    MOST_PARTS,
    MOST_VALUES,
    STRUCTURED,
    Assembly,
    xml_unescaped,
)
from modulekg_widgets.engine.knowledge.property_values import decode

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"


def read_graphml(content: bytes) -> nx.DiGraph:
    """The graph that `graphml` wrote; raises `GraphFileError` for any other content."""
    if content.count(b"<") > 3 * MOST_PARTS or content.count(b"[") + content.count(b"{") > MOST_PARTS:
        raise GraphFileError(f"it has more than {MOST_PARTS:,} lists and objects, or {3 * MOST_PARTS:,} elements")
    reader = _GraphMLReader()
    try:
        reader.parser.Parse(content, True)
    except expat.ExpatError as error:
        raise GraphFileError(f"it is no XML: {error}") from None
    return reader.graph()


class _GraphMLReader:
    """Follows graphml > graph > node or edge > data, and refuses what may be more than it seems."""

    def __init__(self) -> None:
        # another encoding in the head of the file would be looked up among all codecs of Python
        self.parser = expat.ParserCreate("utf-8", " ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse_doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.path: list[str] = []
        self.keys: dict[str, tuple[str, str]] = {}  # id -> name and type
        self.head: dict[str, Any] = {}
        self.nodes: list[tuple[str, dict[str, Any]]] = []
        self.edges: list[tuple[str, str]] = []
        self.owner: dict[str, Any] = {}  # what the <data> that is read belongs to
        self.data: str | None = None  # the key of that <data>
        self.pieces: list[str] = []

    def graph(self) -> nx.DiGraph:
        assembly = Assembly(self.head)
        for key, attributes in self.nodes:
            assembly.add_node(xml_unescaped(key), attributes)
        for start, end in self.edges:
            assembly.add_edge(xml_unescaped(start), xml_unescaped(end))
        return assembly.graph

    def _refuse_doctype(self, *_: object) -> None:
        raise GraphFileError("it has a DTD, which GraphML needs none of")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.path.append(name.removeprefix(NAMESPACE + " "))
        match self.path:
            case ["graphml"] | ["graphml", "graph"]:
                self.owner = self.head
            case ["graphml", "key"]:
                self.keys[_needed(attributes, "id")] = _needed(attributes, "attr.name"), attributes.get("attr.type", "")
            case ["graphml", "graph", "node"]:
                self.owner = {}
                self.nodes.append((_needed(attributes, "id"), self.owner))
            case ["graphml", "graph", "edge"]:
                self.owner = {}
                self.edges.append((_needed(attributes, "source"), _needed(attributes, "target")))
            case ["graphml", "graph", "data"] | ["graphml", "graph", "node" | "edge", "data"]:
                if len(self.path) == 3:
                    self.owner = self.head
                self.data, self.pieces = _needed(attributes, "key"), []
            case ["graphml", "key", "default"] | ["graphml", ("key" | "graph"), "desc"] | ["graphml", "desc"]:
                pass
            case _:
                raise GraphFileError(f"it has a <{shown(self.path[-1])}> where none belongs")

    def _text(self, text: str) -> None:
        if self.data is not None:
            self.pieces.append(text)
        elif text.strip() and self.path[-1] not in ("desc", "default"):
            raise GraphFileError(f"it has the text {shown(text.strip(), 30)!r} where none belongs")

    def _end(self, name: str) -> None:
        self.path.pop()
        if self.data is None:
            return
        if self.data not in self.keys:
            raise GraphFileError(f"it has data of the key {shown(self.data)!r}, which is not declared")
        name, kind = self.keys[self.data]
        if self.path[-1] != "edge":  # nodes tell what edges say
            if name in self.owner:
                raise GraphFileError(f"a node has {shown(name)!r} twice")
            self.owner[name] = _value("".join(self.pieces), name, kind)
        self.data = None


def _needed(attributes: dict[str, str], name: str) -> str:
    if name not in attributes:
        raise GraphFileError(f"an element of it has no {name!r}")
    return attributes[name]


def _value(text: str, name: str, kind: str) -> Any:
    try:
        if kind in ("int", "long"):
            return int(text) if len(text) <= 20 else None
        if kind in ("float", "double"):
            return float(text)
        if kind == "boolean":
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return decode(text, MOST_VALUES) if name in STRUCTURED else xml_unescaped(text)
    except (ValueError, KeyError) as error:
        raise GraphFileError(f"it has {shown(text, 40)!r} as {shown(name)!r}: {shown(str(error))}") from None
