"""Cytoscape JSON: what `cytoscape(…)` and `cy.json(…)` of cytoscape.js take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx

from modulekg_widgets.engine.knowledge.exchange.flat import Assembly, header, xml_escaped, xml_unescaped
from modulekg_widgets.engine.knowledge.exchange.json_text import (
    json_fields,
    json_line,
    json_lines,
    list_of,
    object_of,
    parsed_object,
    read_fields,
)


def cytoscape(graph: nx.DiGraph) -> Iterator[str]:
    """Cytoscape JSON with every node's attributes in its `data`."""
    yield f'{{"format_version": "1.0", "generated_by": "modulekg-widgets", "data": {json_line(header(graph))},'
    yield '"elements": {"nodes": ['
    yield from json_lines(
        {"data": {"id": xml_escaped(key), **json_fields(data)}} for key, data in graph.nodes(data=True)
    )
    yield '], "edges": ['
    yield from json_lines(
        {"data": {"id": f"e{number}", "source": xml_escaped(start), "target": xml_escaped(end), **json_fields(data)}}
        for number, (start, end, data) in enumerate(graph.edges(data=True))
    )
    yield "]}}"


def read_cytoscape(content: bytes) -> nx.DiGraph:
    """The graph that `cytoscape` wrote; raises `GraphFileError` for any other content."""
    document = parsed_object(content)
    assembly = Assembly(object_of(document.get("data"), "'data'"))
    elements = object_of(document.get("elements"), "'elements'")
    for node in _data_of(elements, "nodes"):
        assembly.add_node(_key(node.get("id")), read_fields(node, ["id"]))
    for edge in _data_of(elements, "edges"):
        assembly.add_edge(_key(edge.get("source")), _key(edge.get("target")))
    return assembly.graph


def _data_of(elements: dict[str, Any], group: str) -> Iterator[dict[str, Any]]:
    # cytoscape.js itself writes no list for a group that is empty
    for element in list_of(elements.get(group, []), f"'{group}'"):
        yield object_of(object_of(element, "an element").get("data"), "the data of an element")


def _key(value: Any) -> Any:
    return xml_unescaped(value) if type(value) is str else value
