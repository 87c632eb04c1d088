"""Export of a ModelGraph by Python: JSON, SVG, PNG, DOT and HTML without a browser.

The page's export menu (js/src/core/export/menu.ts) works without a kernel, as saved pages have none. What both offer
under one name has one writer where it is the same thing, and is another thing where it has two:

| format | `graph.export`, from the payload                | export menu, from the canvas           | one source      |
|--------|-------------------------------------------------|----------------------------------------|-----------------|
| .svg   | the static picture: what is open, with its data | what is on the screen, with its colors | palette.json    |
| .png   | the same shapes, drawn by Pillow                | the screen's own pixels                | –               |
| .dot   | the whole folded hierarchy (engine/dot.py)      | what is on the screen, view and colors | –               |
| .json  | the payload                                     | the payload                            | the payload     |
| .html  | a page of any widgets, with all state (pages.py)| a page of this graph, as it is shown   | pages/page.html |

The static pictures of all widgets are written by Python alone (engine/views/pictures), what a canvas shows by
TypeScript alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeAlias

from modulekg_widgets.engine.dot import STYLE, Cluster, Edge, Node, digraph, quoted_label
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.safe_files import write_atomic
from modulekg_widgets.engine.views.payload import label
from modulekg_widgets.engine.views.pictures.hierarchy import draw_hierarchy
from modulekg_widgets.engine.views.pictures.png import file_png
from modulekg_widgets.engine.views.pictures.svg import svg_text
from modulekg_widgets.engine.views.static_expansion import data_edges, visible_children

ModelGraph: TypeAlias = Any  # that module imports this one
formats: Registry[Callable[[ModelGraph], bytes]] = Registry("export format")


def export_model_graph(graph: ModelGraph, path: Path) -> Path:
    """Write `graph` in the format of the extension, atomically."""
    write_atomic(path, formats[path.suffix.removeprefix(".").lower()](graph))
    return path


@formats.register("json")
def _json(graph: ModelGraph) -> bytes:
    return json.dumps(graph.payload, ensure_ascii=False, allow_nan=False).encode()


@formats.register("svg")
def _svg(graph: ModelGraph) -> bytes:
    return svg_text(draw_hierarchy(graph.payload, graph._expanded_nodes())).encode()


@formats.register("png")
def _png(graph: ModelGraph) -> bytes:
    return file_png(draw_hierarchy(graph.payload, graph._expanded_nodes()))


@formats.register("dot")
def _dot(graph: ModelGraph) -> bytes:
    """The folded hierarchy in DOT: containers as clusters, with data edges, or edges between siblings."""
    payload = graph.payload
    rows, folds = visible_children(payload), {fold[0]: fold[1] for fold in payload["folds"]}
    drawn: set[int] = set()

    def parts(inside: int) -> Iterator[Node | Cluster]:
        for node in rows.get(inside, []):
            drawn.add(node)
            text = {"label": quoted_label(label(payload, node, folds))}
            yield Cluster(f"cluster_{node}", text, parts(node)) if node in rows else Node(f"n{node}", text)

    def edges() -> Iterator[Edge]:
        anchors: dict[int, int] = {}
        for node in reversed(range(len(payload["nodes"]["name"]))):
            anchors[node] = anchors[rows[node][0]] if rows.get(node) else node
        if payload["traced"]:
            yield from _data_edges(data_edges(payload, drawn), anchors, rows)
            return
        for siblings in rows.values():
            yield from ((f"n{anchors[a]}", f"n{anchors[b]}", {"style": "dashed"}) for a, b in pairwise(siblings))

    ends = [Node("input"), Node("output")] if payload["traced"] else []
    lines = digraph("model", chain(parts(0), ends), edges(), f"compound=true; {STYLE}")
    return "".join(line + "\n" for line in lines).encode("utf-8", "backslashreplace")


def _data_edges(
    edges: Iterable[tuple[int, int, str]], anchors: dict[int, int], rows: dict[int, list[int]]
) -> Iterator[Edge]:
    """Yields data edges between nodes, clipped at the borders of clusters."""
    for source, target, shape in edges:
        ends = "input" if source < 0 else f"n{anchors[source]}", "output" if target < 0 else f"n{anchors[target]}"
        cuts = {key: f"cluster_{node}" for key, node in (("ltail", source), ("lhead", target)) if node in rows}
        yield *ends, {"label": quoted_label(shape), **cuts}


@formats.register("html")
def _html(graph: ModelGraph) -> bytes:
    from modulekg_widgets.widgets.pages.pages import page_of

    return page_of(graph)
