"""Torchvista: a page in which graphviz, compiled for browsers, lays the graph out."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.tool import Args, Tool, elements, folder

ALL_LEVELS = 12
NAMED = "const show_module_attr_names = true;"
# a table in its page, on a line of its own
TABLE = r"^\s*const {} = (\{{.*\}});$"


def prepare() -> object:
    import torchvista

    return torchvista


def make(model: nn.Module, args: Args, file: Path, **options: Any) -> Path:
    from torchvista import trace_model

    path = file.with_suffix(".html")
    try:
        with redirect_stdout(StringIO()):
            trace_model(model, args, export_format="html", export_path=str(path), **options)
    except Exception:
        if not path.exists():  # it draws what ran before a model stopped, and raises then
            raise
    return path


def table(text: str, name: str) -> dict[str, Any]:
    found = re.search(TABLE.format(name), text, re.MULTILINE)
    return json.loads(found[1]) if found else {}


def drawn(file: Path) -> Drawing:
    text = file.read_text("utf-8")
    graph, plain = table(text, "adj_list"), table(text, "graph_node_name_to_without_suffix")
    data = {box for box, node in graph.items() if node["node_type"] not in ("Parameter", "Constant")}
    edges = [(box, edge) for box in data for edge in graph[box]["edges"]]
    arrows = frozenset((box, edge["target"]) for box, edge in edges)
    above = table(text, "ancestor_map")
    kinds = {box: node["node_type"] for box, node in graph.items()}
    levels = max(ancestors(box, above) + (kind == "Module") for box, kind in kinds.items())
    return Drawing(
        names={box: plain.get(box, box) for box in data},
        arrows=arrows,
        shaped=share(bool(edge.get("dims")) for _, edge in edges),
        levels=levels,
        # by their classes only, unless it is asked for names
        modules=table(text, "node_to_attr_name") if NAMED in text else {},
    )


def ancestors(box: str, above: dict[str, str]) -> int:
    """How many modules lie around a box."""
    return 1 + ancestors(above[box], above) if box in above else 0


TOOL = Tool(
    name="torchvista",
    package="torchvista",
    call='trace_model(model, args, export_format="html")',
    prepare=prepare,
    make=make,
    served=folder,
    drawn=drawn,
    boxes=elements('g[class^="node_"]', 'circle[class^="collapse-button_"]'),
    clicks=1,
)
DEEP = replace(
    TOOL,
    name="torchvista, all levels",
    call=f"trace_model(model, args, forced_module_tracing_depth={ALL_LEVELS}, show_module_attr_names=True, …)",
    make=partial(make, forced_module_tracing_depth=ALL_LEVELS, show_module_attr_names=True),
)
