"""Model Explorer: a page with WebGL; the model reaches it by torch.export."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.parse import quote

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.tool import Args, Tool, program
from browser.lab import free_port

# its page keeps its renderers for its own tests; they say where on the canvas the icon is that opens a box
BOXES = """() => {
  const [renderer] = Object.values(window.me_test?.renderers ?? {});
  if (!renderer?.nodesToRender?.length || renderer.showBusySpinner) { return []; }
  const area = renderer.container.nativeElement.getBoundingClientRect();
  return renderer.nodesToRender.map(({ node }) => {
    const opens = node.nodeType === 1 && !node.expanded && !node.id.startsWith("inputs"); // which are the weights
    if (!opens) { return { id: node.id, x: 0, y: 0, opens }; }
    const { x, y } = renderer.getNodeExpandIconPositionRelativeToCenter(node.id);
    return { id: node.id, x: area.left + area.width / 2 + x, y: area.top + area.height / 2 + y, opens };
  });
}"""

MODEL = "graphs://model/0"
# what visualize_pytorch does, but for the export, which kernel.py has measured
SERVER = f"""
import sys, model_explorer
config = model_explorer.config()
config.graphs_list.append(open(sys.argv[1]).read())
config.model_sources.append({{"url": "{MODEL}"}})
model_explorer.visualize_from_config(config, port=int(sys.argv[2]), no_open_in_browser=True)
"""


def prepare() -> object:
    import model_explorer

    return model_explorer


def make(model: nn.Module, args: Args, file: Path) -> Path:
    import model_explorer
    import torch
    from model_explorer.utils import convert_adapter_response

    config = model_explorer.config()
    with redirect_stdout(StringIO()):
        config.add_model_from_pytorch("model", exported_program=torch.export.export(model, args))
    path = file.with_suffix(".json")
    path.write_text(json.dumps(convert_adapter_response(config.graphs_list[0])), "utf-8")  # what its server would send
    return path


def drawn(file: Path) -> Drawing:
    nodes = json.loads(file.read_text("utf-8"))["graphs"][0]["nodes"]
    weights = {node["id"] for node in nodes if node["id"].startswith(("p_", "b_", "c_"))}
    data = [node for node in nodes if node["id"] not in weights]
    shaped = {node["id"] for node in data if "tensor_shape" in json.dumps(node["outputsMetadata"])}
    arrows = {(edge["sourceNodeId"], node["id"]) for node in data for edge in node["incomingEdges"]}
    arrows = {(begin, end) for begin, end in arrows if begin not in weights}
    return Drawing(
        names={node["id"]: node["label"] for node in data},
        arrows=frozenset(arrows),
        shaped=share(begin in shaped for begin, _ in arrows),
        levels=max(node["namespace"].count("/") for node in data),
        # a namespace ends in the class of a module and the last part of its path
        modules={node["id"]: node["namespace"].rpartition("_")[2] for node in data},
    )


@contextmanager
def served(file: Path) -> Iterator[str]:
    port = free_port()
    with program([sys.executable, "-c", SERVER, str(file), str(port)], port):
        yield f"http://localhost:{port}/?data={quote(json.dumps({'models': [{'url': MODEL}]}))}"


TOOL = Tool(
    name="Model Explorer",
    package="ai-edge-model-explorer",
    call="model_explorer.visualize_pytorch(name, torch.export.export(model, args))",
    prepare=prepare,
    make=make,
    served=served,
    drawn=drawn,
    boxes=BOXES,
    clicks=1,
    surface="webgl-renderer",
)
