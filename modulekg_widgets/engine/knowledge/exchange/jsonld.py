"""JSON-LD 1.1 with an embedded context: terms of schema.org where they fit, own terms for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from urllib.parse import quote, unquote_to_bytes

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, printable
from modulekg_widgets.engine.json_types import JsonObject
from modulekg_widgets.engine.knowledge.exchange.json_text import (
    checked_list,
    comma_separated,
    json_line,
    object_text,
    parse_object,
    read_fields,
)
from modulekg_widgets.engine.knowledge.exchange.lossless_format import (
    STRUCTURED_ATTRIBUTES,
    GraphAssembly,
    describe_value,
    header,
)
from modulekg_widgets.engine.knowledge.exchange.property_graph import GRAPH_TYPES, Attributes, GraphLike, node_key

BASE = "urn:modulekg:"
RELATIONS = ("contains", "feeds", "calls", "runs", "uses", "trains", "isA", "subclassOf")
TYPES = {
    "Module": "schema:SoftwareSourceCode", "Model": "schema:SoftwareSourceCode", "DataSet": "schema:Dataset",
    "User": "schema:Person", "Job": "schema:CreateAction",
}  # fmt: skip
_TERMS = {"contains": "schema:hasPart", "uses": "schema:object", "trains": "schema:result"}
CONTEXT: Mapping[str, object] = {
    "@version": 1.1,
    "@vocab": f"{BASE}terms:",
    "schema": "https://schema.org/",
    "name": "schema:name",
    **{name: {"@type": "@json"} for name in sorted(STRUCTURED_ATTRIBUTES - set(RELATIONS))},
    **{name: {"@id": _TERMS.get(name, f"{BASE}terms:{name}"), "@type": "@id"} for name in RELATIONS},
}


def jsonld(graph: GraphLike) -> Iterator[str]:
    """JSON-LD: a node object per node, whose relations are lists of the ids of other nodes."""
    yield f'{{"@context": {json_line(CONTEXT)},'
    yield json_line(header(graph))[1:-1] + ", " + '"@graph": ['
    iris = {key: _iri(key, data.get("type", "Module")) for key, data in graph.nodes.items()}
    yield from comma_separated(_node(graph, iris, key, data) for key, data in graph.nodes.items())
    yield "]}"


def _node(graph: GraphLike, iris: dict[str, str], key: str, data: Attributes) -> str:
    kind = data.get("type", "Module")
    links: dict[str, list[str]] = defaultdict(list)
    for end, edge in graph.adj[key].items():
        for relation in _relations(edge):
            links[relation].append(iris[end])
    types = [kind, TYPES[kind]] if kind in TYPES else [kind]
    return object_text({"@id": iris[key], "@type": types}, {**data, "type": None}, links)


def _relations(edge: Attributes) -> list[str]:
    found = {edge.get("type"), *edge}
    return [relation for relation in RELATIONS if relation in found]


def _iri(key: str, kind: str) -> str:
    name = key.removeprefix(f"{kind}:")
    if not (name.isascii() and name.isalnum()):
        name = quote(name.encode("utf-8", "surrogatepass"), safe="")
    return f"{BASE}{kind}:{name}"


# ------------------------------------------------------------------ reading


def read_jsonld(content: bytes) -> nx.DiGraph:
    """The graph that `jsonld` wrote; raises `GraphFileError` for any other content."""
    document = parse_object(content)
    assembly = GraphAssembly(document)
    links: list[tuple[str, object]] = []
    for node in checked_list(document.get("@graph"), "'@graph'"):
        if type(node) is not dict:
            raise GraphFileError(f"a node is a {type(node).__name__}, not an object")
        key = _key(node.get("@id"))
        assembly.add_node(key, {"type": _type(node), **read_fields(node, ["@id", "@type", "type", *RELATIONS])})
        for relation in RELATIONS:
            links += [(key, end) for end in checked_list(node.get(relation, []), f"{relation!r} of a node")]
    for start, end in links:
        assembly.add_edge(start, _key(end))
    return assembly.graph


def _type(node: JsonObject) -> object:
    found = node.get("@type")
    types = found if type(found) is list else [found]
    return next((kind for kind in types if kind in GRAPH_TYPES), None)


def _key(iri: object) -> str:
    if type(iri) is not str or not iri.startswith(BASE):
        raise GraphFileError(f"a node's '@id' is {describe_value(iri)}, not one that begins with {BASE!r}")
    kind, _, name = iri.removeprefix(BASE).partition(":")
    try:
        return node_key(kind, unquote_to_bytes(name).decode("utf-8", "surrogatepass"))
    except ValueError:
        raise GraphFileError(f"a node's '@id' is {printable(iri)!r}, whose end is no UTF-8") from None
