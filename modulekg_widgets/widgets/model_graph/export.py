"""ModelGraph as a file: an interactive page, a picture, a Graphviz graph or the payload."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from modulekg_widgets.engine.knowledge.exchange import quoted
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.safe_files import write_whole
from modulekg_widgets.engine.views.opening import data_edges, rows_of
from modulekg_widgets.engine.views.payload import label
from modulekg_widgets.engine.views.pictures.hierarchy import HEADER, WIDTH, layout, svg

ModelGraph: TypeAlias = Any  # that module imports this one
formats: Registry[Callable[[ModelGraph], bytes]] = Registry("export format")


def export_model_graph(graph: ModelGraph, path: Path) -> Path:
    """Write `graph` in the format of the extension; the file appears whole or not at all."""
    write_whole(path, formats[path.suffix.removeprefix(".").lower()](graph))
    return path


@formats.register("json")
def _json(graph: ModelGraph) -> bytes:
    return json.dumps(graph.payload, ensure_ascii=False, allow_nan=False).encode()


@formats.register("svg")
def _svg(graph: ModelGraph) -> bytes:
    return svg(graph.payload, graph._opened()).encode()


@formats.register("png")
def _png(graph: ModelGraph) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    boxes, arrows, height = layout(graph.payload, graph._opened())
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=144)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    for box in boxes:
        fill = "#f7f8fa" if box.kind == "frame" else "#ffffff"
        style = f"round,pad=0,rounding_size={10 if box.kind == 'pill' else 4}"
        axes.add_patch(
            FancyBboxPatch((box.x, box.y), box.width, box.height, boxstyle=style, facecolor=fill, edgecolor="#c4cbd3")
        )
        middle = box.y + min(box.height, HEADER + 4) / 2
        if box.kind == "pill":
            axes.text(box.x + box.width / 2, box.y + box.height / 2, box.title, ha="center", va="center", fontsize=9)
            continue
        axes.plot([box.x + 2, box.x + 2], [box.y + 3, middle * 2 - box.y - 3], color=box.color, linewidth=3)
        # matplotlib reads dollar signs as mathematics
        axes.text(box.x + 12, middle, _literal(box.title), va="center", fontsize=9, parse_math=False)
        axes.text(box.x + box.width - 10, middle, box.detail, ha="right", va="center", fontsize=9, color="#59636e")
    for x, start, end in arrows:
        axes.annotate("", (x, end), (x, start), arrowprops={"arrowstyle": "-|>", "color": "#8a929b", "linewidth": 0.8})
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _literal(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:80])


@formats.register("dot")
def _dot(graph: ModelGraph) -> bytes:
    """The folded hierarchy: containers as clusters, with data edges, or an edge from each sibling to the next."""
    payload = graph.payload
    rows, folds = rows_of(payload), {fold[0]: fold[1] for fold in payload["folds"]}
    lines = ["digraph model {", '  compound=true; node [shape=box, style=rounded, fontname="sans-serif"];']
    waiting: list[int | None] = list(reversed(rows.get(0, [])))
    drawn: set[int] = set()
    anchors: dict[int, int] = {}
    while waiting:
        node = waiting.pop()
        if node is None:
            lines.append("}")
            continue
        drawn.add(node)
        if node in rows:
            lines.append(f"subgraph cluster_{node} {{ label={quoted(label(payload, node, folds))};")
            waiting.append(None)
            waiting.extend(reversed(rows[node]))
        else:
            lines.append(f"  n{node} [label={quoted(label(payload, node, folds))}];")
    for node in reversed(range(len(payload["nodes"]["name"]))):
        anchors[node] = anchors[rows[node][0]] if rows.get(node) else node
    if payload["traced"]:
        lines += ["  input; output;", *_data_lines(data_edges(payload, drawn), anchors, rows)]
        return "\n".join([*lines, "}", ""]).encode("utf-8", "backslashreplace")
    for siblings in rows.values():
        lines.extend(f"  n{anchors[a]} -> n{anchors[b]} [style=dashed];" for a, b in pairwise(siblings))
    return "\n".join([*lines, "}", ""]).encode("utf-8", "backslashreplace")


def _data_lines(
    edges: Iterable[tuple[int, int, str]], anchors: dict[int, int], rows: dict[int, list[int]]
) -> Iterator[str]:
    """An edge of a cluster is drawn between nodes, and cut off at its border."""
    for source, target, shape in edges:
        ends = "input" if source < 0 else f"n{anchors[source]}", "output" if target < 0 else f"n{anchors[target]}"
        cuts = [f"{key}=cluster_{node}" for key, node in (("ltail", source), ("lhead", target)) if node in rows]
        yield f"  {ends[0]} -> {ends[1]} [{', '.join([f'label={quoted(shape)}', *cuts])}];"


@formats.register("html")
def _html(graph: ModelGraph) -> bytes:
    from modulekg_widgets.widgets.pages.pages import page_of

    return page_of(graph)
