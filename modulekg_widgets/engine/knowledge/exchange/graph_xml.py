"""Reader of GraphML, by expat without DTDs."""

from __future__ import annotations

import marshal
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from xml.parsers import expat

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, printable
from modulekg_widgets.engine.knowledge.exchange.json_formats import value_text
from modulekg_widgets.engine.knowledge.exchange.lossless_format import (
    MAX_CONTAINERS,
    MAX_VALUES,
    STRUCTURED_ATTRIBUTES,
    GraphAssembly,
    cache_edge_text,
    header,
    xml_escaped,
    xml_unescaped,
)
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes, GraphLike
from modulekg_widgets.engine.knowledge.facts.property_values import PropertyValue, decode

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"


def read_graphml(content: bytes) -> nx.DiGraph:
    """The graph that `graphml` wrote; raises `GraphFileError` for any other content."""
    if content.count(b"<") > 3 * MAX_CONTAINERS or content.count(b"[") + content.count(b"{") > MAX_CONTAINERS:
        raise GraphFileError(
            f"it has more than {MAX_CONTAINERS:,} lists and objects, or {3 * MAX_CONTAINERS:,} elements"
        )
    reader = _GraphMLReader()
    try:
        reader.parser.Parse(content, True)
    except expat.ExpatError as error:
        raise GraphFileError(f"it is not XML: {error}") from None
    return reader.graph()


class _GraphMLReader:
    """Parses graphml > graph > node or edge > data, and refuses other elements."""

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
        self.head: Attributes = {}
        self.nodes: list[tuple[str, Attributes]] = []
        self.edges: list[tuple[str, str]] = []
        self.owner: Attributes = {}  # what the <data> that is read belongs to
        self.data: str | None = None  # the key of that <data>
        self.pieces: list[str] = []

    def graph(self) -> nx.DiGraph:
        assembly = GraphAssembly(self.head)
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
                raise GraphFileError(f"it has a <{printable(self.path[-1])}> where none belongs")

    def _text(self, text: str) -> None:
        if self.data is not None:
            self.pieces.append(text)
        elif text.strip() and self.path[-1] not in ("desc", "default"):
            raise GraphFileError(f"it has the text {printable(text.strip(), 30)!r} where none belongs")

    def _end(self, name: str) -> None:
        self.path.pop()
        if self.data is None:
            return
        if self.data not in self.keys:
            raise GraphFileError(f"it has data of the key {printable(self.data)!r}, which is not declared")
        name, kind = self.keys[self.data]
        if self.path[-1] != "edge":  # nodes tell what edges say
            if name in self.owner:
                raise GraphFileError(f"a node has {printable(name)!r} twice")
            self.owner[name] = _parsed_value("".join(self.pieces), name, kind)
        self.data = None


def _needed(attributes: dict[str, str], name: str) -> str:
    if name not in attributes:
        raise GraphFileError(f"one of its elements has no {name!r}")
    return attributes[name]


def _parsed_value(text: str, name: str, kind: str) -> object:
    try:
        if kind in ("int", "long"):
            return int(text) if len(text) <= 20 else None
        if kind in ("float", "double"):
            return float(text)
        if kind == "boolean":
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        return decode(text, MAX_VALUES) if name in STRUCTURED_ATTRIBUTES else xml_unescaped(text)
    except (ValueError, KeyError) as error:
        raise GraphFileError(
            f"it has {printable(text, 40)!r} as {printable(name)!r}: {printable(str(error))}"
        ) from None


# -------------------- Writers of GraphML and GEXF with the same output as networkx


_NAMESPACES = 'xmlns="{0}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="{0} {1}"'
_GRAPHML = _NAMESPACES.format(
    "http://graphml.graphdrawing.org/xmlns", "http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd"
)
_GEXF = _NAMESPACES.format("http://www.gexf.net/1.2draft", "http://www.gexf.net/1.2draft/gexf.xsd")
_TYPES: dict[type, str] = {bool: "boolean", int: "long", float: "double"}  # a text is of any other
_WITHOUT_REFERENCES = 2  # a version of marshal's format, in which equal values are mostly the same bytes
_GEXF_TEXTS = {"True": "true", "False": "false", "inf": "INF", "-inf": "-INF", "nan": "NaN"}


def graphml(graph: GraphLike) -> Iterator[str]:
    """GraphML with every node's attributes; dictionaries and lists are JSON text."""
    keys = _Keys()
    of_graph = keys.lines("graph", "    ").lines_of(header(graph))
    of_node, of_edge = keys.lines("node", "      ").lines_of, keys.lines("edge", "      ").lines_of
    names = {key: _quoted(xml_escaped(key)) for key in graph.nodes}
    # the keys stand first and are known last
    body = [_element("    ", f"node id={names[key]}", "node", of_node(data)) for key, data in graph.nodes.items()]
    inner = cache_edge_text(of_edge)
    for start, ends in graph.adj.items():
        source = f"edge source={names[start]} target="
        body += [_element("    ", source + names[end], "edge", inner(data)) for end, data in ends.items()]
    yield f"<graphml {_GRAPHML}>"
    for at, (scope, name, kind) in reversed([*enumerate(keys.declared)]):
        yield f'  <key id="d{at}" for="{scope}" attr.name={_quoted(name)} attr.type="{kind}" />'
    yield '  <graph edgedefault="directed">'
    yield from body
    yield of_graph + "  </graph>"
    yield "</graphml>"


def gexf(graph: GraphLike) -> Iterator[str]:
    """GEXF 1.2 for Gephi; an edge's `type` is called `relation`, since GEXF means another thing by it."""
    columns = _Columns()
    of_node, of_edge = columns.lines("node").lines_of, columns.lines("edge").lines_of
    names = {key: _quoted(xml_escaped(key)) for key in graph.nodes}
    nodes = [
        _element("      ", _labelled(names[key], data.get("name", key)), "node", _gexf_values(of_node(data)))
        for key, data in graph.nodes.items()
    ]
    inner = cache_edge_text(lambda data: _gexf_values(of_edge(_without_type(data))))
    edges: list[str] = []
    for start, ends in graph.adj.items():
        source = f"edge source={names[start]} target="
        for end, data in ends.items():
            edges.append(_element("      ", f'{source}{names[end]} id="{len(edges)}"', "edge", inner(data)))
    yield f'<gexf {_GEXF} version="1.2">'
    # the same graph stays the same file as of before, which networkx wrote, and without a date on every day
    yield f"  <meta>\n    <creator>NetworkX {nx.__version__}</creator>\n  </meta>"
    yield '  <graph defaultedgetype="directed" mode="static" name="">'
    for scope in ("edge", "node"):
        yield from columns.heads(scope)
    yield from _group("nodes", nodes)
    yield from _group("edges", edges)
    yield "  </graph>"
    yield "</gexf>"


def _element(indent: str, opening: str, tag: str, inner: str) -> str:
    return f"{indent}<{opening}>\n{inner}{indent}</{tag}>" if inner else f"{indent}<{opening} />"


def _group(tag: str, elements: list[str]) -> Iterator[str]:
    if not elements:
        yield f"    <{tag} />"
        return
    yield f"    <{tag}>"
    yield from elements
    yield f"    </{tag}>"


class _Lines:
    """Attribute lines with a cache for values that many nodes have in common.

    `opening` makes how a line begins, of a name and the type of its value, where the two occur first.
    """

    def __init__(self, opening: Callable[[str, str], str], line: Callable[[str, object], str]) -> None:
        self.opening = cache(opening)
        self.line = line  # of how it begins and the value
        self.known: defaultdict[str, dict[str | bytes, str]] = defaultdict(dict)

    def lines_of(self, data: Attributes) -> str:
        """Returns the lines of all attributes that are not None."""
        return "".join([self._cached_line(name, value) for name, value in data.items() if value is not None])

    def _cached_line(self, name: str, value: object) -> str:
        key = value if type(value) is str else _cache_key(value)
        if key is None:
            return self._line(name, value)
        known = self.known[name]
        found = known.get(key)
        if found is None:
            found = known[key] = self._line(name, value)
        return found

    def _line(self, name: str, value: object) -> str:
        kind = _TYPES.get(type(value), "string")
        text = value if kind != "string" else xml_escaped(value) if type(value) is str else value_text(value, name)
        return self.line(self.opening(name, kind), text)


def _cache_key(value: PropertyValue) -> bytes | None:
    """Returns a cache key that separates 1, True and 1.0; None for values that are not plain."""
    try:
        return marshal.dumps(value, _WITHOUT_REFERENCES)
    except ValueError:
        return None


# ------------------------------------------------------------------ GraphML


class _Keys:
    """Declared attributes by scope, name and type, in order of appearance."""

    def __init__(self) -> None:
        self.declared: list[tuple[str, str, str]] = []

    def lines(self, scope: str, indent: str) -> _Lines:
        def opening(name: str, kind: str) -> str:
            self.declared.append((scope, name, kind))
            return f'{indent}<data key="d{len(self.declared) - 1}"'

        return _Lines(opening, _data)


def _data(opening: str, value: object) -> str:
    text = _plain(str(value))
    return f"{opening}>{text}</data>\n" if text else f"{opening} />\n"


# ------------------------------------------------------------------ GEXF


class _Columns:
    """Attributes by scope and name, one column each, with the types of their values."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[str, str], set[str]] = {}

    def lines(self, scope: str) -> _Lines:
        def opening(name: str, kind: str) -> str:
            self.kinds.setdefault((scope, name), set()).add(kind)
            return f'          <attvalue for="{list(self.kinds).index((scope, name))}" value='

        return _Lines(opening, _gexf_value)

    def heads(self, scope: str) -> Iterator[str]:
        found = [(at, name, kinds) for at, ((owner, name), kinds) in enumerate(self.kinds.items()) if owner == scope]
        if found:
            yield f'    <attributes mode="static" class="{scope}">'
            for at, name, kinds in found:
                yield f'      <attribute id="{at}" title={_quoted(name)} type="{_common_type(kinds)}" />'
            yield "    </attributes>"


def _common_type(kinds: set[str]) -> str:
    return min(kinds) if len(kinds) == 1 else "double" if kinds == {"long", "double"} else "string"


def _labelled(name: str, label: object) -> str:
    return f"node id={name} label={_quoted(xml_escaped(str(label)))}"


def _without_type(data: Attributes) -> Attributes:
    return {"relation" if name == "type" else name: value for name, value in data.items()}


def _gexf_value(opening: str, value: object) -> str:
    text = value if type(value) is str else _GEXF_TEXTS.get(str(value), str(value))
    return f"{opening}{_quoted(text)} />\n"


def _gexf_values(lines: str) -> str:
    return f"        <attvalues>\n{lines}        </attvalues>\n" if lines else ""


# ------------------------------------------------------------------ texts


def _plain(text: str) -> str:
    """A text between tags, in ASCII."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text if text.isascii() else text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _quoted(text: str) -> str:
    """A text as an attribute, which ends no line and has no tabs."""
    return f'"{_plain(text).replace(chr(34), "&quot;")}"'
