"""TorchLens: a picture by graphviz, of a forward pass whose every value was kept."""

from __future__ import annotations

import html
import re
from pathlib import Path

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.tool import Args, Tool, elements, folder, inline

GROUP = re.compile(r'<g id="[^"]*" class="(node|edge|cluster)">\s*<title>(.*?)</title>(.*?)</g>', re.DOTALL)


def prepare() -> object:
    import torchlens

    return torchlens


def make(model: nn.Module, args: Args, file: Path) -> Path:
    import torchlens

    torchlens.trace(model, args).draw(vis_outpath=str(file), vis_fileformat="svg", vis_save_only=True)
    return inline(file.with_suffix(".svg").read_text("utf-8"), file.with_suffix(".html"))


def drawn(file: Path) -> Drawing:
    names: dict[str, str] = {}
    modules: dict[str, str] = {}
    arrows: set[tuple[str, str]] = set()
    shaped: set[str] = set()
    levels = 1
    for kind, title, body in GROUP.findall(file.read_text("utf-8")):
        title = html.unescape(title)
        if kind == "edge":
            begin, _, end = title.partition("->")
            arrows.add((begin, end))
        elif kind == "cluster":
            path = re.sub(r"^cluster_|_pass\d+$", "", title)
            levels = max(levels, path.count(".") + 2)  # with the boxes in it
        else:
            names[title] = re.sub(r"_\d.*", "", title)
            said = html.unescape(body)
            if path := re.search(r">@([\w.]+)", said):
                modules[title] = path[1]
            if re.search(r">\(\d|\dx\d", said):
                shaped.add(title)
    return Drawing(names, frozenset(arrows), share(begin in shaped for begin, _ in arrows), levels, modules)


TOOL = Tool(
    name="TorchLens",
    package="torchlens",
    call='torchlens.trace(model, args).draw(vis_fileformat="svg")',
    prepare=prepare,
    make=make,
    served=folder,
    drawn=drawn,
    boxes=elements("svg g.node"),
)
