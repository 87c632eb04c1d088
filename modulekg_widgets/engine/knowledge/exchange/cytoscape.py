"""Cytoscape JSON, as `cytoscape(…)` and `cy.json(…)` of cytoscape.js take it."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from modulekg_widgets.engine.json_types import JsonObject
from modulekg_widgets.engine.knowledge.exchange.json_text import (
    checked_list,
    checked_object,
    comma_separated,
    json_line,
    object_text,
    parse_object,
    read_fields,
)
from modulekg_widgets.engine.knowledge.exchange.lossless_format import (
    GraphAssembly,
    cache_edge_text,
    header,
    xml_escaped,
    xml_unescaped,
)
from modulekg_widgets.engine.knowledge.exchange.property_graph import Attributes, GraphLike


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
        assembly.add_node(_key(node.get("id")), read_fields(node, ["id"]))
    for edge in _data_of(elements, "edges"):
        assembly.add_edge(_key(edge.get("source")), _key(edge.get("target")))
    return assembly.graph


def _data_of(elements: JsonObject, group: str) -> Iterator[JsonObject]:
    # cytoscape.js itself writes no list for a group that is empty
    for element in checked_list(elements.get(group, []), f"'{group}'"):
        yield checked_object(checked_object(element, "an element").get("data"), "the data of an element")


def _key(value: object) -> object:
    return xml_unescaped(value) if type(value) is str else value
