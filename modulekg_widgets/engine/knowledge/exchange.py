"""The graph of structures as files for other tools: Graphviz DOT and the edge list of csacademy's graph editor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import networkx as nx

from modulekg_widgets.engine.errors import UnknownPathError, shown
from modulekg_widgets.engine.registry import Registry

Exporter = Callable[[nx.DiGraph], Iterator[str]]
exporters: Registry[Exporter] = Registry("export format")
exporter = exporters.register  # the public decorator, `@mk.exporter("ext")`


def export_graph(graph: nx.DiGraph, path: Path) -> Path:
    """Write `graph` in the format of the extension; the file appears whole or not at all.

    Raises `UnknownNameError` for an extension that no exporter is registered for.
    """
    exporter = exporters[path.suffix.removeprefix(".").lower()]
    write_whole(path, "".join(line + "\n" for line in exporter(graph)).encode("utf-8", "backslashreplace"))
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it; raises `UnknownPathError` where there is no folder."""
    if not path.parent.is_dir():
        raise UnknownPathError(f"there is no folder {shown(str(path.parent))!r}: make it first")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@exporters.register("dot", "gv")
def dot(graph: nx.DiGraph) -> Iterator[str]:
    """Graphviz DOT: a box per structure with its number of occurrences, an edge per containment with its count."""
    yield "digraph ModuleKG {"
    yield '  node [shape=box, style=rounded, fontname="sans-serif"];'
    for key, data in graph.nodes(data=True):
        uses = data.get("count", 1)
        label = data.get("name", key) + (f" ×{uses}" if uses > 1 else "")
        yield f"  {quoted(key)} [label={quoted(label)}];"
    for start, end, data in graph.edges(data=True):
        count = data.get("count", 1)
        yield f"  {quoted(start)} -> {quoted(end)}" + (f' [label="{count}"];' if count > 1 else ";")
    yield "}"


def quoted(text: str) -> str:
    # in DOT a backslash starts an escape only within a label, and a newline may stand in a quoted string
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\0", "�")
    )
    return f'"{escaped}"'


@exporters.register("edges")
def csacademy(graph: nx.DiGraph) -> Iterator[str]:
    """csacademy's graph editor: a line `from to` per edge and a line per node without edges; names hold no blanks."""
    names = _single_words(graph)
    for key in graph:
        if graph.degree(key) == 0:
            yield names[key]
    for start, end in graph.edges:
        yield f"{names[start]} {names[end]}"


def _single_words(graph: nx.DiGraph) -> dict[str, str]:
    words: dict[str, str] = {}
    taken: set[str] = set()
    for key, data in graph.nodes(data=True):
        word = "".join(c if c.isprintable() and not c.isspace() else "_" for c in str(data.get("name", key))) or "_"
        while word in taken:
            word += "'"
        taken.add(word)
        words[key] = word
    return words
