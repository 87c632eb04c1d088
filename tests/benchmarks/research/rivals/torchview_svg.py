"""Torchview: a picture by graphviz, of a forward pass without data."""

from __future__ import annotations

import re
from pathlib import Path

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.tool import Args, Tool, elements, folder, inline

# the label of a box is an HTML table, its first cell the name and the depth
BOX = re.compile(r"^\s*(\d+) \[label=<(.*?)> fillcolor", re.MULTILINE | re.DOTALL)
ARROW = re.compile(r"^\s*(\d+) -> (\d+)", re.MULTILINE)


def prepare() -> object:
    import torchview

    return torchview


def make(model: nn.Module, args: Args, file: Path) -> Path:
    from torchview import draw_graph

    graph = draw_graph(model, input_data=list(args), expand_nested=True, depth=12, device="cpu").visual_graph
    file.with_suffix(".dot").write_text(graph.source, "utf-8")
    return inline(graph.pipe("svg", encoding="utf-8"), file.with_suffix(".html"))


def drawn(file: Path) -> Drawing:
    """Its boxes and frames tell classes, and no names."""
    source = file.with_suffix(".dot").read_text("utf-8")
    labels = dict(BOX.findall(source))
    names = {box: re.sub(r"<BR/>.*", "", re.sub(r"<(?!BR)[^>]*>|\s", "", label)) for box, label in labels.items()}
    arrows = frozenset(ARROW.findall(source))
    depths = [0]
    for opening in re.findall(r"subgraph cluster_\w*|^\s*\}", source, re.MULTILINE):
        depths.append(depths[-1] + (1 if opening.startswith("subgraph") else -1))
    shaped = share(bool(re.search(r"\(\d", labels.get(begin, ""))) for begin, _ in arrows)
    return Drawing(names, arrows, shaped, max(depths) + 1)


TOOL = Tool(
    name="torchview",
    package="torchview",
    call="draw_graph(model, input_data=args, expand_nested=True, depth=12)",
    prepare=prepare,
    make=make,
    served=folder,
    drawn=drawn,
    boxes=elements("svg g.node"),
)
