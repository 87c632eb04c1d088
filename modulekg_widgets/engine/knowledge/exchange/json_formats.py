"""The JSON formats, written one node a line and parsed within limits.

Cytoscape JSON is as `cytoscape(…)` and `cy.json(…)` of cytoscape.js take it. JSON-LD 1.1 has an embedded context: terms
of schema.org where they fit, own terms for the rest.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from urllib.parse import quote, unquote_to_bytes

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, a_type, printable
from modulekg_widgets.engine.json_types import JsonArray, JsonObject, JsonValue
from modulekg_widgets.engine.knowledge.exchange.lossless_format import (
    MAX_CONTAINERS,
    MAX_VALUES,
    STRUCTURED_ATTRIBUTES,
    GraphAssembly,
    cache_edge_text,
    describe_value,
    header,
    xml_escaped,
    xml_unescaped,
)
from modulekg_widgets.engine.knowledge.exchange.property_graph import GRAPH_TYPES, Attributes, GraphLike, node_key
from modulekg_widgets.engine.knowledge.facts.property_values import (
    MAX_SAFE_INTEGER,
    PropertyValue,
    encode,
    from_json,
    to_json,
)
from modulekg_widgets.engine.safe_files import parse_json

# -------------------- Texts


_write = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def json_line(value: object) -> str:
    return _write(value)


def comma_separated(texts: Iterable[str]) -> Iterator[str]:
    """The elements of a list, a line each, with commas between them."""
    last: str | None = None
    for text in texts:
        if last is not None:
            yield last + ","
        last = text
    if last is not None:
        yield last


def read_fields(data: JsonObject, exclude: Iterable[str]) -> Attributes:
    """The attributes that `object_text` wrote; raises `GraphFileError`."""
    without = set(exclude)
    try:
        return {name: from_json(value) for name, value in data.items() if name not in without}
    except ValueError as error:
        raise GraphFileError(f"a node has a value that is none: {printable(str(error))}") from None


def parse_object(content: bytes) -> JsonObject:
    """The JSON object that a file is; raises `GraphFileError`."""
    try:
        found = parse_json(content, GraphFileError, MAX_CONTAINERS)
    except GraphFileError:
        raise
    except (ValueError, RecursionError) as error:
        raise GraphFileError(f"it is not JSON: {printable(str(error))}") from None
    return checked_object(found, "the file")


def checked_object(value: object, what: str) -> JsonObject:
    if type(value) is not dict:
        raise GraphFileError(f"{what} is {a_type(value)}, not an object")
    return value


def checked_list(value: object, what: str) -> JsonArray:
    if type(value) is not list:
        raise GraphFileError(f"{what} is {a_type(value)}, not a list")
    return value


# --------------------
# What `encode` and `to_json` give, and quicker: most values of a graph are texts and small numbers in lists of lists.
# Those are told by the types that are among them, all at once, and JSON has them as they are. Every other value, and a
# text with what may be half a character, is left to `encode` and `to_json`, which look at each value within.


_JSON_TYPES = frozenset((str, bool, type(None)))
_NUMBERS = frozenset((int, float))
_LIST, _LIST_OR_TUPLE = frozenset((list,)), frozenset((list, tuple))
_MAX_LISTED = 100_000  # values in the lists of one; lists that share lists may have more than memory
_MAX_DEPTH = 2  # lists within lists within one value
_SURROGATE_ESCAPE = "\\ud"  # how JSON begins half a character
_spaced = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode
_compact = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def value_text(value: object, name: str, max_items: int = MAX_VALUES) -> str:
    """Returns the text of `encode`; a tuple counts as a list. Raises `PropertyError`. Raises `PropertyError`."""
    if not value and type(value) in (list, tuple, dict):
        return "{}" if type(value) is dict else "[]"
    text = _compact(_json(value, name, max_items))
    if _needs_full_encoding(text, max_items):
        return encode(_as_list(value), name, max_items)
    return text


def object_text(head: Mapping[str, object], data: Attributes, tail: Mapping[str, object] | None = None) -> str:
    """Returns a JSON object of `head`, the attributes as `to_json` converts them, and `tail`."""
    text = _spaced({**head, **_fields(data), **(tail or {})})
    if _needs_full_encoding(text, MAX_VALUES):
        fields = {name: _fully_encoded(value, name, MAX_VALUES) for name, value in data.items() if value is not None}
        return _spaced({**head, **fields, **(tail or {})})
    return text


def _fields(data: Attributes) -> dict[str, object]:
    return {
        name: value if type(value) is str else _json(value, name, MAX_VALUES)
        for name, value in data.items()
        if value is not None
    }


def _needs_full_encoding(text: str, most: int) -> bool:
    # a shorter one has no more values than are allowed
    return len(text) > most or _SURROGATE_ESCAPE in text


def _fully_encoded(value: PropertyValue, name: str, most: int) -> JsonValue:
    return to_json(_as_list(value), name, most)


def _json(value: PropertyValue, name: str, most: int) -> object:
    kind = type(value)
    if kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return value
    if (kind is list or kind is tuple) and _is_plain(value, _MAX_DEPTH):
        return value
    if kind is dict and _has_plain_names(value):
        if _is_plain(value.values(), _MAX_DEPTH):
            return value
        if _is_plain(value.values(), _MAX_DEPTH, _LIST_OR_TUPLE):
            return {key: {"$tuple": item} if type(item) is tuple else item for key, item in value.items()}
    return _fully_encoded(value, name, most)


def _as_list(value: object) -> object:
    return list(value) if type(value) is tuple else value


def _has_plain_names(value: dict[PropertyValue, PropertyValue]) -> bool:
    """True if all keys are texts, and no single key that marks a tagged value."""
    return {str}.issuperset(map(type, value)) and not (len(value) == 1 and next(iter(value)).startswith("$"))


def _is_plain(values: Collection[PropertyValue], depth: int, nested: frozenset[type] = _LIST) -> bool:
    """True if JSON has the values as they are; types in `nested` count as lists."""
    kinds = set(map(type, values))
    kinds -= _JSON_TYPES
    if not kinds:
        return True
    inside = kinds & nested
    if inside:
        lists = [value for value in values if type(value) in inside]
        few = depth > 0 and sum(map(len, lists)) <= _MAX_LISTED
        if not few or not _is_plain(list(chain.from_iterable(lists)), depth - 1):
            return False
        kinds -= inside
    if dict in kinds:
        found = [value for value in values if type(value) is dict]
        few = depth > 0 and sum(map(len, found)) <= _MAX_LISTED
        named = few and all(map(_has_plain_names, found))
        if not named or not _is_plain(list(chain.from_iterable(map(dict.values, found))), depth - 1):
            return False
        kinds -= {dict}
    return kinds <= _NUMBERS and all(
        -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER for value in values if type(value) in kinds
    )


# -------------------- Cytoscape JSON


def cytoscape(graph: GraphLike) -> Iterator[str]:
    """Cytoscape JSON with every node's attributes in its `data`."""
    yield f'{{"format_version": "1.0", "generated_by": "modulekg-widgets", "data": {json_line(header(graph))},'
    yield '"elements": {"nodes": ['
    yield from comma_separated(_element({"id": xml_escaped(key)}, data) for key, data in graph.nodes.items())
    yield '], "edges": ['
    yield from comma_separated(_edges(graph))
    yield "]}}"


def _element(identity: dict[str, str], data: Attributes) -> str:
    return f'{{"data": {object_text(identity, data)}}}'


def _edges(graph: GraphLike) -> Iterator[str]:
    keys = {key: json_line(xml_escaped(key)) for key in graph.nodes}
    known = cache_edge_text(lambda data: object_text({}, data)[1:])
    number = 0
    for start, ends in graph.adj.items():
        for end, data in ends.items():
            yield f'{{"data": {{"id": "e{number}", "source": {keys[start]}, "target": {keys[end]}, {known(data)}}}'
            number += 1


def read_cytoscape(content: bytes) -> nx.DiGraph:
    """The graph that `cytoscape` wrote; raises `GraphFileError` for any other content."""
    document = parse_object(content)
    assembly = GraphAssembly(checked_object(document.get("data"), "'data'"))
    elements = checked_object(document.get("elements"), "'elements'")
    for node in _data_of(elements, "nodes"):
        assembly.add_node(_identity(node.get("id")), read_fields(node, ["id"]))
    for edge in _data_of(elements, "edges"):
        assembly.add_edge(_identity(edge.get("source")), _identity(edge.get("target")))
    return assembly.graph


def _data_of(elements: JsonObject, group: str) -> Iterator[JsonObject]:
    # cytoscape.js itself writes no list for a group that is empty
    for element in checked_list(elements.get(group, []), f"'{group}'"):
        yield checked_object(checked_object(element, "an element").get("data"), "the data of an element")


def _identity(value: object) -> object:
    return xml_unescaped(value) if type(value) is str else value


# -------------------- JSON-LD


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
            raise GraphFileError(f"a node is {a_type(node)}, not an object")
        key = _key_of_iri(node.get("@id"))
        assembly.add_node(key, {"type": _type(node), **read_fields(node, ["@id", "@type", "type", *RELATIONS])})
        for relation in RELATIONS:
            links += [(key, end) for end in checked_list(node.get(relation, []), f"{relation!r} of a node")]
    for start, end in links:
        assembly.add_edge(start, _key_of_iri(end))
    return assembly.graph


def _type(node: JsonObject) -> object:
    found = node.get("@type")
    types = found if type(found) is list else [found]
    return next((kind for kind in types if kind in GRAPH_TYPES), None)


def _key_of_iri(iri: object) -> str:
    if type(iri) is not str or not iri.startswith(BASE):
        raise GraphFileError(f"a node's '@id' is {describe_value(iri)}, not one that begins with {BASE!r}")
    kind, _, name = iri.removeprefix(BASE).partition(":")
    try:
        return node_key(kind, unquote_to_bytes(name).decode("utf-8", "surrogatepass"))
    except ValueError:
        raise GraphFileError(f"a node's '@id' is {printable(iri)!r}, whose end is not UTF-8") from None
