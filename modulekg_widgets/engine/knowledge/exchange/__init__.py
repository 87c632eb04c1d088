"""The knowledge graph as files: for other tools by the extension of the file, and back without loss."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import networkx as nx

from modulekg_widgets.engine.errors import GraphFileError, shown
from modulekg_widgets.engine.knowledge.contents import Contents
from modulekg_widgets.engine.knowledge.exchange.csv_table import csv_table
from modulekg_widgets.engine.knowledge.exchange.cytoscape import cytoscape, read_cytoscape
from modulekg_widgets.engine.knowledge.exchange.files import checked_path, read_whole, write_whole
from modulekg_widgets.engine.knowledge.exchange.graph_reading import from_networkx
from modulekg_widgets.engine.knowledge.exchange.graphml import gexf, graphml, read_graphml
from modulekg_widgets.engine.knowledge.exchange.jsonld import jsonld, read_jsonld
from modulekg_widgets.engine.knowledge.exchange.property_graph import STORED, to_networkx
from modulekg_widgets.engine.knowledge.exchange.structures import csacademy, dot, quoted
from modulekg_widgets.engine.registry import Registry

__all__ = ["export_contents", "export_graph", "exporter", "exporters", "quoted", "read_contents", "write_whole"]

Exporter = Callable[[nx.DiGraph], Iterator[str]]
exporters: Registry[Exporter] = Registry("export format")
exporter = exporters.register  # the public decorator, `@mk.exporter("ext")`

exporter("dot", "gv")(dot)
exporter("edges")(csacademy)
exporter("graphml")(graphml)
exporter("gexf")(gexf)
exporter("cyjs")(cytoscape)
exporter("jsonld")(jsonld)
exporter("csv")(csv_table)

READERS: dict[str, Callable[[bytes], nx.DiGraph]] = {
    "graphml": read_graphml, "cyjs": read_cytoscape, "jsonld": read_jsonld,
}  # fmt: skip
# the types of nodes that a format of ours is given; an exporter of the user's gets `to_networkx()`
_TYPES: dict[Exporter, tuple[str, ...]] = {
    **dict.fromkeys([dot, csacademy], ("Module",)),
    **dict.fromkeys([graphml, gexf, cytoscape, jsonld, csv_table], (*STORED, "Operator")),
}


def export_contents(contents: Contents, path: str | os.PathLike[str]) -> Path:
    """Write the graph in the format of the file's extension; the file appears whole or not at all. Returns the path.

    Raises `UnknownNameError` for an extension that no exporter is registered for, `UnknownPathError` where there is no
    folder, and `UnwritableFileError` for what cannot be written for another reason.
    """
    path = checked_path(path)
    return export_graph(to_networkx(contents, _TYPES.get(exporters[_extension(path)])), path)


def export_graph(graph: nx.DiGraph, path: Path) -> Path:
    """Write a graph that `to_networkx` made, or a part of one."""
    lines = exporters[_extension(path)](graph)
    write_whole(path, "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace"))
    return path


def read_contents(path: str | os.PathLike[str]) -> Contents:
    """What `export_contents` wrote as GraphML, Cytoscape JSON or JSON-LD, without loss.

    Raises `GraphFileError` for a file that is another's, was cut or changed, or is of a newer version.
    """
    file = checked_path(path)
    reader = READERS.get(_extension(file))
    if reader is None:
        endings = ", ".join(f".{ending}" for ending in READERS)
        raise GraphFileError(f"{shown(str(file))!r} cannot be read: a graph is read from {endings}")
    try:
        return from_networkx(reader(read_whole(file)))
    except GraphFileError as error:
        raise GraphFileError(f"{shown(str(file))!r} is no graph that can be read: {error}") from error


def _extension(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
