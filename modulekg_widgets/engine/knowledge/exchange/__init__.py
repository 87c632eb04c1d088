"""The knowledge graph as files: for other tools by the extension of the file, and back without loss.

Read property_graph.py first (the contents as one graph, which every format writes), then graph_xml.py and
json_formats.py (the formats that are read back, over lossless_format.py) and graph_reader.py (from such a graph to
records). export_formats.py has those that are only written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, cast

import networkx as nx

from modulekg_widgets.engine.errors import (
    GraphFileError,
    ModuleKGError,
    UnknownNameError,
    UnwritableFileError,
    printable,
)
from modulekg_widgets.engine.knowledge.exchange.export_formats import csacademy, csv_table, dot
from modulekg_widgets.engine.knowledge.exchange.graph_files import checked_path, read_whole
from modulekg_widgets.engine.knowledge.exchange.graph_reader import from_networkx
from modulekg_widgets.engine.knowledge.exchange.graph_xml import gexf, graphml, read_graphml
from modulekg_widgets.engine.knowledge.exchange.json_formats import cytoscape, jsonld, read_cytoscape, read_jsonld
from modulekg_widgets.engine.knowledge.exchange.property_graph import (
    GRAPH_TYPES,
    GraphLike,
    gc_paused,
    property_graph,
    to_networkx,
)
from modulekg_widgets.engine.knowledge.facts.contents import Contents
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.safe_files import write_atomic

__all__ = ["export_contents", "export_graph", "exporter", "exporters", "read_contents"]

Exporter = Callable[[nx.DiGraph], Iterable[str]]
exporters: Registry[Exporter] = Registry("export format")
ExporterT = TypeVar("ExporterT", bound=Exporter)


def exporter(*extensions: str) -> Callable[[ExporterT], ExporterT]:
    """Register a function from a `networkx.DiGraph` to the lines of a file, for files with these extensions.

    `@mk.exporter("names")` over `def names(graph): yield from graph` makes `graph.export("zoo.names")` write a line per
    node. Raises `UnknownNameError` and `DuplicateNameError`.

    Parameters
    ----------
    *extensions
        In small letters and without a dot.

    Returns
    -------
    decorator
        For a function that yields lines without their ends.

    Raises
    ------
    UnknownNameError
        For what is not an extension.
    DuplicateNameError
        For a taken one. An export raises `UnwritableFileError` when the function fails, and leaves the file as it was.

    Examples
    --------
    >>> import tempfile, torch, modulekg_widgets as mk
    >>> @mk.exporter("types")
    ... def types(graph):
    ...     yield from sorted({data["type"] for _, data in graph.nodes(data=True)})
    >>> kg = mk.KnowledgeGraph()
    >>> digest = kg.add_model(torch.nn.ReLU(), name="one")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kg.export(f"{folder}/zoo.types").read_text()
    'Module\\n'
    """
    for extension in extensions or (None,):
        if (
            not isinstance(extension, str)
            or not re.fullmatch(r"[^\s./\\]+", extension)
            or extension != extension.lower()
        ):
            raise UnknownNameError(
                f"an extension is written in small letters and without a dot, got {printable(repr(extension))}: "
                'write @mk.exporter("ext")'
            )
    return cast("Callable[[ExporterT], ExporterT]", exporters.register(*extensions))


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
    csacademy: ("Module",),  # it knows names alone, of nodes and edges that are all of one kind
    **dict.fromkeys([dot, graphml, gexf, cytoscape, jsonld, csv_table], GRAPH_TYPES),
}


def export_contents(contents: Contents, path: str | os.PathLike[str]) -> Path:
    """Writes the graph in the format of the extension, completely or not at all, and returns the path. Returns the
    path.

    Raises `UnknownNameError` for an extension that no exporter is registered for, `UnknownPathError` where there is no
    folder, and `UnwritableFileError` for what cannot be written for another reason.
    """
    path = checked_path(path)
    types = _TYPES.get(exporters[_extension(path)])
    if types is None:
        return export_graph(to_networkx(contents), path)
    with gc_paused():
        return export_graph(property_graph(contents, types), path)


def export_graph(graph: GraphLike, path: Path) -> Path:
    """Writes a graph of `to_networkx`, or a part of one; formats of this package take a `PropertyGraph`, too."""
    write: Callable[..., Iterable[str]] = exporters[_extension(path)]
    try:
        text = "".join(line + "\n" for line in write(graph))
    except ModuleKGError:
        raise
    except Exception as error:  # whatever a user's function raises
        name = printable(str(getattr(write, "__name__", type(write).__name__)))
        message = f"{type(error).__name__}: {printable(str(error), 300)}"
        raise UnwritableFileError(
            f"{printable(str(path))!r} is not written: the exporter {name} fails: {message}"
        ) from error
    write_atomic(path, text.encode("utf-8", "backslashreplace"))
    return path


def read_contents(path: str | os.PathLike[str]) -> Contents:
    """Reads a file that `export_contents` wrote as GraphML, Cytoscape JSON or JSON-LD.

    Raises `GraphFileError` for a file that is another's, was cut or changed, or is of a newer version.
    """
    file = checked_path(path)
    reader = READERS.get(_extension(file))
    if reader is None:
        endings = ", ".join(f".{ending}" for ending in READERS)
        raise GraphFileError(f"{printable(str(file))!r} cannot be read: a graph is read from {endings}")
    try:
        with gc_paused():
            return from_networkx(reader(read_whole(file)))
    except GraphFileError as error:
        raise GraphFileError(f"{printable(str(file))!r} is not a graph that can be read: {error}") from error


def _extension(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()
