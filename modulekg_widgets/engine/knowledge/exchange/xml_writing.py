"""GraphML, and GEXF for Gephi, as networkx writes them: the same elements, attributes and types, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import networkx as nx

from modulekg_widgets.engine.knowledge.exchange.flat import header, said_once, xml_escaped
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes, Writable
from modulekg_widgets.engine.knowledge.exchange.quick_json import value_text

_SPACES = 'xmlns="{0}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="{0} {1}"'
_GRAPHML = _SPACES.format(
    "http://graphml.graphdrawing.org/xmlns", "http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd"
)
_GEXF = _SPACES.format("http://www.gexf.net/1.2draft", "http://www.gexf.net/1.2draft/gexf.xsd")
_TYPES: dict[type, str] = {bool: "boolean", int: "long", float: "double"}  # a text is of any other
_TEXT = frozenset((str,))
_Written: TypeAlias = Callable[[Any, str], str]  # by a value and its name
_OF_GEXF = {"True": "true", "False": "false", "inf": "INF", "-inf": "-INF", "nan": "NaN"}


def graphml(graph: Writable) -> Iterator[str]:
    """GraphML with every node's attributes; dictionaries and lists are JSON text."""
    keys, text = _Keys(), _each_once(_plain)
    of_graph = _data(keys.of("graph", "    "), header(graph), text)
    of_node, of_edge = keys.of("node", "      "), keys.of("edge", "      ")
    names = {key: _quoted(xml_escaped(key)) for key in graph.nodes}
    # the keys stand first and are known last
    body = [
        _element("    ", f"node id={names[key]}", "node", _data(of_node, data, text))
        for key, data in graph.nodes.items()
    ]
    inner = said_once(lambda data: _data(of_edge, data, text))
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


def gexf(graph: Writable) -> Iterator[str]:
    """GEXF 1.2 for Gephi; an edge's `type` is called `relation`, since GEXF means another thing by it."""
    columns, text = _Columns(), _each_once(_quoted)
    of_node, of_edge = columns.of("node"), columns.of("edge")
    names = {key: _quoted(xml_escaped(key)) for key in graph.nodes}
    nodes = [
        _element("      ", _labelled(names[key], data.get("name", key)), "node", _values(of_node, data, text))
        for key, data in graph.nodes.items()
    ]
    inner = said_once(lambda data: _values(of_edge, _without_type(data), text))
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


class _Openings(dict[tuple[str, str], str]):
    """How the line of an attribute begins, by its name and type; made where it occurs first."""

    def __init__(self, opening: Callable[[str, str], str]) -> None:
        super().__init__()
        self.opening = opening

    def __missing__(self, attribute: tuple[str, str]) -> str:
        self[attribute] = found = self.opening(*attribute)
        return found


# ------------------------------------------------------------------ GraphML


class _Keys:
    """The declared attributes by scope, name and type, in the order in which they occur first."""

    def __init__(self) -> None:
        self.declared: list[tuple[str, str, str]] = []

    def of(self, scope: str, indent: str) -> _Openings:
        def opening(name: str, kind: str) -> str:
            self.declared.append((scope, name, kind))
            return f'{indent}<data key="d{len(self.declared) - 1}"'

        return _Openings(opening)


def _data(openings: _Openings, data: Attributes, written: _Written) -> str:
    lines: list[str] = []
    for name, value in data.items():
        if value is not None:
            kind = _TYPES.get(type(value), "string")
            text = written(value, name) if kind == "string" else str(value)
            opening = openings[name, kind]
            lines.append(f"{opening}>{text}</data>\n" if text else f"{opening} />\n")
    return "".join(lines)


# ------------------------------------------------------------------ GEXF


class _Columns:
    """The attributes by scope and name, each of which is one column, and the types of their values."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[str, str], set[str]] = {}

    def of(self, scope: str) -> _Openings:
        def opening(name: str, kind: str) -> str:
            self.kinds.setdefault((scope, name), set()).add(kind)
            return f'          <attvalue for="{list(self.kinds).index((scope, name))}" value='

        return _Openings(opening)

    def heads(self, scope: str) -> Iterator[str]:
        found = [(at, name, kinds) for at, ((owner, name), kinds) in enumerate(self.kinds.items()) if owner == scope]
        if found:
            yield f'    <attributes mode="static" class="{scope}">'
            for at, name, kinds in found:
                yield f'      <attribute id="{at}" title={_quoted(name)} type="{_kind_of_all(kinds)}" />'
            yield "    </attributes>"


def _kind_of_all(kinds: set[str]) -> str:
    return min(kinds) if len(kinds) == 1 else "double" if kinds == {"long", "double"} else "string"


def _labelled(name: str, label: Any) -> str:
    return f"node id={name} label={_quoted(xml_escaped(str(label)))}"


def _without_type(data: Attributes) -> Attributes:
    return {"relation" if name == "type" else name: value for name, value in data.items()}


def _values(openings: _Openings, data: Attributes, written: _Written) -> str:
    lines: list[str] = []
    for name, value in data.items():
        if value is not None:
            kind = _TYPES.get(type(value), "string")
            text = written(value, name) if kind == "string" else f'"{_OF_GEXF.get(str(value), value)}"'
            lines.append(f"{openings[name, kind]}{text} />\n")
    return f"        <attvalues>\n{''.join(lines)}        </attvalues>\n" if lines else ""


# ------------------------------------------------------------------ texts


def _each_once(write: Callable[[str], str]) -> _Written:
    """`write` for the text of a value; texts and lists of texts, which many nodes have in common, are written once."""
    known: dict[str | tuple[str, ...], str] = {}

    def text(value: Any, name: str) -> str:
        kind = type(value)
        if kind is not str and (kind is not list or not _TEXT.issuperset(map(type, value))):
            return write(value_text(value, name))
        key = value if kind is str else tuple(value)
        found = known.get(key)
        if found is None:
            found = known[key] = write(xml_escaped(value) if kind is str else value_text(value, name))
        return found

    return text


def _plain(text: str) -> str:
    """A text between tags, in ASCII."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text if text.isascii() else text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _quoted(text: str) -> str:
    """A text as an attribute, which ends no line and has no tabs."""
    return f'"{_plain(text).replace(chr(34), "&quot;")}"'
