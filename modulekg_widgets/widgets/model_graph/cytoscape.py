"""ModelGraph as an ipycytoscape widget: the visible part, at most 200 nodes.

It opens one comm per node and loses its graph when a node is removed, so at most 200 nodes go in and none comes out.
"""

from __future__ import annotations

from collections.abc import Iterable

from ipycytoscape import CytoscapeWidget

from modulekg_widgets.engine.palette import PAGE
from modulekg_widgets.engine.views.payload import label
from modulekg_widgets.engine.views.schema import Payload
from modulekg_widgets.engine.views.static_expansion import data_edges, fold_representatives, visible_children

MAX_NODES = 200


def cytoscape_widget(payload: Payload, opened: Iterable[int]) -> CytoscapeWidget:
    """Returns a `CytoscapeWidget` of the nodes that are visible with `opened` containers expanded."""
    rows, folds = visible_children(payload), {fold[0]: fold[1] for fold in payload["folds"]}
    open_nodes = fold_representatives(payload, opened)
    nodes: list[dict[str, object]] = []
    edges: list[dict[str, object]] = []
    drawn: set[int] = set()
    waiting = [0]
    while waiting:
        parent = waiting.pop(0)
        previous = None
        for node in rows.get(parent, ()):
            if len(nodes) == MAX_NODES:
                break
            data = {"id": f"n{node}", "label": label(payload, node, folds)}
            if parent:
                data["parent"] = f"n{parent}"
            nodes.append({"data": data})
            drawn.add(node)
            if previous is not None and not payload["traced"]:
                edges.append({"data": {"id": f"e{node}", "source": f"n{previous}", "target": f"n{node}"}})
            previous = node
            if node in open_nodes and rows.get(node):
                waiting.append(node)
    if payload["traced"]:
        inside = [edge for edge in data_edges(payload, drawn) if min(edge[:2]) > 0]
        edges += [
            {"data": {"id": f"e{a}-{b}", "source": f"n{a}", "target": f"n{b}", "label": shape}, "classes": "data"}
            for a, b, shape in inside
        ]
    widget = CytoscapeWidget()
    widget.graph.add_graph_from_json({"nodes": nodes, "edges": edges}, directed=True)
    widget.set_style(_STYLE)
    widget.set_layout(name="dagre", nodeSpacing=12, rankDir="TB")
    return widget


_STYLE: list[dict[str, object]] = [
    {
        "selector": "node",
        "style": {
            "label": "data(label)",
            "shape": "round-rectangle",
            "width": "label",
            "height": 26,
            "padding": "6px",
            "background-color": PAGE.surface,
            "border-color": PAGE.line,
            "border-width": 1,
            "color": PAGE.text,
            "font-size": 12,
            "text-valign": "center",
        },
    },
    {"selector": ":parent", "style": {"text-valign": "top", "background-color": PAGE.behind}},
    {
        "selector": "edge",
        "style": {
            "width": 1,
            "line-color": PAGE.line,
            "line-style": "dashed",
            "curve-style": "bezier",
            "target-arrow-shape": "triangle",
            "target-arrow-color": PAGE.line,
        },
    },
    {
        "selector": "edge.data",
        "style": {"line-style": "solid", "label": "data(label)", "font-size": 9, "text-background-opacity": 1,
                  "text-background-color": PAGE.surface},
    },
]  # fmt: skip
